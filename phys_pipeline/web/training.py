"""The tab that previews, starts, watches, stops and publishes a training run."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterator
from typing import Any

import gradio as gr
import pandas

from phys_pipeline.web.component import sync_compare
from phys_pipeline.web.context import Context, status_html
from phys_pipeline.web.engine.hidden_paths import without_paths
from phys_pipeline.web.engine.jobs import Cancelled, Done, Job
from phys_pipeline.web.engine.player import player_value
from phys_pipeline.web.engine.training import CURVES, Training, configs
from phys_pipeline.web.events import PRIVATE, guarded, visitor

_EVERY = 2.0  # seconds between looks at a run
_COMMANDS: dict[str, Any] = {"concurrency_id": "commands", "concurrency_limit": 1, "show_progress": "hidden", **PRIVATE}


class TrainingTab:
    """Components and events of the tab."""

    def __init__(self, context: Context) -> None:
        self.context, self.training = context, Training(context.settings)
        self.restored: list[Any] = []
        names = configs()
        if not context.settings.local or not names:
            why = (
                "This server offers no training: start the app with `--local-files` in a checkout of the repository to allow it."
            )
            gr.Markdown(why)
            return
        first = "tiny.yaml" if "tiny.yaml" in names else names[0]
        with gr.Row():
            self.config = gr.Dropdown(names, value=first, label="Configuration", elem_id="training-config")
            self.lines = gr.Textbox(
                label="Settings that replace the file's, one a line", placeholder="max_train_steps=60\nmotion_weight=0.1",
                lines=3,
                elem_id="training-lines",
            )  # fmt: skip
        with gr.Row():
            inspect = gr.Button("Look at the data", elem_id="training-inspect")
            dry = gr.Button("Dry run", elem_id="training-dry")
            start = gr.Button("Start", variant="primary", elem_id="training-start")
            stop = gr.Button("Stop", variant="stop", elem_id="training-stop")
            resume = gr.Button("Resume", elem_id="training-resume")
        self.status = gr.HTML(status_html("No training run yet.", running=False), elem_id="training-status")
        self.report = gr.Textbox(
            label="Report", lines=6, max_lines=24, interactive=False, visible=False, elem_id="training-report"
        )
        self.sheet = gr.HTML(elem_id="training-sheet")
        self.plots = {
            name: gr.LinePlot(
                pandas.DataFrame({"step": [], name: []}), x="step", y=name, height=190, visible=False, elem_id=f"training-{name}"
            ) for name in CURVES
        }  # fmt: skip
        self.player = sync_compare(elem_id="training-player", visible=False)
        self.tail = gr.Textbox(label="What the run says", lines=5, max_lines=14, interactive=False, elem_id="training-tail")
        with gr.Accordion("Publish the adapter", open=False):
            with gr.Row():
                repository = gr.Textbox(label="Repository on the Hub, OWNER/NAME", elem_id="training-repository")
                private = gr.Checkbox(True, label="Private")
            with gr.Row():
                check = gr.Button("Dry run", elem_id="training-publish-dry")
                publish = gr.Button("Publish", variant="stop", elem_id="training-publish")
        watched = [self.status, *self.plots.values(), self.player, self.tail]
        told = [self.status, self.report, self.sheet]
        inspect.click(guarded(self.inspect), [self.config, self.lines], told, **_COMMANDS)
        dry.click(guarded(self.dry_run), [self.config, self.lines], told, **_COMMANDS)
        check.click(guarded(self.publish_dry), [repository, private], told, **_COMMANDS)
        publish.click(guarded(self.publish), [repository, private], told, **_COMMANDS)
        timer = gr.Timer(_EVERY, active=False)
        start.click(guarded(self.start), [self.config, self.lines], [self.status, timer], show_progress="hidden", **PRIVATE)
        resume.click(guarded(self.resume), [self.config, self.lines], [self.status, timer], show_progress="hidden", **PRIVATE)
        stop.click(guarded(self.stop), None, [self.status], show_progress="hidden", **PRIVATE)
        timer.tick(self.watch, None, [*watched, timer], show_progress="hidden", **PRIVATE)
        self.restored = [*watched, timer]

    def inspect(self, config: str, lines: str, request: gr.Request) -> Iterator[Any]:
        """The data report and its sheet of pictures."""
        for now, result in self._followed("reading the clips", request, lambda job: self.training.inspect(config, lines, job)):
            text, sheet = result if result is not None else ("", None)
            yield self._told(now, text, sheet)

    def dry_run(self, config: str, lines: str, request: gr.Request) -> Iterator[Any]:
        """What a run would do."""
        for now, result in self._followed("checking the run", request, lambda job: self.training.dry_run(config, lines, job)):
            yield self._told(now, result or "", None)

    def publish_dry(self, repository: str, private: bool, request: gr.Request) -> Iterator[Any]:
        """What publishing would send."""
        yield from self._published(repository, private, True, request)

    def publish(self, repository: str, private: bool, request: gr.Request) -> Iterator[Any]:
        """Publish, after a dry run of the same folder and repository."""
        yield from self._published(repository, private, False, request)

    def _published(self, repository: str, private: bool, dry: bool, request: gr.Request) -> Iterator[Any]:
        def work(job: Job) -> str:
            return self.training.publish(repository, private, dry, job)

        for now, result in self._followed("checking what would be sent" if dry else "publishing", request, work):
            yield self._told(now, result or "", None)

    def start(self, config: str, lines: str) -> tuple[Any, Any]:
        """Start a run in a process of its own."""
        self.training.start(config, lines)
        return status_html("Running."), gr.Timer(active=True)

    def resume(self, config: str, lines: str) -> tuple[Any, Any]:
        """Go on from the last checkpoint of the last run, or of the output_dir that is named."""
        self.training.start(config, lines, resume=True)
        return status_html("Running."), gr.Timer(active=True)

    def stop(self) -> str:
        """Interrupt the run; a second press ends it hard."""
        if self.training.is_running and self.training.told_to_stop:
            self.training.end()
        return status_html(self.training.stop(), running=False)

    def watch(self) -> tuple[Any, ...]:
        """Curves, samples and messages of the run as they are now."""
        text, records, tail = self.training.state()
        running = self.training.is_running
        plots = []
        for name in CURVES:
            known = [(record["step"], record[name]) for record in records if record.get(name) is not None]
            frame = pandas.DataFrame(known, columns=["step", name])
            plots.append(gr.LinePlot(value=frame, visible=len(known) > 1))
        found = self.training.samples()
        player = gr.skip()
        if found is not None:
            base, newest, about = found
            value = player_value(
                {"left": base, "right": newest}, {"left": None, "right": None}, labels=("Base model", about), about=about
            )
            player = gr.HTML(value=value, visible=True)
        return (status_html(text, running), *plots, player, without_paths(tail), gr.Timer(active=running))

    def _followed(self, what: str, request: gr.Request, work: Callable[[Job], Any]) -> Iterator[tuple[str, Any]]:
        """``(status, None)`` at once, then ``(status, result)``."""
        yield f"{what} ...", None
        try:
            with self.context.jobs.started(visitor(request)) as job:
                for event in job.follow(work):
                    if isinstance(event, Done):
                        yield "Done.", event.value
        except Cancelled:
            yield "Cancelled.", None

    def _told(self, now: str, text: str, sheet: bytes | None) -> tuple[Any, Any, Any]:
        picture = ""
        if sheet is not None:
            data = b64encode(sheet).decode()
            picture = f'<img alt="First frames of the clips" style="max-width:100%" src="data:image/png;base64,{data}">'
        return (
            status_html(now, running=not now.endswith(("Done.", "Cancelled."))),
            gr.Textbox(value=without_paths(text), visible=bool(text)),
            picture,
        )
