"""Flicker: known answers, and that brightness flicker tells a lamp from motion."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from evaluation_clips import measure, texture

from phys_pipeline.evaluation.metrics.flicker import Flicker, brightness_flicker, brightness_steps
from phys_pipeline.media import corrupt


def flat(levels):
    return np.repeat(np.array(levels, np.uint8), 16 * 16 * 3).reshape(-1, 16, 16, 3)


def test_temporal_flicker_of_flat_frames():
    assert measure(flat([10, 61, 10]), Flicker)["temporal_flicker"].value == pytest.approx(0.8)
    assert measure(flat([10, 10, 10]), Flicker)["temporal_flicker"].value == 1


def test_a_fade_is_no_flicker_and_an_alternation_is_its_own_size():
    fade = (100 * 1.04 ** np.arange(12)).round()
    swing = [100, 110] * 6
    found = {
        name: measure(flat(levels), Flicker)["brightness_flicker"].value for name, levels in (("fade", fade), ("swing", swing))
    }
    assert found["fade"] < 0.6  # rounding to levels
    assert found["swing"] == pytest.approx(100 * np.log(112 / 102), rel=0.05)


def test_steps_over_a_cut_do_not_count():
    steps = np.array([0.0, 0.0, 0.9, 0.0, 0.0])
    value, series = brightness_flicker(steps, [3])
    assert value == 0 and series == [None, 0, None, None, 0]
    assert brightness_flicker(steps, [])[0] > 10


@pytest.mark.parametrize("motion", [{"velocity": (4.0, 2.0)}, {"rotation": 0.12}, {"zoom": 0.04}])
def test_flicker_raises_it_and_motion_does_not(motion):
    clip = texture(frames=16, **motion)
    video = torch.from_numpy(clip).permute(3, 0, 1, 2).float() / 255
    broken = {
        kind: (corrupt(video, kind, 1.0, seed=1).permute(1, 2, 3, 0).numpy() * 255).round().astype(np.uint8)
        for kind in ("flicker", "jitter")
    }
    clean = measure(clip, Flicker)["brightness_flicker"].value
    assert clean < 2
    assert measure(broken["flicker"], Flicker)["brightness_flicker"].value > 10
    assert measure(broken["jitter"], Flicker)["brightness_flicker"].value < 5


def test_what_moves_from_patch_to_patch_cancels():
    frames = np.full((6, 64, 64, 3), 60, np.uint8)
    for index in range(6):
        frames[index, 20:40, 4 + 8 * index : 20 + 8 * index] = 240
    assert np.abs(brightness_steps(frames)).max() == 0
