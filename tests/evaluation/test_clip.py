"""Pairs of frames: flow on first use, once, and none where a frame is repeated."""

from __future__ import annotations

import numpy as np
import pytest
from evaluation_clips import texture

from phys_pipeline.evaluation.clip import FramePair


class CountingFlow:
    name = "counting"

    def __init__(self):
        self.calls = 0

    def __call__(self, first, second):
        self.calls += 1
        return np.full((*first.shape[:2], 2), float(self.calls), np.float32)


def test_each_flow_is_estimated_once_and_only_when_it_is_wanted():
    pytest.importorskip("cv2")
    estimator = CountingFlow()
    pair = FramePair(0, *texture(frames=2, velocity=(1.0, 0.0)), estimator)
    assert estimator.calls == 0
    assert pair.forward.max() == 1 and pair.forward.max() == 1 and estimator.calls == 1
    assert pair.visible.shape == (64, 64) and estimator.calls == 2


def test_a_repeated_frame_has_no_flow_and_costs_none():
    frame, estimator = texture(frames=1)[0], CountingFlow()
    pair = FramePair(0, frame, frame.copy(), estimator)
    assert not pair.forward.any() and not pair.backward.any() and estimator.calls == 0
    assert pair.forward.shape == (64, 64, 2) and pair.forward.dtype == np.float32
