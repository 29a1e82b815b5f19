"""Rendering: bodies stay in the picture, the speed is the leading motion's, and what a scene leaves open is drawn."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("pymunk", reason='the extra "pretrain" is not installed')
pytest.importorskip("skimage", reason='the extra "pretrain" is not installed')
pytest.importorskip("sklearn", reason='the extra "pretrain" is not installed')

from training.world.rendering import render
from training.world.scenes import Scene

WORDS = ("moves left", "moves right", "moves up", "moves down", "rotates clockwise", "grows", "shrinks", "stays still")


def drawn(scene: Scene, seed: int = 0, spread: float = 1.0, frames: int = 16):
    return render(scene, np.random.default_rng(seed), frames, 64, spread)


@pytest.mark.parametrize("motion", WORDS)
def test_a_body_moves_as_its_word_says_and_stays_in_the_picture(motion: str):
    for seed in range(6):
        pose = drawn(Scene("shape", "red circle", (motion,)), seed).poses[0]
        change = pose[-1] - pose[0]
        expected = {
            "moves left": (-1, 0, 0, 0), "moves right": (1, 0, 0, 0), "moves up": (0, -1, 0, 0), "moves down": (0, 1, 0, 0),
            "rotates clockwise": (0, 0, 1, 0), "grows": (0, 0, 0, 1), "shrinks": (0, 0, 0, -1), "stays still": (0, 0, 0, 0),
        }[motion]  # fmt: skip
        assert tuple(np.sign(np.round(change, 9))) == expected
        assert pose[:, :2].min() > 10 and pose[:, :2].max() < 53


def test_a_camera_moves_the_picture_against_its_word():
    still = Scene("shape", "red circle", ("stays still",), "pans left")
    result = drawn(still)
    assert result.camera[-1, 0] > result.camera[0, 0] and np.ptp(result.poses[0]) == np.ptp(result.poses[0][0])
    zoom = drawn(Scene("photograph", "cat", camera="zooms in"))
    assert zoom.camera[-1, 3] > zoom.camera[0, 3] and zoom.poses == []


def test_the_speed_is_the_bodys_else_the_cameras():
    both = drawn(Scene("shape", "red circle", ("moves right",), "zooms in"))
    assert both.speed == pytest.approx(np.diff(both.poses[0][:, 0]).mean())
    camera = drawn(Scene("shape", "red circle", ("stays still",), "tilts up"))
    assert camera.speed == pytest.approx(abs(np.diff(camera.camera[:, 1]).mean())) and camera.speed > 0


def test_paths_keep_their_length_for_other_frame_counts():
    scene = Scene("shape", "red circle", ("moves right",))
    lengths = [np.ptp(drawn(scene, spread=0.0, frames=frames).poses[0][:, 0]) for frames in (8, 16, 24)]
    assert lengths == pytest.approx([22.5] * 3)


def test_the_look_differs_where_the_layout_does_not():
    scene = Scene("shape", "red circle", ("moves right",))
    first, second = drawn(scene, 1, 0.0), drawn(scene, 2, 0.0)
    assert np.array_equal(first.poses[0], second.poses[0]) and not np.array_equal(first.video, second.video)


def test_two_bodies_are_painted_for_a_collision():
    video = drawn(Scene("event", "red circle", ("hits",), other="blue")).video
    red = (video[0] > 0.85) & (video[2] < 0.3)
    blue = (video[2] > 0.9) & (video[0] < 0.3)
    assert red[:, :, :].any((1, 2)).mean() > 0.5 and blue.any((1, 2)).mean() > 0.5
