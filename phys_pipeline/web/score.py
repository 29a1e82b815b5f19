"""The tab that scores one video and shows why it scores so."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

import gradio as gr

from phys_pipeline.errors import ConfigError, DataError
from phys_pipeline.web.component import sync_compare
from phys_pipeline.web.context import Context, status_html
from phys_pipeline.web.engine.jobs import Cancelled, Done, Job, Progress
from phys_pipeline.web.engine.player import player_value, read_upload
from phys_pipeline.web.engine.reproduce import score_command
from phys_pipeline.web.engine.runs import Run
from phys_pipeline.web.engine.score import PICTURES, downloads, read_sample, sample_names, score_clip
from phys_pipeline.web.events import CPU, PRIVATE, guarded, visitor
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


class ScoreTab:
    """Components and events of the tab."""

    def __init__(self, context: Context) -> None:
        self.context = context
        settings = context.settings
        with gr.Row():
            limits = f"at most {settings.max_upload_mb} MB; the first {settings.max_seconds:g} seconds count"
            self.upload = gr.File(
                label=f"Your video, GIF or animated WebP ({limits})", file_types=VIDEO_ENDINGS, elem_id="score-upload",
                height=170, scale=3,
            )  # fmt: skip
            self.sample = gr.Dropdown([_NONE, *sample_names()], value=_NONE, label="Or a sample", elem_id="score-sample", scale=2)
        with gr.Row():
            self.start = gr.Button("Score it", variant="primary", elem_id="score-start", scale=3)
            self.stop = gr.Button("Cancel", variant="stop", interactive=False, elem_id="score-stop", scale=1)
        self.status = gr.HTML(status_html("Ready.", running=False), elem_id="score-status")
        self.summary = gr.HTML(elem_id="score-summary")
        self.player = sync_compare(elem_id="score-player")
        self.pictures = gr.HTML(elem_id="score-pictures")
        self.table = gr.HTML(elem_id="score-table")
        with gr.Accordion("Download and repeat", open=False):
            self.files = gr.File(label="The video with its scores, the scores as JSON, the pictures", file_count="multiple",
                                 interactive=False, elem_id="score-files")  # fmt: skip
            self.command = gr.Textbox(label="The command line that scores it", interactive=False, buttons=["copy"])
        self.memory = gr.BrowserState(None, storage_key="phys-pipeline-score")
        running = self.start.click(
            guarded(self.score), [self.upload, self.sample], [self.status, self.start, self.stop, *self._shown_in(), self.memory],
            api_name="score", show_progress="hidden", **CPU,
        )  # fmt: skip
        self.stop.click(self.cancel, None, [self.status, self.start, self.stop], cancels=[running], queue=False, **PRIVATE)

    def _shown_in(self) -> list[Any]:
        return [self.summary, self.player, self.pictures, self.table, self.files, self.command]

    @property
    def restored(self) -> list[Any]:
        """Outputs of :meth:`restore`."""
        return [self.status, *self._shown_in()]

    def score(self, video: str | None, sample: str, request: gr.Request) -> Iterator[Any]:
        """Score the motion of a video.

        Args:
            video: a file, or None for a sample.
            sample: the sample's name.
        """
        if not video and sample not in sample_names():
            raise ConfigError("upload a video or choose a sample first")
        name = Path(video).name if video else sample
        yield self._state(f"reading {name}")
        try:
            with self.context.jobs.started(visitor(request)) as job:
                for event in job.follow(lambda job: self._work(video, sample, job)):
                    if isinstance(event, Progress):
                        yield self._state(event)
                    elif isinstance(event, Done):
                        run = event.value
            yield self._state("Done.", self._shown(run), {"run": run.id}, running=False)
        except Cancelled:
            yield self._state("Cancelled.", running=False)
        except Exception:
            yield self._state("Stopped by an error.", running=False)
            raise

    def _work(self, video: str | None, sample: str, job: Job) -> Run:
        settings = self.context.settings
        clip = read_upload(Path(video), Path(video).name, settings) if video else read_sample(sample, settings)
        return score_clip(self.context.runs, *clip, job)

    def cancel(self, request: gr.Request) -> tuple[Any, Any, Any]:
        """Stop the visitor's job."""
        self.context.jobs.cancel(visitor(request))
        return status_html("Cancelled.", running=False), gr.Button(interactive=True), gr.Button(interactive=False)

    def restore(self, memory: Any) -> tuple[Any, ...]:
        """The video that this browser scored last, after a reload."""
        try:
            run = self.context.runs.open((memory or {}).get("run"))
            return (status_html("Your last result.", running=False), *self._shown(run))
        except (DataError, KeyError, TypeError, AttributeError):
            return (gr.skip(),) * len(self.restored)

    def _state(self, now: Progress | str, shown: tuple[Any, ...] | None = None, memory: Any = None, running: bool = True) -> Any:
        parts = shown if shown is not None else (gr.skip(),) * len(self._shown_in())
        buttons = gr.Button(interactive=not running), gr.Button(interactive=running)
        return (status_html(now, running), *buttons, *parts, gr.skip() if memory is None else memory)

    def _shown(self, run: Run) -> tuple[Any, ...]:
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
