from benchmarks.timing import median_interval


def test_interval_holds_the_median_and_narrows_with_equal_values():
    middle, low, high = median_interval([3.0, 1.0, 2.0, 5.0, 4.0])
    assert middle == 3.0 and 1.0 <= low <= middle <= high <= 5.0 and low < high
    assert median_interval([2.0] * 4) == (2.0, 2.0, 2.0)
