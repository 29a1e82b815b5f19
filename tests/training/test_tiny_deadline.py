"""A deadline passes when its minutes are over, and never without any."""

from __future__ import annotations

import pytest

from training import tiny_deadline
from training.tiny_deadline import Deadline


def test_a_deadline_passes_when_its_minutes_are_over(monkeypatch: pytest.MonkeyPatch):
    now = [100.0]
    monkeypatch.setattr(tiny_deadline.time, "monotonic", lambda: now[0])
    deadline, endless = Deadline(2), Deadline()
    now[0] = 219.0
    assert not deadline.passed
    now[0] = 220.0
    assert deadline.passed and not endless.passed
