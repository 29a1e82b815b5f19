"""Agreement beyond chance: known answers, limits, and the interval against resampling."""

from __future__ import annotations

import numpy as np
import pytest

from phys_pipeline.evaluation.agreement import cohen_kappa, krippendorff_alpha


def table(both_yes: int, yes_no: int, no_yes: int, both_no: int) -> tuple[list[str], list[str]]:
    cells = [("yes", "yes")] * both_yes + [("yes", "no")] * yes_no + [("no", "yes")] * no_yes + [("no", "no")] * both_no
    return [a for a, _ in cells], [b for _, b in cells]


def test_kappa_by_hand():
    found = cohen_kappa(*table(20, 5, 10, 15))  # agreement 0.7, chance 0.5 * 0.6 + 0.5 * 0.4 = 0.5
    assert found.value == pytest.approx(0.4) and found.agreement == 0.7 and found.items == 50


def test_kappa_limits():
    assert cohen_kappa("abab", "abab").value == 1.0
    assert cohen_kappa("abab", "baba").value == -1.0
    assert cohen_kappa("aabb", "abab").value == 0.0
    same = cohen_kappa("aaaa", "aaaa")
    assert same.value is None and same.interval is None and same.agreement == 1.0
    with pytest.raises(ValueError, match="same items"):
        cohen_kappa("ab", "abc")
    with pytest.raises(ValueError, match="same items"):
        cohen_kappa("", "")


def test_kappa_does_not_depend_on_the_order_of_labellers():
    first, second = table(31, 4, 9, 16)
    one, other = cohen_kappa(first, second), cohen_kappa(second, first)
    assert one.value == pytest.approx(other.value) and one.interval == pytest.approx(other.interval)


@pytest.mark.parametrize("cells", [(40, 12, 18, 30), (60, 6, 9, 25)])
def test_the_interval_is_as_wide_as_resampling_items_says(cells):
    first, second = (np.array(side) for side in table(*cells))
    rng = np.random.default_rng(0)
    drawn = []
    for _ in range(1500):
        items = rng.integers(0, len(first), len(first))
        drawn.append(cohen_kappa(first[items].tolist(), second[items].tolist()).value)
    low, high = np.percentile(np.array(drawn, dtype=float), [2.5, 97.5])
    interval = cohen_kappa(first.tolist(), second.tolist()).interval
    assert interval is not None
    assert interval[1] - interval[0] == pytest.approx(high - low, rel=0.1)


def test_alpha_by_hand():
    # (a, a) and (a, b): 2 of 4 ordered pairs within items differ; of all ordered pairs 2 * 3 * 1 of 4 * 3 differ: 1 - 0.5 / 0.5
    assert krippendorff_alpha([(1, "a"), (1, "a"), (2, "a"), (2, "b")]) == pytest.approx(0.0)


def test_alpha_limits():
    assert krippendorff_alpha([(i, "ab"[i % 2]) for i in range(6) for _ in range(3)]) == 1.0
    assert krippendorff_alpha([(1, "a"), (2, "b")]) is None
    assert krippendorff_alpha([(1, "a"), (1, "a")]) is None
    assert krippendorff_alpha([]) is None
    rng = np.random.default_rng(1)
    chance = krippendorff_alpha([(item, int(rng.integers(2))) for item in range(400) for _ in range(4)])
    assert chance is not None and abs(chance) < 0.06


def test_alpha_ignores_items_with_one_answer():
    answers = [(1, "a"), (1, "b"), (2, "b"), (2, "b")]
    assert krippendorff_alpha([*answers, (3, "a")]) == krippendorff_alpha(answers)
