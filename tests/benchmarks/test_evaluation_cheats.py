"""The cheats do what they are called, and a frozen copy is caught."""

from __future__ import annotations

import numpy as np
import pytest
from evaluation_clips import texture

from benchmarks.evaluation_cheats import CHEATS, PARTLY, evaluated, shown_at, table

CLIP = texture(48, 8, velocity=(2.0, 0.0))


@pytest.mark.parametrize("name", CHEATS)
def test_a_cheat_keeps_size_and_length_and_changes_the_clip(name):
    found = CHEATS[name][1](CLIP)
    assert found.shape == CLIP.shape and found.dtype == np.uint8
    assert (found != CLIP).any()


def test_times_between_frames_are_blends():
    ramp = np.array([0, 100, 200], np.uint8)[:, None, None, None] * np.ones((1, 2, 2, 3), np.uint8)
    assert shown_at(ramp, np.array([0.0, 0.5, 2.0]))[:, 0, 0, 0].tolist() == [0, 50, 200]


@pytest.mark.slow
def test_the_table_has_a_line_for_each_cheat_and_catches_the_frozen_copy(tmp_path):
    real = {f"p{seed}": (np.roll(CLIP, 7 * seed, axis=1), 8.0) for seed in range(4)}
    lines = table(evaluated(real, tmp_path))[2:]
    assert len(lines) == len(CHEATS) + 1 and lines[-1].startswith(f"| {PARTLY} |")
    assert lines[0].startswith("| frozen (first frame repeated) | yes | 0.00 ")
