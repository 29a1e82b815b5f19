"""Fake metrics in place of the real ones, and small videos."""

from __future__ import annotations

import numpy as np
import pytest

from phys_pipeline.evaluation import evaluator, measuring, registry
from phys_pipeline.evaluation.sample import VideoSample


@pytest.fixture
def fakes(monkeypatch, tmp_path):
    """The registry holds the fake metrics; the folder has their calls."""
    from evaluation import fake_metrics

    registry.infos.cache_clear()
    monkeypatch.setattr(registry, "CLASSES", fake_metrics.CLASSES)
    monkeypatch.setattr(evaluator, "flow_name", lambda settings: "none")
    monkeypatch.setattr(measuring, "flow_estimator", lambda settings: object())
    monkeypatch.setenv("PHYS_TEST_CALLS", str(tmp_path))
    yield tmp_path
    registry.infos.cache_clear()


@pytest.fixture
def clip():
    """Makes a sample: eight frames of 8x8, grey level growing from ``level``."""

    def make(identity="a", model="m", level=100, frames=8, **more):
        pixels = np.broadcast_to((level + np.arange(frames, dtype=np.uint8))[:, None, None, None], (frames, 8, 8, 3)).copy()
        return VideoSample(identity, model, frames=pixels, fps=8.0, **more)

    return make
