"""Synthetic clips: the stated truth is what the pixels do."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from phys_pipeline.errors import ConfigError
from phys_pipeline.media.synthetic import (
    COLOURS,
    MOTIONS,
    REVERSED,
    SHAPES,
    MotionTruth,
    all_captions,
    is_visible_motion,
    make_clip,
    object_clip,
    textured_clip,
    write_caption,
)

GREY = 0.4


def cover(clip_video: torch.Tensor, colour: str) -> torch.Tensor:
    """Share of each pixel that the object covers, (T, H, W), from an object over flat grey."""
    paint = torch.tensor(COLOURS[colour])[:, None, None, None]
    along = paint - GREY
    return ((clip_video - GREY) * along).sum(0) / (along**2).sum()


def centroid(mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:  # (T, H, W)
    y, x = torch.meshgrid(torch.arange(mask.shape[1]), torch.arange(mask.shape[2]), indexing="ij")
    area = mask.sum((1, 2))
    return (mask * x).sum((1, 2)) / area, (mask * y).sum((1, 2)) / area


def test_equal_seeds_give_equal_clips_and_other_seeds_others():
    first, again, other = make_clip(3), make_clip(3), make_clip(4)
    assert torch.equal(first.video, again.video) and first.caption == again.caption and first.truth == again.truth
    assert not torch.equal(first.video, other.video)


@pytest.mark.parametrize(("frames", "height", "width"), [(16, 64, 64), (1, 64, 64), (9, 48, 80), (5, 33, 31)])
def test_shape_range_and_dtype(frames: int, height: int, width: int):
    for seed in range(12):
        video = make_clip(seed, frames, height, width).video
        assert video.shape == (3, frames, height, width) and video.dtype == torch.float32 and video.is_contiguous()
        assert video.min() >= 0 and video.max() <= 1


def test_sub_pixel_motion_moves_the_centroid_by_the_true_velocity():
    clip = object_clip("circle", "red", velocity=(0.3, -0.7), centre=(20.25, 45.5), radius=9, texture=0.0)
    x, y = centroid(cover(clip.video, "red"))
    t = torch.arange(16)
    assert torch.allclose(x, 20.25 + 0.3 * t, atol=0.03) and torch.allclose(y, 45.5 - 0.7 * t, atol=0.03)
    assert clip.truth == MotionTruth(0.3, -0.7, 0.0, 0.0)


@pytest.mark.parametrize("shape", SHAPES)
def test_zoom_scales_the_area_exponentially(shape: str):
    clip = object_clip(shape, "green", zoom=0.04, radius=8, texture=0.0)
    area = cover(clip.video, "green").sum((1, 2))
    rate = torch.log(area[-1] / area[0]) / (2 * 15)
    assert rate.item() == pytest.approx(0.04, abs=0.002)


def test_positive_rotation_is_clockwise_on_screen():
    clip = object_clip("triangle", "blue", rotation=math.pi / 2, frames=2, radius=14, texture=0.0)
    before, after = cover(clip.video, "blue")
    assert torch.allclose(torch.rot90(before, k=-1), after, atol=1e-4)  # rot90 with k=-1 turns clockwise
    assert not torch.allclose(torch.rot90(before, k=1), after, atol=0.1)


@pytest.mark.parametrize(("shape", "fold"), [("square", 4), ("bar", 2), ("triangle", 3), ("star", 5)])
def test_a_shape_looks_the_same_after_its_share_of_a_turn_and_differs_halfway(shape: str, fold: int):
    clip = object_clip(shape, rotation=math.pi / fold, frames=3, radius=13, texture=0.0)
    start, half, full = cover(clip.video, "red")
    assert (start - full).abs().max() < 0.02
    assert (start - half).abs().max() > 0.9


@pytest.mark.parametrize("velocity", [(1.0, 0.0), (0.0, -1.0), (-2.0, 3.0)])
def test_texture_moves_by_whole_pixels_exactly_with_no_border(velocity: tuple[float, float]):
    video = textured_clip(4, 48, 56, velocity=velocity, seed=5).video
    dx, dy = (int(v) for v in velocity)
    now = video[:, 1:, max(dy, 0) : 48 + min(dy, 0), max(dx, 0) : 56 + min(dx, 0)]
    before = video[:, :-1, max(-dy, 0) : 48 + min(-dy, 0), max(-dx, 0) : 56 + min(-dx, 0)]
    assert torch.allclose(now, before, atol=2e-4)


def test_texture_quarter_turn_is_clockwise():
    video = textured_clip(2, 40, 40, rotation=math.pi / 2, seed=1).video
    assert torch.allclose(torch.rot90(video[:, 0], k=-1, dims=(-2, -1)), video[:, 1], atol=2e-4)


def test_texture_zoom_by_three_spreads_the_pixels_from_the_centre():
    video = textured_clip(2, 33, 33, zoom=math.log(3.0), seed=2).video  # the centre is a pixel: 16 + 3 * k shows 16 + k
    assert torch.allclose(video[:, 0, 11:22, 11:22], video[:, 1, 1:32:3, 1:32:3], atol=2e-4)


def test_texture_has_falling_spectrum_and_contrast_everywhere():
    video = textured_clip(1, 64, 64, seed=3).video
    assert all(video[:, 0, i : i + 16, j : j + 16].std() > 0.02 for i in range(0, 64, 16) for j in range(0, 64, 16))
    power = torch.fft.rfft2(video[0, 0] - video[0, 0].mean()).abs() ** 2
    assert power[1:5, 1:5].mean() > 10 * power[12:16, 12:16].mean()


@pytest.mark.parametrize("motion", MOTIONS)
def test_the_object_stays_in_the_picture_and_moves_as_the_caption_says(motion: str):
    for seed in range(15):
        clip = make_clip(seed, motion=motion)
        assert clip.motion == motion and motion in clip.caption and is_visible_motion(clip.shape, motion)
        corners = clip.video[:, :, [0, 0, -1, -1], [0, -1, 0, -1]].mean((1, 2))[:, None, None, None]
        edge = torch.cat([clip.video[:, :, 0], clip.video[:, :, -1], clip.video[:, :, :, 0], clip.video[:, :, :, -1]], -1)
        assert (edge - corners[..., 0]).norm(dim=0).max() < 0.45  # background only: no colour of an object at the edge
        truth = clip.truth
        assert (truth.velocity_x > 0) == (motion == "moves right") and (truth.velocity_x < 0) == (motion == "moves left")
        assert (truth.velocity_y > 0) == (motion == "moves down") and (truth.velocity_y < 0) == (motion == "moves up")
        assert (truth.rotation > 0) == (motion == "rotates clockwise") and (truth.zoom > 0) == (motion == "grows")
        if motion == "stays still":
            assert truth == MotionTruth() and torch.equal(clip.video[:, 0], clip.video[:, -1])


def test_reversed_names_what_a_clip_shows_backwards():
    assert all(REVERSED[REVERSED[motion]] == motion for motion in MOTIONS)
    clip = object_clip("star", velocity=(1.0, 0.5), rotation=0.1, zoom=0.02, centre=(20, 20), texture=0.0)
    x, y = centroid(cover(clip.video.flip(1), "red"))
    assert x[-1] < x[0] and y[-1] < y[0]


def test_captions_are_canonical_unless_paraphrases_are_asked_for():
    rng = np.random.default_rng(0)
    assert write_caption("red", "square", "moves right", rng) == "a red square moves right"
    drawn = {write_caption("red", "square", "moves right", rng, paraphrase=0.5) for _ in range(200)}
    assert "a red square moves right" in drawn and "a red square moving to the right" in drawn and len(drawn) == 4
    known = set(all_captions())
    assert drawn <= known and not any("circle rotates" in caption for caption in known)
    assert {make_clip(seed, paraphrase=0.5).caption for seed in range(40)} <= known


def test_moving_background_leaves_the_object_alone():
    still = object_clip(velocity=(1.0, 0.0), texture=0.1, seed=7)
    moving = object_clip(velocity=(1.0, 0.0), texture=0.1, background_velocity=(0.0, 2.0), seed=7)
    assert torch.equal(still.video[:, 0], moving.video[:, 0])
    assert torch.allclose(moving.video[:, 1:, 2:20], moving.video[:, :-1, :18], atol=2e-4)  # rows above the object
    inside = moving.video[:, 8, 31, 40]
    assert torch.allclose(inside, torch.tensor(COLOURS["red"]), atol=1e-5)


def test_a_turning_circle_and_unknown_names_are_refused():
    with pytest.raises(ConfigError, match="looks still"):
        make_clip(0, shape="circle", motion="rotates clockwise")
    with pytest.raises(ConfigError, match="hexagon"):
        make_clip(0, shape="hexagon")
    with pytest.raises(ConfigError, match="pink"):
        object_clip("square", "pink")
    with pytest.raises(ConfigError, match="empty"):
        textured_clip(0)
    assert all(not make_clip(seed, shape="circle").motion.startswith("rotates") for seed in range(40))
