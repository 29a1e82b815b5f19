"""The SIM(2) suite: known motions, and the table of eight clips that it was designed on (orders and factors, not digits)."""

from __future__ import annotations

import math

import numpy as np
import pytest
from evaluation_clips import PLACES, measure, scene, texture, values

from phys_pipeline.evaluation.metrics.similarity import (
    SimilaritySuite,
    TemporalEnergy,
    fit_similarity,
    jerk,
    turning_points,
)
from phys_pipeline.evaluation.metrics.warping import Warping


@pytest.fixture(scope="module")
def table():
    return {name: measure(scene(place), SimilaritySuite, Warping) for name, place in PLACES.items()}


def column(table, key):
    return {name: results[key].value for name, results in table.items()}


def similarity_flow(height, width, angle, scale, shift):
    """Flow (H, W, 2) of a similarity about the frame's centre."""
    y, x = np.mgrid[:height, :width].astype(np.float32)
    x, y = x - (width - 1) / 2, y - (height - 1) / 2
    cosine, sine = scale * math.cos(angle), scale * math.sin(angle)
    flow = np.stack([cosine * x - sine * y - x + shift[0], sine * x + cosine * y - y + shift[1]], axis=-1)
    return flow.astype(np.float32)


def test_the_fit_returns_the_similarity_that_made_the_flow():
    flow = similarity_flow(48, 80, 0.05, 1.03, (1.5, -2.0))
    fit = fit_similarity(flow, np.ones((48, 80), bool))
    radius = math.hypot(48, 80) / math.sqrt(12)
    assert fit.motion == pytest.approx([1.5, -2.0, 0.05 * radius, math.log(1.03) * radius], abs=1e-3)
    assert fit.residual < 1e-3


def test_pixels_that_are_hidden_or_slow_have_no_say():
    flow = similarity_flow(48, 80, 0.0, 1.0, (4.0, 0.0))
    flow[:, :30], flow[:10, 40:] = (0.0, 0.3), (0.0, -9.0)
    seen = np.ones((48, 80), bool)
    seen[:10] = False
    fit = fit_similarity(flow, seen)
    assert fit.motion == pytest.approx([4, 0, 0, 0], abs=1e-3)
    assert fit_similarity(np.zeros((48, 80, 2), np.float32), seen) is None


def test_jerk_of_even_and_alternating_motion():
    even = np.tile([1.0, 2.0, 0.0, 0.5], (6, 1))
    assert jerk(even) == 0
    assert jerk(even * [[1], [-1], [1], [-1], [1], [-1]]) == pytest.approx(2)
    assert jerk(np.zeros((6, 4))) is None and jerk(even[:1]) is None


def test_turning_points_pass_over_pairs_without_motion():
    moved = np.zeros((7, 4))
    moved[:, 2] = [1, 1, 0, -1, -1, 0, 2]
    assert turning_points(moved) == (2, [3, 6])


def test_temporal_energy_of_known_clips():
    def share(frames):
        energy = TemporalEnergy()
        for frame in frames:
            energy.add(frame)
        return energy.share

    still = np.repeat(texture(frames=1), 4, axis=0)
    flat = np.repeat(np.array([50, 150], np.uint8), 8 * 8 * 3).reshape(2, 8, 8, 3)
    assert share(still) == pytest.approx(0, abs=1e-9) and share(flat) == pytest.approx(1) and share(flat[:1]) is None
    assert 0.3 < share(texture(frames=8, velocity=(6.0, 0.0))) <= 1


def test_broken_motion_is_told_from_clean_by_an_order_of_magnitude(table):
    residual, jerks = column(table, "sim2_residual"), column(table, "sim2_jerk")
    assert residual["moving"] < 0.03 and residual["rubber"] > 10 * residual["moving"]
    assert jerks["moving"] < 0.1 and min(jerks["jitter"], jerks["rubber"]) > 10 * jerks["moving"]
    assert residual["jitter"] < 0.1  # each step of a shaken square is a similarity
    assert jerks["rotating"] < 0.1 < jerks["reversing"]


def test_reversals_and_stalls_are_counted(table):
    turned, active = column(table, "reversals"), column(table, "active_share")
    assert turned["moving"] == turned["rotating"] == turned["slowed"] == 0
    assert turned["reversing"] == 1 and turned["jitter"] >= 4 and turned["rubber"] >= 4
    assert table["reversing"]["reversals"].details == {"dominant": "rotation"}
    assert active["moving"] == active["rubber"] == active["rotating"] == 100
    assert active["stalling"] == pytest.approx(100 * 3 / 15) and active["frozen"] == 0


def test_a_frozen_clip_has_no_residual_or_jerk_to_win_with(table):
    for key in ("sim2_residual", "sim2_jerk", "reversals"):
        assert table["frozen"][key].status == "skipped" and table["frozen"][key].reason == "nothing moves"


def test_the_warping_error_prefers_the_frozen_clip_and_can_not_separate_broken_from_clean(table):
    error, flow, dynamic = (column(table, key) for key in ("warping_error", "flow_score", "dynamic_degree"))
    assert error["frozen"] == min(error.values())
    assert error["jitter"] < 4 * error["moving"] and error["rubber"] < 5 * error["moving"]  # the residual: over 10
    assert flow["moving"] == pytest.approx(8 * 64**2 / 256**2, rel=0.4) and flow["frozen"] < 0.1 < flow["slowed"] < 0.3
    assert dynamic["moving"] == dynamic["jitter"] == dynamic["rubber"] == 1 and dynamic["frozen"] == dynamic["slowed"] == 0
    assert table["frozen"]["warping_ratio"].value > 0.8 > 3 * table["moving"]["warping_ratio"].value


def test_series_have_an_entry_per_pair_and_own_metrics_are_no_standins():
    results = measure(texture(velocity=(2.0, 0.0)), SimilaritySuite)
    for key, result in results.items():
        assert result.status == "ok", key
        assert key == "temporal_energy" or (len(result.per_frame) == 7 and result.backend.startswith("dis"))
    assert results["sim2_jerk"].per_frame[0] is None


def test_two_frames_have_a_residual_and_no_jerk():
    found = values(measure(texture(frames=2, velocity=(2.0, 0.0)), SimilaritySuite))
    assert found["sim2_residual"] < 0.1 and found["sim2_jerk"] is None and found["active_share"] == 100


def test_large_clips_are_reduced_and_keep_their_numbers():
    small = texture(side=128, frames=4, velocity=(2.0, 1.0))
    large = np.repeat(np.repeat(small, 3, axis=1), 3, axis=2)
    ours, theirs = (values(measure(clip, SimilaritySuite, Warping)) for clip in (small, large))
    assert theirs["flow_score"] == pytest.approx(3 * ours["flow_score"], rel=0.05)
    assert theirs["flow_speed"] == pytest.approx(ours["flow_speed"], rel=0.05)
    assert theirs["sim2_residual"] < 0.1
