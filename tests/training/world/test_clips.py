"""Clips of the world: a function of (seed, index), in stated shares; pixels follow the truth, and no caption tells a flaw."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("pymunk", reason='the extra "pretrain" is not installed')
pytest.importorskip("skimage", reason='the extra "pretrain" is not installed')
pytest.importorskip("sklearn", reason='the extra "pretrain" is not installed')

from phys_pipeline.errors import ConfigError
from phys_pipeline.evaluation.metrics.direction import OBJECT, picture_direction
from training.evaluate_world import has_plain_ground
from training.tiny_tracker import track
from training.world.clips import FLAWED_SHARE, FLAWS, motion_kind, world_clip, world_clips
from training.world.scenes import Scene, is_held_out

ROOT = Path(__file__).resolve().parents[3]
COUNT = 240


@pytest.fixture(scope="module")
def clips():
    return list(world_clips(2, 0, COUNT))


def test_clips_are_distinct_and_in_range(clips):
    assert len({clip.video.numpy().tobytes() for clip in clips}) == COUNT
    for clip in clips:
        assert clip.video.shape == (3, 16, 64, 64) and clip.video.dtype == torch.float32
        assert clip.video.min() >= 0 and clip.video.max() <= 1 and clip.video.std() > 0.01
    assert len({clip.caption for clip in clips}) > 0.75 * COUNT


def test_a_clip_depends_on_its_seed_and_number_alone(clips):
    for index in (0, 17, 101):
        again = world_clip(2, index)
        assert torch.equal(again.video, clips[index].video) and again.caption == clips[index].caption
    assert not torch.equal(world_clip(3, 17).video, clips[17].video)


def test_another_process_makes_the_same_clips(clips):
    code = "from training.world.clips import world_clip as w; print([float(w(2, i).video.double().sum()) for i in range(6)])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, timeout=200)
    assert done.stdout.strip().splitlines()[-1] == str([float(clip.video.double().sum()) for clip in clips[:6]])


def test_the_flawed_share_is_as_stated_and_clean_is_the_same_world_without_them(clips):
    flaws = Counter(clip.flaw for clip in clips)
    assert set(flaws) == {"", *FLAWS}
    assert abs(1 - flaws[""] / COUNT - FLAWED_SHARE) < 3.5 * (FLAWED_SHARE * (1 - FLAWED_SHARE) / COUNT) ** 0.5
    for index in range(40):
        flawed, clean = clips[index], world_clip(2, index, flawed=False)
        assert clean.caption == flawed.caption and clean.scene == flawed.scene and not clean.flaw
        assert torch.equal(clean.video, flawed.video) == (not flawed.flaw)
        assert bool(flawed.flaw) == (flawed.strength > 0)


def test_no_caption_tells_of_a_flaw(clips):
    words = {word for clip in clips for word in clip.caption.replace(",", "").split()}
    assert not words & {*FLAWS, "cuts", "broken", "shaky", "flickers", "reversed", "stutters", "jittery"}


def test_held_out_clips_show_what_training_never_shows(clips):
    assert not any(is_held_out(clip.scene) for clip in clips)
    for index in range(20):
        assert is_held_out(world_clip(2, index, held_out=True, flawed=False).scene)


def test_directions_are_labels_of_the_evaluator(clips):
    for clip in clips:
        assert clip.truth.direction is None or picture_direction(clip.truth.direction) in OBJECT
        assert clip.truth.speed >= 0 and (clip.truth.motion == "static") == (clip.truth.speed == 0)


def test_the_poses_say_where_the_body_is():
    compared = 0
    for index in range(60):
        clip = world_clip(5, index, flawed=False)
        if not has_plain_ground(clip):
            continue
        shape = clip.scene.subject.split()[1]
        seen = track(clip.video, shape)
        if seen is None or shape in ("arrow", "hook") or clip.truth.motion == "rotation":
            continue  # arrows and hooks have their centroid elsewhere
        change = clip.truth.poses[0][-1] - clip.truth.poses[0][0]
        compared += 1
        assert (seen.dx, seen.dy) == pytest.approx(tuple(change[:2]), abs=4)  # of up to 28
        assert seen.growth == pytest.approx(change[3], abs=0.12)
    assert compared >= 5


def test_a_panning_camera_moves_the_whole_picture_the_other_way():
    for index in range(200):
        clip = world_clip(6, index, flawed=False)
        if clip.scene.kind == "photograph" and clip.scene.camera == "pans left":
            break
    assert clip.truth.direction == "pan_left" and clip.truth.camera[-1, 0] > clip.truth.camera[0, 0]
    shift = round(clip.truth.camera[-1, 0] - clip.truth.camera[0, 0])
    last, first = clip.video[:, -1, :, shift:], clip.video[:, 0, :, : 64 - shift]
    assert (last - first).abs().mean() < 0.35 * (clip.video[:, -1] - clip.video[:, 0]).abs().mean()


def test_motion_kinds():
    assert motion_kind(Scene("shape", "red square", ("moves right",))) == "translation"
    assert motion_kind(Scene("photograph", "cat", camera="rolls clockwise")) == "rotation"
    assert motion_kind(Scene("shape", "red square", ("stays still",))) == "static"
    assert motion_kind(Scene("shape", "red square", ("moves right", "grows"))) == "mixture"
    assert motion_kind(Scene("event", "red circle", ("hits",), other="blue")) == "event"


def test_spread_0_leaves_the_layout_to_the_caption():
    poses = {}
    for index in range(150):
        clip = world_clip(7, index, flawed=False, spread=0.0)
        if clip.scene.kind == "shape":
            earlier = poses.setdefault((clip.scene.motions, clip.scene.camera), clip.truth.poses[0])
            assert np.allclose(earlier, clip.truth.poses[0])


@pytest.mark.parametrize("wrong", [{"seed": -1}, {"index": -1}, {"spread": 2.0}, {"frames": 1}, {"side": 8}])
def test_wrong_arguments_are_refused(wrong):
    with pytest.raises(ConfigError, match="use numbers from 0"):
        world_clip(**({"seed": 0, "index": 0} | wrong))
