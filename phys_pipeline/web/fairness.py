"""No address may fill the queue alone."""

from __future__ import annotations

from typing import Any

import gradio as gr

from phys_pipeline.errors import ConfigError
from phys_pipeline.web.events import CPU, GPU

MOST_PLACES = 12  # of one address, its running jobs included
_COUNTED = (GPU["concurrency_id"], CPU["concurrency_id"])


def one_of_many(request: gr.Request, *given: Any) -> Any:
    """``validator=`` of an event with jobs: runs before the event takes its place in the queue.

    It counts addresses, because a client names its session itself. Raises ConfigError when the address has its places already.
    """
    queue = request.request.app.get_blocks()._queue  # Gradio has no public way to look at it
    waiting = [event for line in list(queue.event_queue_per_concurrency_id.values()) for event in list(line.queue)]
    running = [event for events in list(queue.active_jobs) if events for event in events]
    held = [
        event for event in waiting + running if event.concurrency_id in _COUNTED and _address(event.request) == _address(request)
    ]
    if len(held) >= MOST_PLACES:
        raise ConfigError(f"{MOST_PLACES} jobs from your address wait or run already: try again when some are done")
    return [gr.validate(True, "")] * len(given)


def _address(request: Any) -> str:
    return str(request.client.host) if request.client is not None else ""
