"""Effects have their known values, and a verdict needs both the bound and the interval."""

from __future__ import annotations

import numpy as np
import pytest

from phys_pipeline.evaluation.metrics.frame_quality import latent_moments
from phys_pipeline.evaluation.registry import infos
from phys_pipeline.evaluation.rows import Row
from training.experiments import effects
from training.experiments.effects import FRECHET, JERK_IN_PIXELS, MUST_HOLD, Effect, columns_of, effect, per_seed

WANTED = {wanted.metric: wanted for wanted in MUST_HOLD}
CLEAN = None  # a folder that only the Frechet distance reads


def rows(column, metric, values, details=None):
    """One row for each (prompt, seed): value."""
    return [
        Row(f"{column}/{p}#{s}", p, column, s, metric, value, "ok", backend="b", details=(details or {}).get((p, s), {}))
        for (p, s), value in values.items()
    ]


def columns(metric, first, second, details=(None, None)):
    found = columns_of(rows("a", metric, first, details[0]) + rows("b", metric, second, details[1]), list(infos().values()))
    return found["a"], found["b"]


def test_a_ratio_is_of_means_over_shared_clips():
    first = {(f"p{n}", s): 1.0 + n for n in range(6) for s in (0, 1)}
    a, b = columns("sim2_jerk", first | {("alone", 0): 99.0}, {pair: 0.7 * value for pair, value in first.items()})
    found = effect(a, b, WANTED["sim2_jerk"], CLEAN)
    assert found.value == pytest.approx(0.7) and found.interval == pytest.approx((0.7, 0.7)) and found.n == 12


def test_points_are_of_shares():
    first = {(f"p{n}", 0): float(n < 5) for n in range(10)}
    a, b = columns("direction_accuracy", first, {(f"p{n}", 0): float(n < 7) for n in range(10)})
    found = effect(a, b, WANTED["direction_accuracy"], CLEAN)
    assert found.value == pytest.approx(20.0) and found.interval[0] <= 20 <= found.interval[1]


def test_seeds_are_shown_one_by_one():
    first = {(f"p{n}", s): 1.0 for n in range(3) for s in (4, 9)}
    a, b = columns("sim2_jerk", first, {(p, s): 0.5 if s == 4 else 0.8 for p, s in first})
    assert per_seed(a, b, WANTED["sim2_jerk"], CLEAN) == pytest.approx({4: 0.5, 9: 0.8})


def test_what_nobody_measured_has_no_effect():
    a, b = columns("sim2_jerk", {("p", 0): 1.0}, {("q", 0): 1.0})
    assert effect(a, b, WANTED["sim2_jerk"], CLEAN) is None and effect(a, b, WANTED["flow_score"], CLEAN) is None
    a, b = columns("sim2_jerk", {("p", 0): 0.0}, {("p", 0): 1.0})
    assert effect(a, b, WANTED["sim2_jerk"], CLEAN) is None, "no ratio to 0"


def test_the_frechet_ratio_is_that_of_whole_sets(monkeypatch):
    rng = np.random.default_rng(0)
    clean = rng.normal(size=(3, 400))
    monkeypatch.setattr(effects, "clean_moments", lambda folder: latent_moments(clean))
    pairs = {(f"p{n}", 0): 1.0 for n in range(20)}

    def moments(shift):
        parts = np.split(clean + shift * clean.std(axis=1, keepdims=True), 20, axis=1)
        return {pair: {"latent_moments": latent_moments(part).tolist()} for pair, part in zip(pairs, parts, strict=True)}

    a, b = columns("spectrum_distance", pairs, pairs, (moments(1.0), moments(2.0)))
    found = effect(a, b, WANTED[FRECHET], CLEAN)
    assert found.value == pytest.approx(4.0) and found.interval[0] < 4 < found.interval[1] and found.n == 20


@pytest.mark.parametrize(
    ("metric", "value", "interval", "verdict"),
    [
        ("sim2_jerk", 0.75, (0.6, 0.9), "met"),
        ("sim2_jerk", 0.75, (0.4, 1.1), "not shown"),
        ("sim2_jerk", 0.85, (0.8, 0.9), "not met"),
        ("direction_accuracy", 6.0, (1.0, 11.0), "met"),
        ("direction_accuracy", 6.0, (-1.0, 13.0), "not shown"),
        ("flow_score", 1.0, (0.97, 1.03), "met"),
        ("flow_score", 0.96, (0.90, 1.02), "met by the estimate alone"),
        ("flow_score", 0.9, (0.85, 0.97), "not met"),
        ("spectrum_distance", 1.01, None, "met by the estimate alone"),
    ],
)
def test_verdicts(metric, value, interval, verdict):
    assert WANTED[metric].verdict(Effect(value, interval, 10)) == verdict


def test_a_missing_measurement_is_no_success():
    assert WANTED["sim2_jerk"].verdict(None) == "not measured"


def test_the_jerk_in_pixels_is_of_clips_with_both_values():
    made = rows("a", "sim2_jerk", {("p", 0): 0.5, ("q", 0): 2.0}) + rows("a", "flow_score", {("p", 0): 3.0, ("r", 0): 1.0})
    assert columns_of(made, list(infos().values()))["a"][JERK_IN_PIXELS].values == {("p", 0): 1.5}
