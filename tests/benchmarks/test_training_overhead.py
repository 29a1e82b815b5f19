import pytest

from benchmarks.training_overhead import ratio, ratio_of_totals, report, transformer_operations


def test_ratios():
    assert ratio([2.0, 3.0, 8.0], [1.0, 1.0, 2.0])[0] == 3.0
    total, low, high = ratio_of_totals([1.0, 1.0, 4.0], [1.0, 1.0, 1.0])
    assert total == 2.0 and low == 1.0 and high <= 4.0


def test_operations_of_the_transformer():
    linear, attention = transformer_operations()
    tokens = 33 * 45 * 80 + 256
    assert linear == pytest.approx(24 * 3072**2 * 60 * tokens) and attention == pytest.approx(4 * 3072 * 60 * tokens**2)


def test_the_page_says_what_is_not_met():
    seconds = {"bare": [1.0] * 3, "plain": [1.25] * 3, "every": [1.26] * 3, "usual": [1.5] * 3}
    text = report(seconds, seconds, [0.1, 0.1], "excess")
    assert "| 0.800 [0.800, 0.800] | at least 0.95 | not met |" in text
    assert "| 1.008 [1.008, 1.008] | at most 1.05 | met |" in text and "| 1.200 [1.200, 1.200] | at most 1.05 | not met |" in text
