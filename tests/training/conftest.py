"""What every test that trains in this process needs."""

import pytest


@pytest.fixture
def fresh_accelerate_state(monkeypatch):
    """accelerate keeps its precision for the life of a process; here many runs share one. On the CPU, for equal bits."""
    from accelerate.state import AcceleratorState

    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    yield
    AcceleratorState._reset_state(True)
