"""Bodies: steady poses about the middle of a clip, tones and outlines where the pose says, turns that always show."""

from __future__ import annotations

import numpy as np
import pytest

from training.world.bodies import BODY_SHAPES, WIDEST, Body, body_coordinates, paint_body, sample_picture, steady, tones


def painted(body: Body, pose: np.ndarray, side: int = 48) -> np.ndarray:
    video = np.zeros((3, len(pose), side, side), np.float32)
    y, x = np.mgrid[:side, :side].astype(np.float32)
    paint_body(video, body, pose, x[None], y[None])
    return video


def test_steady_poses_hold_half_way_and_reverse_into_the_opposite_motion():
    forwards = steady(16, (30, 20), 0.4, velocity=(1.5, 0), rotation=0.1, zoom=0.02)
    assert forwards.mean(0) == pytest.approx([30, 20, 0.4, 0])
    assert np.diff(forwards, axis=0) == pytest.approx(np.tile([1.5, 0, 0.1, 0.02], (15, 1)))
    assert forwards[::-1] == pytest.approx(steady(16, (30, 20), 0.4, velocity=(-1.5, 0), rotation=-0.1, zoom=-0.02))


def test_body_coordinates_undo_the_pose():
    x, y, size = body_coordinates(
        np.array([[10.0, 20.0, np.pi / 2, np.log(2)]]), np.full((1, 1, 1), 10.0), np.full((1, 1, 1), 26.0)
    )
    assert (x.item(), y.item(), size.item()) == pytest.approx((3.0, 0.0, 2.0), abs=1e-6)  # its own x axis points down


@pytest.mark.parametrize("shape", BODY_SHAPES)
def test_a_shape_stays_within_its_reach_and_shows_each_half_turn(shape: str):
    pose = np.array([[23.5, 23.5, 0.0, 0.0], [23.5, 23.5, np.pi, 0.0], [23.5, 23.5, 2 * np.pi, 0.0]])
    video = painted(Body(shape, "red", 12.0), pose)
    y, x = np.nonzero(video[0, 0] > 0)
    assert np.hypot(x - 23.5, y - 23.5).max() <= WIDEST * 12 + 1.5 and (video[0, 0] > 0).sum() > 90
    assert np.abs(video[:, 0] - video[:, 1]).max() > 0.3  # no symmetric body: half a turn shows
    assert np.abs(video[:, 0] - video[:, 2]).max() < 0.02


def test_the_left_half_is_lighter_and_moves_to_the_top_when_turned_clockwise():
    base, lighter = tones("red")
    video = painted(Body("square", "red", 12.0), np.array([[24.0, 24.0, 0.0, 0.0], [24.0, 24.0, np.pi / 2, 0.0]]))
    assert video[:, 0, 24, 19] == pytest.approx(lighter) and video[:, 0, 24, 29] == pytest.approx(base)
    assert video[:, 1, 19, 24] == pytest.approx(lighter) and video[:, 1, 29, 24] == pytest.approx(base)
    one = painted(Body("square", "red", 12.0, two_tone=False), np.array([[24.0, 24.0, 0.0, 0.0]]))
    assert one[:, 0, 24, 19] == pytest.approx(base)


def test_a_white_body_has_a_grey_half():
    assert tones("white")[1] == pytest.approx([0.5] * 3)


def test_a_photograph_is_drawn_upright_inside_its_square():
    picture = np.zeros((3, 8, 8), np.float32)
    picture[:, :4] = 1.0  # light above, dark below
    video = painted(Body("", "", 12.0, picture=picture), np.array([[24.0, 24.0, 0.0, 0.0]]))
    assert video[:, 0, 18, 24] == pytest.approx(1.0) and video[:, 0, 30, 24] == pytest.approx(0.0) and video[0, 0, 10].max() == 0


def test_a_sampled_picture_spans_its_reach():
    ramp = np.tile((np.arange(8, dtype=np.float32) + 0.5) / 8, (3, 8, 1))
    x = np.linspace(-3, 3, 7, dtype=np.float32)[None, None]
    assert sample_picture(ramp, x, np.zeros_like(x), 4.0)[0, 0, 0] == pytest.approx((x[0, 0] + 4) / 8, abs=1e-6)
