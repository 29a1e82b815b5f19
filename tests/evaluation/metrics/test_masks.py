"""Physics-IQ's masks: known overlaps, a clip against itself, rates and durations, no reference."""

from __future__ import annotations

import numpy as np
import pytest
from evaluation_clips import measure

from phys_pipeline.evaluation.metrics.masks import Masks, motion_masks, overlap
from phys_pipeline.media import Video, write_video

KEYS = ("mask_mse", "spatial_iou", "spatiotemporal_iou", "weighted_spatial_iou")


def falling(frames: int = 12, column: int = 20, step: int = 6, delay: int = 0) -> np.ndarray:
    """A bright square of 24 pixels falls on a dark ground."""
    clip = np.full((frames, 128, 128, 3), 40, np.uint8)
    for index in range(frames):
        row = 10 + step * max(index - delay, 0)
        clip[index, row : row + 24, column : column + 24] = 220
    return clip


@pytest.fixture
def reference(tmp_path):
    write_video(tmp_path / "take.mp4", Video.from_frames(falling(), 8.0), crf=1)
    return tmp_path / "take.mp4"


def results(frames, reference, fps=8.0):
    return {key: result.value for key, result in measure(frames, Masks, fps=fps, reference=reference).items()}


def test_overlap():
    assert overlap(np.array([1, 1, 0, 0]), np.array([0, 1, 1, 0])) == pytest.approx(1 / 3)
    assert overlap(np.array([0.5, 0.0]), np.array([1.0, 0.0])) == 0.5
    assert overlap(np.zeros(3), np.zeros(3)) == 1


def test_masks_cover_what_moves_and_nothing_else():
    masks = motion_masks(falling())
    assert not masks[0].any() and masks[1:].any(axis=(1, 2)).all()
    where = masks.any(axis=0)
    assert not where[:, :17].any() and not where[:, 47:].any() and where[20:100, 24:40].mean() > 0.95


def test_a_clip_agrees_with_itself(reference):
    found = results(falling(), reference)
    assert found["mask_mse"] < 1e-4
    assert all(found[key] > 0.95 for key in KEYS[1:])


def test_another_place_shares_nothing_and_another_moment_shares_the_place(reference):
    elsewhere = results(falling(column=90), reference)
    assert all(elsewhere[key] < 0.15 for key in ("spatial_iou", "weighted_spatial_iou")) and elsewhere["mask_mse"] > 0.01
    late = results(falling(delay=3), reference)
    assert late["spatiotemporal_iou"] < 0.6 < late["spatial_iou"]
    still = results(np.repeat(falling(1), 12, axis=0), reference)
    assert still["spatial_iou"] == still["weighted_spatial_iou"] == 0


def test_another_rate_and_duration_is_brought_to_the_takes(reference):
    twice = np.repeat(falling(), 2, axis=0)
    found = measure(np.concatenate([twice, twice]), Masks, fps=16.0, reference=reference)["mask_mse"]
    assert found.details["frames"] == 12 and found.details["fps"] == 8.0
    assert results(twice, reference, fps=16.0)["spatial_iou"] > 0.95


def test_without_reference_or_rate_it_is_skipped(reference):
    assert {r.reason for r in measure(falling(), Masks).values()} == {"the sample has no reference"}
    assert all("frame rate" in r.reason for r in measure(falling(), Masks, fps=None, reference=reference).values())
