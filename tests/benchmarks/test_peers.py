"""Peer measures of the discrimination benchmark: known answers, and the direction in which broken motion moves them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from benchmarks.peers import (
    PEERS,
    FlowCache,
    PeerMeasures,
    difference_ratio,
    focal_frequency_distance,
    frame_difference,
    similarity_fit,
    warping_error,
)
from phys_pipeline.media import corrupt
from phys_pipeline.media.synthetic import textured_clip


def pixels(video: torch.Tensor) -> np.ndarray:
    return (video.permute(1, 2, 3, 0).numpy() * 255).round().astype(np.uint8)


def moving(frames: int = 8, **motion) -> np.ndarray:
    return pixels(textured_clip(frames, 64, 64, seed=3, **motion).video)


def broken(clip: np.ndarray, kind: str) -> np.ndarray:
    video = torch.from_numpy(clip).permute(3, 0, 1, 2).float() / 255
    return pixels(corrupt(video, kind, 1.0, seed=1))


def numbers(function, clip: np.ndarray, flows: FlowCache) -> np.ndarray:
    """The measures' values, all of which must exist."""
    found = function(clip, flows)
    assert None not in found
    return np.array(found)


def brightness(levels: list[int]) -> np.ndarray:
    """Flat frames of these grey levels."""
    return np.repeat(np.array(levels, np.uint8), 16 * 16 * 3).reshape(-1, 16, 16, 3)


@pytest.fixture(scope="module")
def flows() -> FlowCache:
    return FlowCache()


def test_temporal_differences_of_flat_frames(flows):
    ramp, swing = brightness([10, 20, 30, 40]), brightness([10, 20, 10, 20])
    for frames in (ramp, swing):
        assert frame_difference(frames, flows) == (pytest.approx(10 / 255),)
    assert difference_ratio(ramp, flows) == (pytest.approx(0, abs=1e-6),)
    assert difference_ratio(swing, flows) == (pytest.approx(2),)


def test_focal_frequency_distance_of_one_plane_wave_is_its_mean_square(flows):
    wave = 40 * np.cos(2 * np.pi * (3 * np.arange(32)[:, None] + 2 * np.arange(32)) / 32)
    frames = np.stack([np.full((32, 32, 3), 128.0), 128 + np.repeat(wave[..., None], 3, axis=2)]).round().astype(np.uint8)
    expected = np.mean((np.diff(frames.astype(float), axis=0) / 255) ** 2)  # one pair of coefficients, so every weight is 1
    assert focal_frequency_distance(frames, flows)[0] == pytest.approx(expected, rel=0.02)


def test_flow_finds_a_translation_and_what_leaves_the_frame(flows):
    clip = moving(2, velocity=(3.0, -2.0))
    shift, visible = flows.between(clip[0], clip[1])
    assert np.median(shift.reshape(-1, 2), axis=0) == pytest.approx([3, -2], abs=0.1)
    assert visible[8:-8, 8:-8].mean() > 0.99 and not visible[:, -2:].any() and not visible[:1].any()


def test_a_smooth_motion_warps_onto_itself_and_is_one_similarity(flows):
    for motion in ({"velocity": (2.0, 1.0)}, {"rotation": 0.06}, {"zoom": 0.03}):
        clip = moving(**motion)
        assert (numbers(similarity_fit, clip, flows) < 0.1).all()
        assert numbers(warping_error, clip, flows)[1] < 0.1 * np.mean((np.diff(clip / 255.0, axis=0)) ** 2)


def test_a_frame_that_stands_out_raises_the_warping_error(flows):
    clip = moving(velocity=(2.0, 1.0))
    flash = clip.copy()
    flash[4] = 255 - flash[4]
    assert (numbers(warping_error, flash, flows) > 5 * numbers(warping_error, clip, flows)).all()


def test_jitter_raises_every_measure_of_change(flows):
    clip = moving(velocity=(1.0, 0.5))
    jittered = broken(clip, "jitter")
    for measure in (frame_difference, difference_ratio, focal_frequency_distance):
        assert numbers(measure, jittered, flows) > numbers(measure, clip, flows)
    assert numbers(similarity_fit, jittered, flows)[1] > numbers(similarity_fit, clip, flows)[1] + 0.5


def test_rubber_is_no_similarity(flows):
    clip = moving(velocity=(1.0, 0.5))
    assert numbers(similarity_fit, broken(clip, "rubber"), flows)[0] > 3 * numbers(similarity_fit, clip, flows)[0]


def test_a_still_clip_has_no_change_and_nothing_to_compute_ratios_from(flows):
    still = np.repeat(moving(1), 4, axis=0)
    assert frame_difference(still, flows) == focal_frequency_distance(still, flows) == (0.0,)
    assert difference_ratio(still, flows) == (None,)
    assert similarity_fit(still, flows) == (None, None)
    assert warping_error(still, flows) == (0.0, 0.0)


def test_a_clip_played_backwards_needs_no_new_flow():
    cache, clip = FlowCache(), moving(4, velocity=(1.0, 0.0))
    warping_error(clip, cache)
    known = len(cache.estimate)
    warping_error(clip[::-1], cache)
    assert known == len(cache.estimate) == 6


def test_only_wanted_measures_are_computed(monkeypatch):
    clip = moving(3, velocity=(1.0, 0.0))
    measures = PeerMeasures()
    assert set(measures.versions()) == {name for names in PEERS for name in names}
    assert len(set(measures.versions().values())) == len(PEERS)

    def refuse(frames: np.ndarray, flows: FlowCache) -> tuple[float]:
        raise AssertionError("not asked for")

    for names in PEERS:
        if "similarity jerk" not in names:
            monkeypatch.setitem(PEERS, names, refuse)
    found = measures.scores([clip, clip[::-1]], ["similarity jerk"])
    assert list(found) == ["similarity jerk"] and len(found["similarity jerk"]) == 2
