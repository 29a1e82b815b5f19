"""A time budget for a run that is to go on later: everything is saved, then it stops."""

from __future__ import annotations

import time


class OutOfTime(Exception):
    """The budget is used up and the state saved: resume to go on."""


class Deadline:
    """``minutes`` from now; None: no limit."""

    def __init__(self, minutes: float | None = None) -> None:
        self._end = None if minutes is None else time.monotonic() + 60 * minutes

    @property
    def passed(self) -> bool:
        return self._end is not None and time.monotonic() >= self._end
