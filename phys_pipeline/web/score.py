"""The tab that scores one video and shows why it scores so."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from typing import Any

import gradio as gr

from phys_pipeline.errors import ConfigError
from phys_pipeline.web.component import sync_compare
from phys_pipeline.web.context import Context
from phys_pipeline.web.engine.jobs import Job
from phys_pipeline.web.engine.player import player_value
from phys_pipeline.web.engine.reproduce import score_command
from phys_pipeline.web.engine.runs import Run
from phys_pipeline.web.engine.score import PICTURES, downloads, sample_names, score_sample, score_upload
from phys_pipeline.web.events import CPU, guarded
from phys_pipeline.web.fairness import one_of_many
from phys_pipeline.web.job_tab import JobTab
from phys_pipeline.web.tables import report_table, warnings_html

VIDEO_ENDINGS = [
    ".mp4",
    ".m4v",
    ".mov",
    ".webm",
    ".mkv",
    ".avi",
    ".mpg",
    ".mpeg",
    ".wmv",
    ".ogv",
    ".gif",
    ".webp",
    ".png",
    ".avif",
]
_NONE = "none"


class ScoreTab(JobTab):
    """Components and events of the tab."""

    def __init__(self, context: Context) -> None:
        settings = context.settings
        with gr.Row():
            limits = f"at most {settings.max_upload_mb} MB; the first {settings.max_seconds:g} seconds count"
            self.upload = gr.File(
                label=f"Your video, GIF or animated WebP ({limits})", file_types=VIDEO_ENDINGS, elem_id="score-upload",
                height=170, scale=3,
            )  # fmt: skip
            self.sample = gr.Dropdown([_NONE, *sample_names()], value=_NONE, label="Or a sample", elem_id="score-sample", scale=2)
        super().__init__(context, "score", "Score it")
        self.summary = gr.HTML(elem_id="score-summary")
        self.player = sync_compare(elem_id="score-player")
        self.pictures = gr.HTML(elem_id="score-pictures")
        self.table = gr.HTML(elem_id="score-table")
        with gr.Accordion("Download and repeat", open=False):
            self.files = gr.File(label="The video with its scores, the scores as JSON, the pictures", file_count="multiple",
                                 interactive=False, elem_id="score-files")  # fmt: skip
            self.command = gr.Textbox(label="The command line that scores it", interactive=False, buttons=["copy"])
        self.shown = [self.summary, self.player, self.pictures, self.table, self.files, self.command]
        self.start.click(
            guarded(self.score), [self.upload, self.sample], self.outputs, api_name="score", show_progress="hidden",
            validator=one_of_many, **CPU,
        )  # fmt: skip
        self.make_cancelling()

    def score(self, video: str | None, sample: str, request: gr.Request) -> Iterator[Any]:
        """Score the motion of a video.

        Args:
            video: a file, or None for a sample.
            sample: the sample's name.
        """
        if not video and sample not in sample_names():
            raise ConfigError("upload a video or choose a sample first")
        name = Path(video).name if video else sample
        yield from self.follow(f"reading {name}", request, lambda job: self._work(video, sample, job))

    def _work(self, video: str | None, sample: str, job: Job) -> Run:
        runs, settings = self.context.runs, self.context.settings
        if video:
            return score_upload(runs, Path(video), Path(video).name, settings, job)
        return score_sample(runs, sample, settings, job)

    def show(self, run: Run, memory: Mapping[str, Any]) -> tuple[Any, ...]:
        """Summary, player, pictures, table, files and command line."""
        content = run.read()
        report, name = content["report"], content["name"]
        summary = f'<p class="summary">{escape(content["summary"])}</p>' + warnings_html(content["notes"])
        value = player_value(
            {"left": run.path("video.mp4"), "right": None}, {"left": report, "right": None}, labels=(name, ""),
            about=content["summary"],
        )  # fmt: skip
        return (
            summary, value, _pictures(run), report_table({name: report}), [str(path) for path in downloads(run)],
            score_command(name),
        )  # fmt: skip


def _pictures(run: Run) -> str:
    """The pictures that explain the score, with words for those who can't see them."""
    figures = "".join(
        f'<figure><img alt="{escape(text)}" src="data:image/png;base64,{b64encode(run.path(name).read_bytes()).decode()}" '
        f'style="max-width:100%"><figcaption>{escape(text[:1].upper() + text[1:])}.</figcaption></figure>'
        for name, text in PICTURES
    )
    return (
        "<h2>Why this score</h2><p>Coherent motion puts its energy on a line in the first three planes. The dashed line is the "
        "one that the loss found: what lies beside it is what the loss counts. The dotted line is the motion that was measured "
        f'by registering the frames.</p><div class="pictures">{figures}</div>'
    )
