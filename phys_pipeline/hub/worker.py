"""Calls of the Hub in a process of their own, which can be ended: the client has no time limit for most calls, and uploads and
downloads by Xet can stall for ever."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from phys_pipeline.errors import HubError
from phys_pipeline.hub.trouble import TRANSIENT

CALL_SECONDS = 90.0
ATTEMPTS = 3
MOST_WAIT = 30.0  # seconds between attempts; a longer wait is left to the user
_LEAST_BYTES_PER_SECOND = 250_000

Perform = Callable[[str, Mapping[str, Any], float], Any]  # operation, arguments, seconds


def transfer_seconds(size: int) -> float:
    """How long a transfer of ``size`` bytes may take: two minutes, and what a slow line needs."""
    return 120.0 + size / _LEAST_BYTES_PER_SECOND


class Hub:
    """Calls of the Hub with a deadline and bounded retries. Use it as a context manager.

    ``perform`` stands in for the process, for tests.
    """

    def __init__(self, perform: Perform | None = None) -> None:
        self._worker = _Worker()
        self._perform = perform or self._worker.perform
        self._cancelled = False

    def __enter__(self) -> Hub:
        return self

    def __exit__(self, *_: object) -> None:
        self._worker.end()

    def call(self, operation: str, *, seconds: float = CALL_SECONDS, attempts: int = ATTEMPTS, **arguments: Any) -> Any:
        """Run an operation of :mod:`phys_pipeline.hub.operations`; again, a little later, after an error that may pass.

        Raises HubError. One that ran into its deadline was ended; it is tried once more without Xet.
        """
        for attempt in range(1, attempts + 1):
            try:
                if not self._cancelled:
                    return self._perform(operation, arguments, seconds)
            except HubError as error:
                if self._cancelled:
                    break
                wait = error.wait or 2.0**attempt
                last = attempt == attempts or (error.kind == "timeout" and attempt > 1)
                if error.kind not in TRANSIENT or wait > MOST_WAIT or last:
                    raise
                if error.kind == "timeout":
                    self.leave_xet()
                else:
                    time.sleep(wait)
        raise HubError(f"`{operation}` was cancelled", "cancelled")

    def cancel(self) -> None:
        """End, from another thread, the call that goes on; it and later ones raise HubError, kind "cancelled"."""
        self._cancelled = True
        self._worker.end()

    def leave_xet(self) -> None:
        """Go on with plain HTTP transfers."""
        self._worker.end()
        self._worker.environment["HF_HUB_DISABLE_XET"] = "1"


class _Worker:
    """The process, started at the first call and again after it was ended."""

    def __init__(self) -> None:
        self.environment: dict[str, str] = {}
        self._process: subprocess.Popen[str] | None = None
        self._answers: queue.Queue[str] = queue.Queue()

    def perform(self, operation: str, arguments: Mapping[str, Any], seconds: float) -> Any:
        process = self._started()
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps([operation, dict(arguments)]) + "\n")
            process.stdin.flush()
            line = self._answers.get(timeout=seconds)
        except queue.Empty:
            self.end()
            what = arguments.get("repo_id", "it")
            raise HubError(f"the Hub did not finish `{operation}` of {what} within {seconds:.0f} seconds: run the same command "
                           "again, on a slow line with a longer --timeout", "timeout") from None  # fmt: skip
        except OSError:
            line = ""
        except BaseException:  # Ctrl-C
            self.end()
            raise
        if not line:
            self.end()
            raise HubError("the process that talks to the Hub died: check the memory, then run the same command again", "network")
        answer = json.loads(line)
        if "error" in answer:
            raise HubError(*answer["error"])
        return answer["result"]

    def end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None:
            package = str(Path(__file__).resolve().parents[2])
            environment = {**os.environ, "HF_HUB_VERBOSITY": "error", **self.environment}
            environment["PYTHONPATH"] = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")]))
            self._process = subprocess.Popen(
                [sys.executable, "-m", "phys_pipeline.hub"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                env=environment,
            )  # fmt: skip
            self._answers = queue.Queue()
            threading.Thread(target=_read, args=(self._process.stdout, self._answers), daemon=True).start()
        return self._process


def _read(lines: Any, answers: queue.Queue[str]) -> None:
    """Put the process's answers into a queue, which can be waited for; an empty one says that it has ended."""
    for line in lines:
        answers.put(line)
    answers.put("")
