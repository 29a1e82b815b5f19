"""Long work in a thread that tells its progress and stops when it is told to; the device has one user at a time."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from phys_pipeline.errors import ConfigError

T = TypeVar("T")
_TICK = 0.1  # seconds between looks at the cancel flag
_DEVICE = threading.Lock()
_USER = [""]  # who has the device, in words


class Cancelled(Exception):
    """The job was told to stop."""


@dataclass(frozen=True)
class Progress:
    """Where a job is: ``done`` of ``total`` steps of ``stage``; ``share`` of the whole and the seconds left, None if unknown."""

    stage: str
    done: int = 0
    total: int = 0
    share: float = 0.0
    seconds_left: float | None = None

    def __str__(self) -> str:
        text = self.stage + (f", step {self.done} of {self.total}" if self.total else "")
        if self.seconds_left is not None:
            return f"{text}; about {spoken_seconds(self.seconds_left)} left"
        return f"{text}; how long it takes is known after the first step" if self.total else text


@dataclass(frozen=True)
class Done(Generic[T]):
    """The last thing that a job gives."""

    value: T


def spoken_seconds(seconds: float) -> str:
    """ "8 s", "3 min", "2 h 10 min"."""
    whole = max(1, round(seconds))
    if whole < 90:
        return f"{whole} s"
    minutes = round(whole / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


class Job:
    """One run of some work. The work calls :meth:`report` often, which raises Cancelled once :meth:`cancel` was called.

    ``steps`` counts the reports of a step that was done, so that others can see that work has stopped.
    """

    def __init__(self) -> None:
        self._cancelled = threading.Event()
        self._emitted: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._planned, self._before, self._counted_from = 0, 0, time.monotonic()
        self._expected: float | None = None
        self.finished = threading.Event()
        self.steps = 0

    def cancel(self) -> None:
        self._cancelled.set()

    @property
    def is_cancelled(self) -> bool:
        return self._cancelled.is_set()

    def check(self) -> None:
        """Raise Cancelled if the job was told to stop."""
        if self._cancelled.is_set():
            raise Cancelled

    def plan(self, steps: int, seconds: float | None = None) -> None:
        """Say how many equal steps will be reported from now on: makes shares and the remaining time known.

        ``seconds`` is what earlier work of this kind took; it is told until the first step was measured.
        """
        self._planned, self._expected, self._before = steps, seconds, self.steps
        self._counted_from = time.monotonic()

    def report(self, stage: str, done: int = 0, total: int = 0) -> None:
        """Tell the progress; a stage whose steps are counted reports ``done`` from 0 to ``total``."""
        self.check()
        if done:
            self.steps += 1
        share, left = 0.0, None
        if self._planned and total:
            counted = self.steps - self._before
            share = min(1.0, counted / self._planned)
            left = self._expected
            if counted:
                left = (time.monotonic() - self._counted_from) / counted * (self._planned - counted)
        self.emit(Progress(stage, done, total, share, left))

    def emit(self, value: Any) -> None:
        """Hand something to whoever follows the job."""
        self._emitted.put(value)

    @contextmanager
    def device(self, user: str = "somebody else's job") -> Iterator[None]:
        """Own the accelerator (or the CPU's time); waits until ``user``, as others read it, has let go of it."""
        told = None
        while not _DEVICE.acquire(timeout=_TICK):
            if told != (told := _USER[0]):
                self.report(f"waiting for {told}")
            self.check()
        _USER[0] = user
        try:
            yield
        finally:
            _DEVICE.release()

    def follow(self, work: Callable[[Job], T]) -> Iterator[Any]:
        """Run ``work`` in a thread; gives what it emits, then :class:`Done`. Raises what it raises.

        Ending the iteration early cancels the job; the thread then ends at its next report.
        """
        outcome: dict[str, Any] = {}

        def run() -> None:
            try:
                outcome["value"] = work(self)
            except BaseException as error:
                outcome["error"] = error
            finally:
                self.finished.set()

        thread = threading.Thread(target=run, name="app-job", daemon=True)
        thread.start()
        try:
            while not (self.finished.is_set() and self._emitted.empty()):
                try:
                    yield self._emitted.get(timeout=_TICK)
                except queue.Empty:
                    continue
        finally:
            if not self.finished.is_set():
                self.cancel()
        thread.join()
        if "error" in outcome:
            raise outcome["error"]
        yield Done(outcome["value"])


class Jobs:
    """At most one running job for each visitor, so that nobody fills the queue alone."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[str, Job] = {}

    @contextmanager
    def started(self, visitor: str) -> Iterator[Job]:
        """A new job of this visitor. Raises ConfigError while another one runs and was not cancelled."""
        job = Job()
        with self._lock:
            other = self._running.get(visitor)
            if other is not None and not other.is_cancelled:
                raise ConfigError("a job of yours is still running: wait for it, or cancel it first")
            self._running[visitor] = job
        try:
            yield job
        finally:
            if not job.finished.is_set():
                job.cancel()
            with self._lock:
                if self._running.get(visitor) is job:
                    del self._running[visitor]

    def cancel(self, visitor: str) -> bool:
        """Tell the visitor's job to stop; False if there is none."""
        with self._lock:
            job = self._running.get(visitor)
        if job is not None:
            job.cancel()
        return job is not None

    def running(self) -> list[Job]:
        """All running jobs."""
        with self._lock:
            return list(self._running.values())
