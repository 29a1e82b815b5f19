"""What the tabs have in common whose button makes one run: progress, cancelling, and the last results after a reload."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import gradio as gr

from phys_pipeline.errors import DataError
from phys_pipeline.web.context import Context, status_html
from phys_pipeline.web.engine.jobs import Cancelled, Done, Job, Progress
from phys_pipeline.web.engine.runs import Run
from phys_pipeline.web.events import PRIVATE, visitor


class JobTab:
    """The buttons, the status line and the browser's memory of a tab. A tab says what it shows of a run.

    Args:
        name: begins the ids of the tab's elements.
        label: of the button that starts the job.
    """

    cancelled = "Cancelled."

    def __init__(self, context: Context, name: str, label: str) -> None:
        self.context = context
        with gr.Row():
            self.start = gr.Button(label, variant="primary", elem_id=f"{name}-start", scale=3)
            self.stop = gr.Button("Cancel", variant="stop", interactive=False, elem_id=f"{name}-stop", scale=1)
        self.status = gr.HTML(status_html("Ready.", running=False), elem_id=f"{name}-status")
        # Outside of the tab: Gradio reads it when its tab is opened, which is after the page's load event.
        self.memory = gr.BrowserState(None, storage_key=f"phys-pipeline-{name}", render=False)
        self.shown: list[Any] = []  # the components that show a run

    def show(self, run: Run, memory: Mapping[str, Any]) -> tuple[Any, ...]:
        """Values of ``shown`` for a run; ``memory`` is what :meth:`remembered` made of it."""
        raise NotImplementedError

    def remembered(self, made: Any) -> dict[str, Any]:
        """What the browser remembers of a result: its run's id, and what else :meth:`show` needs."""
        return {"run": made.id}

    @property
    def outputs(self) -> list[Any]:
        """Outputs of the event that starts a job."""
        return [self.status, self.start, self.stop, *self.shown, self.memory]

    @property
    def restored(self) -> list[Any]:
        """Outputs of :meth:`restore`."""
        return [self.status, *self.shown]

    def make_cancelling(self) -> None:
        """Let the second button stop the job.

        The job's own event says when it has stopped. With Gradio's ``cancels`` a progress that was under way could come after
        that, and stay; and an event that was just at work could end as an error.
        """
        self.stop.click(self.cancel, None, None, queue=False, **PRIVATE)

    def follow(self, first: str, request: gr.Request, work: Callable[[Job], Any]) -> Iterator[Any]:
        """Outputs while a job of the visitor does ``work``: its progress, what is ready meanwhile, and its result."""
        try:
            with self.context.jobs.started(visitor(request)) as job:
                yield self._state(first)
                for event in job.follow(work):
                    if isinstance(event, Progress):
                        yield self._state(event)
                    elif isinstance(event, Done):
                        memory = self.remembered(event.value)
                    else:
                        yield self._state("scored a video", self.remembered(event))
            yield self._state("Done.", memory, running=False)
        except Cancelled:
            yield self._state(self.cancelled, running=False)
        except Exception:
            yield self._state("Stopped by an error.", running=False)
            raise

    def cancel(self, request: gr.Request) -> None:
        """Tell the visitor's job to stop, which it does after its current step."""
        if self.context.jobs.cancel(visitor(request)):
            gr.Info("Stops after the current step.", duration=4)

    def restore(self, memory: Any) -> tuple[Any, ...]:
        """The results that this browser saw last, after a reload; for the page's load event."""
        try:
            run = self.context.runs.open((memory or {}).get("run"))
            return (status_html("Your last results.", running=False), *self.show(run, memory))
        except (DataError, KeyError, TypeError, ValueError, AttributeError):
            return (gr.skip(),) * len(self.restored)

    def _state(self, now: Progress | str, memory: dict[str, Any] | None = None, running: bool = True) -> tuple[Any, ...]:
        """All outputs: where the job is, and the run where something of it has changed."""
        shown: tuple[Any, ...] = (gr.skip(),) * len(self.shown)
        if memory is not None:
            shown = self.show(self.context.runs.open(memory["run"]), memory)
        buttons = gr.Button(interactive=not running), gr.Button(interactive=running)
        return (status_html(now, running), *buttons, *shown, gr.skip() if memory is None else memory)
