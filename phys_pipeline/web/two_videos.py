"""The tab that compares two videos of a visitor's own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import gradio as gr

from phys_pipeline.errors import ConfigError
from phys_pipeline.web.component import sync_compare
from phys_pipeline.web.context import Context
from phys_pipeline.web.engine.jobs import Job
from phys_pipeline.web.engine.measures import metric_infos
from phys_pipeline.web.engine.player import player_value, read_upload
from phys_pipeline.web.engine.reproduce import compare_command
from phys_pipeline.web.engine.runs import Run
from phys_pipeline.web.engine.two import FILES, compare_two, downloads
from phys_pipeline.web.events import CPU, guarded
from phys_pipeline.web.fairness import one_of_many
from phys_pipeline.web.job_tab import JobTab
from phys_pipeline.web.score import VIDEO_ENDINGS
from phys_pipeline.web.tables import measured_table, report_table, warnings_html


class TwoVideosTab(JobTab):
    """Components and events of the tab."""

    def __init__(self, context: Context) -> None:
        with gr.Row():
            self.uploads = [
                gr.File(label=f"Video {name}", file_types=VIDEO_ENDINGS, elem_id=f"two-{name.lower()}", height=170)
                for name in "AB"
            ]
        super().__init__(context, "two", "Compare them")
        self.notes = gr.HTML(elem_id="two-notes")
        self.player = sync_compare(elem_id="two-player")
        self.table = gr.HTML(elem_id="two-table")
        with gr.Accordion("Download and repeat", open=False):
            self.files = gr.File(label="The pair with its scores, the scores as JSON", file_count="multiple", interactive=False)
            self.command = gr.Textbox(label="The command line that compares them", interactive=False, buttons=["copy"])
        self.shown = [self.notes, self.player, self.table, self.files, self.command]
        self.start.click(
            guarded(self.compare),
            self.uploads,
            self.outputs,
            api_name="compare_two",
            show_progress="hidden",
            validator=one_of_many,
            **CPU,
        )
        self.make_cancelling()

    def compare(self, first: str | None, second: str | None, request: gr.Request) -> Iterator[Any]:
        """Compare two videos with every metric that needs no weights.

        Args:
            first: a video file.
            second: another one.
        """
        if not first or not second:
            raise ConfigError("upload two videos first")
        yield from self.follow("reading both", request, lambda job: self._work(first, second, job))

    def _work(self, first: str, second: str, job: Job) -> Run:
        read = [read_upload(Path(path), Path(path).name, self.context.settings) for path in (first, second)]
        return compare_two(self.context.runs, read[0], read[1], job)

    def show(self, run: Run, memory: Mapping[str, Any]) -> tuple[Any, ...]:
        """Notes, player, table, files and command line."""
        content = run.read()
        names, reports = content["names"], content["reports"]
        value = player_value(
            {"left": run.path(FILES[0]), "right": run.path(FILES[1])}, {"left": reports[0], "right": reports[1]},
            labels=(names[0], names[1]),
        )  # fmt: skip
        table = report_table(dict(zip(names, reports, strict=True))) + measured_table(content["measured"], metric_infos(), names)
        return (
            warnings_html(content["notes"]), value, table, [str(path) for path in downloads(run)],
            compare_command(*content["files"]),
        )  # fmt: skip
