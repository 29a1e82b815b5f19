"""Cuts, repeated frames and returns: clips made to have exactly so many."""

from __future__ import annotations

import numpy as np
import pytest
from evaluation_clips import measure, texture

from phys_pipeline.evaluation.metrics.breaks import Breaks, longest_run, repeated, returns
from phys_pipeline.media import Video, read_video, write_video
from phys_pipeline.media.cuts import thumbnails

MOVING = texture(frames=16, velocity=(2.0, 1.0))


def test_a_smooth_clip_has_no_break():
    found = measure(MOVING, Breaks)
    assert [found[key].value for key in ("cuts", "freezes", "loop")] == [0, 0, 0]
    assert found["loop"].details == {"kind": "none", "period": None, "period_s": None}


def test_cuts_are_counted_and_timed():
    other = 255 - texture(frames=8, velocity=(1.0, 0.0), rotation=0.02)
    found = measure(np.concatenate([MOVING[:8], other, MOVING[8:]]), Breaks, fps=8.0)["cuts"]
    assert found.value == 2 and found.details == {"frames": [8, 16], "seconds": [1.0, 2.0]}


def test_repeated_frames_are_found_through_a_codec(tmp_path):
    held = MOVING[[0, 1, 2, 3, 3, 3, 3, 4, 5, 6, 6, 7, 8, 9, 10, 11]]
    found = measure(held, Breaks, fps=8.0)["freezes"]
    assert found.value == pytest.approx(4 / 15) and found.details == {"longest_run": 3, "longest_run_s": 3 / 8}
    assert sum(found.per_frame) == 4
    write_video(tmp_path / "a.mp4", Video.from_frames(held, 8.0))
    assert repeated(read_video(tmp_path / "a.mp4").frames) == [flag == 1 for flag in found.per_frame]


def test_a_frozen_clip_is_all_repeats_and_slow_motion_is_none():
    assert measure(np.repeat(MOVING[:1], 6, axis=0), Breaks)["freezes"].value == 1
    assert not any(repeated(texture(frames=16, velocity=(0.1, 0.0))))
    noisy = np.clip(MOVING[:1] + np.random.default_rng(0).normal(0, 2, (6, 64, 64, 3)), 0, 255).astype(np.uint8)
    assert not any(repeated(noisy))


def test_longest_run():
    assert longest_run([True, True, False, True, True, True]) == 3 and longest_run([False]) == longest_run([]) == 0


def test_loops_have_their_period_and_back_and_forth_has_none():
    loop = returns(thumbnails(np.concatenate([MOVING[:6]] * 3)))
    assert (loop.kind, loop.period) == ("loop", 6) and loop.earlier[:6] == [None] * 6 and None not in loop.earlier[6:]
    swing = returns(thumbnails(np.concatenate([MOVING[:9], MOVING[7::-1]])))
    assert swing.kind == "back and forth" and swing.period is None
    found = measure(np.concatenate([MOVING[:6]] * 3), Breaks, fps=12.0)["loop"]
    assert found.value == pytest.approx(12 / 18) and found.details["period_s"] == 0.5


def test_stillness_and_noise_do_not_return():
    noisy = np.clip(MOVING[:1] + np.random.default_rng(0).normal(0, 2, (8, 64, 64, 3)), 0, 255).astype(np.uint8)
    assert returns(thumbnails(noisy)).kind == returns(thumbnails(np.repeat(MOVING[:1], 8, axis=0))).kind == "none"
    assert returns(thumbnails(MOVING[[0, 0, 0, 3, 3, 3, 6, 6]])).kind == "none"  # held, not left
