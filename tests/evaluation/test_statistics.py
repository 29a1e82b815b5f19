"""Intervals cover what they should, tests have their known answers, prompts are what is drawn."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phys_pipeline.evaluation import statistics
from phys_pipeline.evaluation.statistics import (
    cluster_bootstrap,
    cluster_totals,
    holm,
    mean_bootstrap,
    paired_difference,
    paired_ratio,
    sign_test,
    wilson,
)

PROBABILITIES = st.lists(st.floats(0, 1), min_size=1, max_size=12)


def column(values, seeds=(0,)):
    """{(prompt, seed): value} with ``len(seeds)`` clips of each prompt."""
    numbers = iter(values)
    return {(f"p{i:03d}", seed): next(numbers) for i in range(len(values) // len(seeds)) for seed in seeds}


def test_wilson_interval_of_published_examples():
    assert wilson(8, 10) == pytest.approx((0.4902, 0.9433), abs=1e-4)
    assert wilson(0, 10) == pytest.approx((0.0, 0.2775), abs=1e-4)
    assert wilson(10, 10) == pytest.approx((0.7225, 1.0), abs=1e-4)
    assert wilson(81, 263) == pytest.approx((0.2553, 0.3662), abs=2e-4)  # Newcombe 1998, table I
    assert wilson(0, 20) == pytest.approx((0.0, 0.1611), abs=2e-4)
    assert wilson(0, 0) == (0.0, 1.0)


def test_sign_test_known_answers():
    assert sign_test(5, 5) == pytest.approx(2 / 32)
    assert sign_test(2, 10) == sign_test(8, 10) == pytest.approx(0.109375)
    assert sign_test(5, 10) == 1.0 and sign_test(0, 0) == 1.0
    assert sign_test(900, 1590) == pytest.approx(1.56e-7, rel=0.05)  # normal approximation with continuity: 1.6e-7
    with pytest.raises(ValueError):
        sign_test(3, 2)


def test_holm_known_answer():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == [] and holm([0.9]) == [0.9] and holm([0.6, 0.7]) == [1.0, 1.0]


@given(PROBABILITIES)
def test_holm_keeps_the_order_and_lies_between_the_raw_value_and_bonferroni(p_values):
    adjusted = holm(p_values)
    for raw, new in zip(p_values, adjusted, strict=True):
        assert raw <= new <= min(1.0, raw * len(p_values)) + 1e-12
    order = np.argsort(p_values, kind="stable")
    assert (np.diff(np.array(adjusted)[order]) >= 0).all()


@pytest.mark.parametrize("draw", [np.random.Generator.normal, np.random.Generator.exponential])
def test_the_bootstrap_of_the_mean_covers_the_truth(draw):
    rng = np.random.default_rng(1)
    truth = 0.0 if draw is np.random.Generator.normal else 1.0
    hits = 0
    for _ in range(400):
        low, high = mean_bootstrap(draw(rng, size=40), resamples=1000)
        hits += low <= truth <= high
    assert 0.90 <= hits / 400 <= 0.98  # 95 % less the known shortfall of percentile intervals; four standard errors are 0.045


def test_drawing_prompts_covers_where_drawing_clips_does_not():
    rng = np.random.default_rng(2)
    prompts, clips = 0, 0
    for _ in range(300):
        shifts = rng.normal(size=30)
        values = [(f"p{i}", float(shifts[i] + 0.3 * rng.normal())) for i in range(30) for _ in range(4)]
        low, high = cluster_bootstrap(values, resamples=1000)
        prompts += low <= 0 <= high
        low, high = mean_bootstrap([value for _, value in values], resamples=1000)
        clips += low <= 0 <= high
    assert prompts / 300 > 0.89 and clips / 300 < 0.80


def test_p_values_are_uniform_when_nothing_differs_and_small_when_something_does():
    rng = np.random.default_rng(3)
    null, shifted = [], []
    for _ in range(300):
        first, noise = rng.normal(size=30), rng.normal(size=30)
        null.append(paired_difference(column(first), column(first + noise), resamples=1000).p)
        shifted.append(paired_difference(column(first), column(first + noise + 1.0), resamples=1000).p)
    assert 0.02 <= np.mean(np.array(null) < 0.05) <= 0.11
    assert np.mean(np.array(shifted) < 0.05) > 0.97


def test_paired_difference_by_hand():
    first = {("a", 0): 1.0, ("b", 0): 2.0, ("c", 0): 3.0, ("only first", 0): 99.0}
    second = {("a", 0): 1.5, ("b", 0): 2.5, ("c", 0): 3.5, ("only second", 0): -99.0, ("a", 1): 7.0}
    found = paired_difference(first, second)
    assert found.mean == pytest.approx(0.5) and found.interval == pytest.approx((0.5, 0.5)) and found.n == 3
    assert found.p == 0.25  # three prompts can't show more: one sign pattern in 2^3, two sides
    same = paired_difference(first, first)
    assert same.mean == 0 and same.interval == (0, 0) and same.p == 1.0
    with pytest.raises(ValueError, match="in common"):
        paired_difference({("a", 0): 1.0}, {("a", 1): 1.0})


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.floats(-5, 5), st.floats(-5, 5)), min_size=2, max_size=20))
def test_exchanging_the_columns_changes_the_sign_and_nothing_else(values):
    first, second = column([a for a, _ in values]), column([b for _, b in values])
    forth, back = paired_difference(first, second, 500), paired_difference(second, first, 500)
    assert forth.mean == pytest.approx(-back.mean, abs=1e-12) and forth.p == back.p
    assert forth.interval == pytest.approx((-back.interval[1], -back.interval[0]), abs=1e-12)
    assert forth.interval[0] - 1e-9 <= forth.mean <= forth.interval[1] + 1e-9 or len(values) < 8  # skewed tiny samples


def test_two_seeds_of_a_prompt_are_one_draw():
    rng = np.random.default_rng(4)
    base = rng.normal(size=20)
    once = paired_difference(column(np.zeros(20)), column(base))
    twice = paired_difference(column(np.zeros(40), (0, 1)), column(np.repeat(base, 2), (0, 1)))
    assert twice.n == 40 and twice.interval == pytest.approx(once.interval) and twice.p == once.p


def test_one_prompt_has_no_interval():
    found = paired_difference({("a", 0): 1.0, ("a", 1): 1.0}, {("a", 0): 2.0, ("a", 1): 4.0})
    assert found == (2.0, None, None, 2)
    assert paired_ratio({("a", 0): 2.0}, {("a", 0): 1.0}) == (0.5, None, 1)


def test_ratio_of_means_by_hand_and_its_interval():
    first, second = column([1.0, 2.0, 3.0, 4.0]), column([0.5, 1.0, 1.5, 2.0])
    assert paired_ratio(first, second).value == 0.5
    assert paired_ratio(first, second).interval == pytest.approx((0.5, 0.5))
    with pytest.raises(ValueError, match="is 0"):
        paired_ratio(column([0.0, 0.0]), column([1.0, 1.0]))
    sometimes_zero = paired_ratio(column([0.0, 1.0]), column([1.0, 1.0]))
    assert sometimes_zero.value == 2.0 and sometimes_zero.interval is None


def test_draws_do_not_depend_on_how_many_are_held_at_once(monkeypatch):
    values = [(f"p{i}", (float(i), 1.0)) for i in range(30)]
    whole = cluster_totals(values, 500)
    monkeypatch.setattr(statistics, "_CELLS", 1000)
    assert np.allclose(cluster_totals(values, 500), whole, rtol=1e-12)
    assert not np.allclose(cluster_totals(values, 500, seed=1), whole)
    with pytest.raises(ValueError, match="no values"):
        cluster_totals([])
