"""How the page calls the engine: expected errors become messages, all others a number in the log; jobs become progress."""

from __future__ import annotations

import functools
import inspect
import logging
import secrets
from collections.abc import Callable, Iterator
from typing import Any

import gradio as gr

from phys_pipeline.errors import PhysPipelineError
from phys_pipeline.web.engine.hidden_paths import without_paths
from phys_pipeline.web.engine.jobs import Cancelled

log = logging.getLogger(__name__)

GPU: dict[str, Any] = {"concurrency_id": "gpu", "concurrency_limit": 1}  # for every event that generates
CPU: dict[str, Any] = {"concurrency_id": "cpu", "concurrency_limit": 2}  # for every event that scores
PRIVATE: dict[str, Any] = {"api_visibility": "private"}


def visitor(request: gr.Request | None) -> str:
    """What tells one open page (or API client) from another."""
    return str(request.session_hash) if request is not None and request.session_hash else "anonymous"


def guarded(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with its errors turned into what a visitor may read; works for generators too."""
    if inspect.isgeneratorfunction(function):

        @functools.wraps(function)
        def steps(*arguments: Any, **keywords: Any) -> Iterator[Any]:
            try:
                yield from function(*arguments, **keywords)
            except GeneratorExit:
                raise
            except Exception as error:
                raise _readable(error) from None

        return steps

    @functools.wraps(function)
    def call(*arguments: Any, **keywords: Any) -> Any:
        try:
            return function(*arguments, **keywords)
        except Exception as error:
            raise _readable(error) from None

    return call


def _readable(error: Exception) -> gr.Error:
    """A message without paths of this server or a stack: an expected error says what to do, others are in the log."""
    if isinstance(error, gr.Error):
        return error
    if isinstance(error, Cancelled):
        return gr.Error("Cancelled.", duration=4, print_exception=False)
    if isinstance(error, PhysPipelineError):
        log.warning("refused: %s", error)
        return gr.Error(f"{without_paths(str(error))}.", duration=None, print_exception=False)
    number = secrets.token_hex(4)
    log.error("error %s", number, exc_info=error)
    return gr.Error(f"Something went wrong here (error {number}, see the server's log).", duration=None, print_exception=False)
