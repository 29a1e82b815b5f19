"""Shared setup: the repository root and tests/ are importable, one thread is enough for tiny tensors."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
for folder in (ROOT, ROOT / "tests"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_OFFLINE", "1")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

# Real ComfyUI, which is built elsewhere first
collect_ignore = [] if "COMFY_CACHE" in os.environ else ["comfy"]


def pytest_report_header():
    return "tests/comfy is left out: `make test-comfy` builds ComfyUI and runs it" if collect_ignore else None


@pytest.fixture
def fresh_accelerate_state(monkeypatch):
    """accelerate keeps its precision for the life of a process; here many runs share one. On the CPU, for equal bits."""
    from accelerate.state import AcceleratorState

    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    yield
    AcceleratorState._reset_state(True)
