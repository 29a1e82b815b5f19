"""The tab that compares two videos of a visitor's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gradio as gr

from phys_pipeline.errors import ConfigError, DataError
from phys_pipeline.web.component import sync_compare
from phys_pipeline.web.context import Context, status_html
from phys_pipeline.web.engine.jobs import Cancelled, Done, Job, Progress
from phys_pipeline.web.engine.measures import metric_infos
from phys_pipeline.web.engine.player import player_value, read_upload
from phys_pipeline.web.engine.reproduce import compare_command
from phys_pipeline.web.engine.runs import Run
from phys_pipeline.web.engine.two import FILES, compare_two, downloads
from phys_pipeline.web.events import CPU, PRIVATE, guarded, visitor
from phys_pipeline.web.score import VIDEO_ENDINGS
from phys_pipeline.web.tables import measured_table, report_table, warnings_html


class TwoVideosTab:
    """Components and events of the tab."""

    def __init__(self, context: Context) -> None:
        self.context = context
        with gr.Row():
            self.uploads = [
                gr.File(label=f"Video {name}", file_types=VIDEO_ENDINGS, elem_id=f"two-{name.lower()}", height=170)
                for name in "AB"
            ]
        with gr.Row():
            self.start = gr.Button("Compare them", variant="primary", elem_id="two-start", scale=3)
            self.stop = gr.Button("Cancel", variant="stop", interactive=False, elem_id="two-stop", scale=1)
        self.status = gr.HTML(status_html("Ready.", running=False), elem_id="two-status")
        self.notes = gr.HTML(elem_id="two-notes")
        self.player = sync_compare(elem_id="two-player")
        self.table = gr.HTML(elem_id="two-table")
        with gr.Accordion("Download and repeat", open=False):
            self.files = gr.File(label="The pair with its scores, the scores as JSON", file_count="multiple", interactive=False)
            self.command = gr.Textbox(label="The command line that compares them", interactive=False, buttons=["copy"])
        self.memory = gr.BrowserState(None, storage_key="phys-pipeline-two")
        running = self.start.click(
            guarded(self.compare), self.uploads, [self.status, self.start, self.stop, *self._shown_in(), self.memory],
            api_name="compare_two", show_progress="hidden", **CPU,
        )  # fmt: skip
        self.stop.click(self.cancel, None, [self.status, self.start, self.stop], cancels=[running], queue=False, **PRIVATE)

    def _shown_in(self) -> list[Any]:
        return [self.notes, self.player, self.table, self.files, self.command]

    @property
    def restored(self) -> list[Any]:
        """Outputs of :meth:`restore`."""
        return [self.status, *self._shown_in()]

    def compare(self, first: str | None, second: str | None, request: gr.Request) -> Iterator[Any]:
        """Compare two videos with every metric that needs no weights.

        Args:
            first: a video file.
            second: another one.
        """
        if not first or not second:
            raise ConfigError("upload two videos first")
        yield self._state("reading both")
        try:
            with self.context.jobs.started(visitor(request)) as job:
                for event in job.follow(lambda job: self._work(first, second, job)):
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

    def _work(self, first: str, second: str, job: Job) -> Run:
        read = [read_upload(Path(path), Path(path).name, self.context.settings) for path in (first, second)]
        return compare_two(self.context.runs, read[0], read[1], job)

    def cancel(self, request: gr.Request) -> tuple[Any, Any, Any]:
        """Stop the visitor's job."""
        self.context.jobs.cancel(visitor(request))
        return status_html("Cancelled.", running=False), gr.Button(interactive=True), gr.Button(interactive=False)

    def restore(self, memory: Any) -> tuple[Any, ...]:
        """The pair that this browser compared last, after a reload."""
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
