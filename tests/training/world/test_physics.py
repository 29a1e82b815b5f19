"""Simulated events: gravity, bounces, rolling without slipping, slowing spins, pendulums and a collision that keeps momentum."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("pymunk", reason='the extra "pretrain" is not installed')

from training.world.physics import simulate


def run(event: str, shape: str = "circle", seed: int = 0):
    return simulate(event, shape, 10.0, 16, 64, np.random.default_rng(seed), 1.0)


@pytest.mark.parametrize("seed", range(4))
def test_a_dropped_body_falls_faster_and_faster_bounces_and_stays_above_the_floor(seed: int):
    result = run("falls and bounces", "circle", seed)
    height = result.poses[0][:, 1]
    falling = np.diff(height)
    assert falling[1] > falling[0] > 0 and np.diff(falling[:4]) == pytest.approx([0.9] * 3, abs=0.05)
    assert result.floor is not None and height.max() <= result.floor - 9.5 + 0.5 and falling.min() < -1


@pytest.mark.parametrize(("event", "sign"), [("rolls right", 1), ("rolls left", -1)])
def test_a_rolling_body_turns_as_far_as_it_travels(event: str, sign: int):
    pose = run(event).poses[0]
    travel, turn = np.ptp(pose[:, 0]), pose[-1, 2] - pose[0, 2]
    assert np.sign(pose[-1, 0] - pose[0, 0]) == sign == np.sign(turn) and travel > 15
    assert abs(turn) * 9.5 == pytest.approx(travel, rel=0.05)


@pytest.mark.parametrize(("event", "sign"), [("flies right", 1), ("flies left", -1)])
def test_a_thrown_body_follows_a_parabola(event: str, sign: int):
    pose = run(event, "square").poses[0]
    assert np.diff(pose[:, 0]) == pytest.approx([np.diff(pose[:, 0]).mean()] * 15, abs=0.01) and sign * np.diff(pose[:, 0])[0] > 1
    assert np.diff(pose[:, 1], 2) == pytest.approx([0.45] * 14, abs=0.02)


@pytest.mark.parametrize(("event", "sign"), [("spins clockwise", 1), ("spins counterclockwise", -1)])
def test_a_spinning_body_slows_down_in_place(event: str, sign: int):
    pose = run(event, "bar").poses[0]
    turning = sign * np.diff(pose[:, 2])
    assert (np.diff(turning) < 0).all() and turning.min() > 0 and turning[-1] < 0.5 * turning[0]
    assert np.ptp(pose[:, :2], axis=0).max() < 1e-6


def test_a_pendulum_keeps_its_length_and_turns_around():
    pose = run("swings", "bar").poses[0]
    assert np.hypot(pose[:, 0] - 32, pose[:, 1] - 12.8) == pytest.approx([10] * 16, abs=0.3)
    assert np.ptp(pose[:, 0]) > 8


def test_a_collision_passes_the_momentum_on():
    first, second = run("hits").poses
    before = first[1, 0] - first[0, 0]
    after = first[-1, 0] - first[-2, 0] + second[-1, 0] - second[-2, 0]
    assert second[1] == pytest.approx(second[0]) and abs(second[-1, 0] - second[0, 0]) > 5
    assert after == pytest.approx(before, rel=0.02)


def test_equal_seeds_give_equal_poses_and_spread_0_leaves_only_signs_open():
    for event in ("falls and bounces", "flies left", "swings", "hits"):
        shape = "bar" if event == "swings" else "circle"
        assert all(np.array_equal(a, b) for a, b in zip(run(event, shape, 5).poses, run(event, shape, 5).poses, strict=True))
    fixed = [simulate("flies left", "circle", 10.0, 16, 64, np.random.default_rng(s), 0.0).poses[0] for s in (1, 2)]
    assert np.array_equal(*fixed)
