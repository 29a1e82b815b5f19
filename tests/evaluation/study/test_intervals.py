"""The two-way bootstrap against what is known of one-way and independent data."""

from __future__ import annotations

import numpy as np
import pytest

from phys_pipeline.evaluation.statistics import cluster_bootstrap
from phys_pipeline.evaluation.study.intervals import two_way_bootstrap


def width(interval: tuple[float, float]) -> float:
    return interval[1] - interval[0]


def test_one_prompt_leaves_the_bootstrap_over_participants():
    rng = np.random.default_rng(0)
    votes = [(f"p{who:02d}", float(rng.random() < who / 40)) for who in range(40) for _ in range(5)]
    both = two_way_bootstrap([(who, "one", value) for who, value in votes])
    assert both == pytest.approx(cluster_bootstrap(votes), abs=0.02)


def test_it_is_at_least_as_wide_as_either_and_does_not_depend_on_order():
    rng = np.random.default_rng(1)
    people, prompts = rng.normal(size=30), rng.normal(size=30)
    votes = [
        (f"w{i:02d}", f"q{j:02d}", float(rng.random() < 1 / (1 + np.exp(-people[i] - prompts[j]))))
        for i in range(30) for j in rng.choice(30, 12, replace=False)
    ]  # fmt: skip
    both = two_way_bootstrap(votes)
    assert width(both) > width(cluster_bootstrap([(who, value) for who, _, value in votes]))
    assert width(both) > width(cluster_bootstrap([(what, value) for _, what, value in votes]))
    assert two_way_bootstrap(votes[::-1]) == both and two_way_bootstrap(votes, seed=1) != both


def test_equal_votes_have_no_width():
    assert two_way_bootstrap([("a", "x", 1.0), ("b", "y", 1.0)]) == (1.0, 1.0)
    with pytest.raises(ValueError, match="no values"):
        two_way_bootstrap([])
