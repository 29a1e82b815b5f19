"""Clips and pairs of the discrimination benchmark: what is drawn, what is left out, and which part it belongs to."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.pairs import (
    CELLS,
    CONTROL,
    STRENGTHS,
    Clip,
    contains_cut,
    copies,
    held_out,
    is_visible,
    real_clips,
    synthetic_clip,
    synthetic_name,
)
from phys_pipeline.media import CORRUPTIONS, Video, write_video
from phys_pipeline.media.synthetic import COLOURS, textured_clip


def seed_of(content: str, motion: str, background: bool = False, noise: bool = False) -> int:
    return CELLS.index((content, motion, background, noise)) + 30 * len(CELLS)


def texture(seed: int, frames: int = 16) -> np.ndarray:
    video = textured_clip(frames, 48, 64, velocity=(1.5, 0.5), seed=seed).video
    return (video.permute(1, 2, 3, 0).numpy() * 255).round().astype(np.uint8)


def test_cells_hold_every_content_and_motion_but_a_turning_circle():
    assert len(set(CELLS)) == len(CELLS) == 108
    contents = ("texture", "square", "bar", "triangle", "star", "circle", "several")
    wanted = {(content, motion) for content in contents for motion in ("translation", "rotation", "zoom", "mixture")}
    assert {cell[:2] for cell in CELLS} == wanted - {("circle", "rotation")}


@pytest.mark.parametrize("content", ["texture", "star", "several"])
def test_a_synthetic_clip_is_a_function_of_its_seed(content):
    seed = seed_of(content, "mixture", noise=True)
    clip, again, other = synthetic_clip(seed), synthetic_clip(seed), synthetic_clip(seed + len(CELLS))
    assert clip.pixels.shape == (16, 64, 64, 3) and clip.pixels.dtype == np.uint8
    assert np.array_equal(clip.pixels, again.pixels) and clip.content == again.content
    assert not np.array_equal(clip.pixels, other.pixels) and clip.content != other.content


@pytest.mark.parametrize(("background", "noise"), [(False, False), (True, False), (False, True)])
def test_background_moves_and_noise_appears_only_where_asked_for(background, noise):
    corner = synthetic_clip(seed_of("circle", "zoom", background, noise)).pixels[:, :6, :6].astype(float)
    change = np.diff(corner, axis=0)
    if not (background or noise):
        assert not change.any()
    elif noise:
        assert change.std() == pytest.approx(2 * np.sqrt(2), rel=0.1)  # difference of two draws with a deviation of 2
    else:
        assert np.abs(change).mean() > 0.5


def test_several_objects_move_differently():
    pixels = synthetic_clip(seed_of("several", "translation")).pixels / 255
    rows, columns = np.mgrid[:64, :64]
    steps = []
    for colour in ("white", "yellow", "green"):
        mask = np.abs(pixels - np.array(COLOURS[colour])).max(axis=-1) < 0.02
        first, last = ((columns[mask[t]].mean(), rows[mask[t]].mean()) for t in (0, 6))
        steps.append(np.subtract(last, first) / 6)
    assert all(np.hypot(*step) > 0.5 for step in steps)
    assert min(np.hypot(*(a - b)) for i, a in enumerate(steps) for b in steps[:i]) > 0.2


def test_held_out_rule_is_the_same_for_ever():
    assert [held_out(name) for name in ("mdn_frog.webm", "mdn_rabbit.webm", "gopro_walk_forward.mp4")] == [True, True, False]
    parts = [held_out(synthetic_name(seed)) for seed in range(3000)]
    assert 0.30 < np.mean(parts) < 0.37


def test_cuts_and_dissolves_are_seen_and_motion_is_not():
    one, two = texture(1), texture(2) // 2
    assert not contains_cut(one) and not contains_cut(two)
    assert contains_cut(np.concatenate([one[:8], two[8:]]))
    fade = np.clip((np.arange(16) - 5) / 4, 0, 1)[:, None, None, None]
    assert contains_cut((one * (1 - fade) + two * fade).astype(np.uint8))


def test_windows_with_a_cut_are_left_out(tmp_path):
    frames = np.concatenate([texture(1, 24), 255 - texture(2, 24) // 2])
    write_video(tmp_path / "cut_in_the_middle.mp4", Video.from_frames(frames, 12.0))
    (tmp_path / "notes.txt").write_text("not a video")
    clips, cuts = real_clips(tmp_path, 3)
    assert [clip.start for clip in clips] == [0, 32] and cuts == 1
    assert {(clip.source, clip.name) for clip in clips} == {("real", "cut_in_the_middle.mp4")}
    assert len({clip.held_out for clip in clips}) == 1
    assert len(real_clips(tmp_path, 1)[0]) == 1


def test_copies_are_complete_and_repeatable():
    clip = Clip("real", "x.mp4", 0, texture(3))
    made, again = dict(copies(clip)), dict(copies(clip))
    assert list(made) == [f"{kind} {strength:g}" for kind in CORRUPTIONS for strength in STRENGTHS] + [CONTROL]
    assert all(np.array_equal(made[name], again[name]) for name in made)
    assert all(copy.dtype == np.uint8 and copy.shape == clip.pixels.shape for copy in made.values())
    moved = Clip("real", "x.mp4", 16, clip.pixels)
    assert not np.array_equal(dict(copies(moved))["jitter 1"], made["jitter 1"])  # another window draws other numbers


def test_control_is_the_clip_moved_by_half_a_pixel():
    pixels = texture(4)
    control = dict(copies(Clip("real", "x.mp4", 0, pixels)))[CONTROL].astype(float)
    four = (pixels[:, 1:, 1:].astype(float) + pixels[:, :-1, 1:] + pixels[:, 1:, :-1] + pixels[:, :-1, :-1]) / 4
    assert np.abs(control[:, 1:, 1:] - four).max() <= 0.6


def test_a_copy_counts_from_one_grey_level_of_change_on():
    clip = np.full((16, 8, 8, 3), 100, np.uint8)
    assert not is_visible(clip, clip)
    assert is_visible(clip, clip + 1) and is_visible(clip, clip - 1)
    half = clip.copy()
    half[:, :, :4] += 1
    assert not is_visible(clip, half)
