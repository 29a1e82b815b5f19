"""Warping error and amounts of motion: known shifts, both protocols, labels, units, statuses."""

from __future__ import annotations

import math

import numpy as np
import pytest
from evaluation_clips import measure, texture, values

from phys_pipeline.evaluation import Settings
from phys_pipeline.evaluation.flow import DisFlow
from phys_pipeline.evaluation.metrics.warping import Warping, fastest_mean, is_boundary, warped_squares

EVALCRAFTER = Settings(protocol="evalcrafter")


def test_a_known_shift_has_next_to_no_error_and_is_the_flow_score():
    clip = texture(side=96, velocity=(3.0, 4.0))
    found = measure(clip, Warping, fps=10.0)
    change = np.mean((np.diff(clip.astype(float), axis=0) / 255) ** 2)
    assert found["warping_error"].value < 0.01 * change and found["warping_ratio"].value < 0.01
    assert found["flow_score"].value == pytest.approx(5, rel=0.02)
    assert found["flow_speed"].value == pytest.approx(100 * 5 / 96 * 10, rel=0.02)
    assert found["flow_score"].details["percent_of_short_side_per_s"] == found["flow_speed"].value
    hidden = 1 - (93 * 92) / 96**2  # what leaves the frame
    assert found["warping_error"].details["masked_share"] == pytest.approx(hidden, abs=0.02)


def test_values_by_dis_are_marked_as_standins():
    found = measure(texture(velocity=(2.0, 0.0)), Warping, labels={"amplitude": "slow"})
    assert {result.status for result in found.values()} == {"standin"}
    assert all(result.backend.startswith("dis") for result in found.values())
    assert all(info.standin_for for info in Warping.infos)


def test_squares_with_the_wrong_flow_are_the_raw_difference():
    clip = texture(velocity=(2.0, 0.0))
    nothing = np.zeros((64, 64, 2), np.float32)
    raw = (clip[1].astype(float) - clip[0]) ** 2 / 255**2
    assert warped_squares(clip[0], clip[1], nothing) == pytest.approx(raw, abs=1e-5)


def test_flicker_is_not_explained_by_flow():
    clip = texture(velocity=(2.0, 0.0))
    gain = np.array([1.0, 0.8] * 4)[:, None, None, None]
    assert measure((clip * gain).round().astype(np.uint8), Warping)["warping_ratio"].value > 0.5


def test_a_frozen_clip_has_no_ratio_and_half_the_pixels_hidden_changes_no_unit():
    found = measure(np.repeat(texture(frames=1), 5, axis=0), Warping)
    assert found["warping_error"].value == 0 and found["flow_score"].value < 1e-3
    assert found["warping_ratio"].reason == "nothing moves" and found["dynamic_degree"].value == 0


def test_rates_decide_and_an_unknown_rate_is_no_guess():
    clip = texture(velocity=(1.0, 0.0))  # 1.6 % of the side per frame
    fast, slow, unknown = (values(measure(clip, Warping, fps=f, labels={"amplitude": "large"})) for f in (24.0, 8.0, None))
    assert fast["motion_accuracy"] == 100 and slow["motion_accuracy"] == 0
    assert unknown["motion_accuracy"] is unknown["flow_speed"] is unknown["dynamic_degree"] is None
    assert unknown["flow_score"] == pytest.approx(1, rel=0.05)


def test_without_a_label_there_is_no_accuracy():
    assert "label amplitude" in measure(texture(velocity=(2.0, 0.0)), Warping)["motion_accuracy"].reason


def test_evalcrafter_uses_pixels_of_the_clip_and_sums_channels_at_half_size():
    clip = texture(side=96, frames=4, velocity=(6.0, 0.0))
    labelled = {"labels": {"amplitude": "large"}}
    theirs = measure(clip, Warping, settings=EVALCRAFTER, fps=1.0, **labelled)
    ours = measure(clip, Warping, fps=1.0, **labelled)
    assert theirs["motion_accuracy"].value == 100 and ours["motion_accuracy"].value == 0  # 6 px per frame, 6 % per second
    assert theirs["flow_score"].value == pytest.approx(6, rel=0.05)
    still = np.repeat(texture(side=96, frames=1), 2, axis=0)
    still[1] = np.clip(still[1].astype(int) + 10, 0, 255)  # brighter: DIS sees no motion
    error = {p: measure(still, Warping, settings=Settings(protocol=p))["warping_error"].value for p in ("fixed", "evalcrafter")}
    assert error["evalcrafter"] == pytest.approx(3 * error["fixed"], rel=0.1)
    assert error["fixed"] == pytest.approx((10 / 255) ** 2, rel=0.1)


def test_motion_boundaries_and_fastest_pixels_of_a_known_flow():
    flow = np.zeros((20, 20, 2), np.float32)
    flow[:, 10:, 0] = 5
    edge = is_boundary(flow)
    assert edge[:, 9:11].all() and edge.sum() == 40
    assert fastest_mean(flow) == 5
    flow[0, :5] = (30, 40)
    assert fastest_mean(flow) == pytest.approx((5 * 50 + 15 * 5) / 20)


def test_dynamic_degree_looks_at_eight_frames_a_second():
    """2 px per frame of 64 (over 6/256 of it) are dynamic at 8 a second; at 24 a second the flow of three frames is taken."""
    slow = texture(frames=10, velocity=(0.8, 0.0))
    at_8, at_24 = (measure(slow, Warping, fps=fps)["dynamic_degree"] for fps in (8.0, 24.0))
    assert at_8.value == 0 and at_24.value == 1
    assert at_24.details["pairs"] == 3 and at_8.details["pairs"] == 9
    lengths = [at.details["fastest_percent_of_short_side_per_s"] for at in (at_8, at_24)]
    assert lengths[0] == pytest.approx(100 * 0.8 / 64 * 8, rel=0.25) and lengths[1] == pytest.approx(3 * lengths[0], rel=0.2)


def test_two_still_frames_are_not_dynamic():
    assert measure(np.repeat(texture(frames=1), 2, axis=0), Warping)["dynamic_degree"].value == 0


def test_two_runs_give_the_same_digits():
    clip = texture(frames=4, velocity=(1.3, -0.7), rotation=0.02)
    assert values(measure(clip, Warping)) == values(measure(clip, Warping))
    assert math.isfinite(float(np.abs(DisFlow()(clip[0], clip[1])).max()))
