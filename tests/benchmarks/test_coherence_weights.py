import numpy as np
import pytest

from benchmarks.coherence_weights import Weighed, line


def test_shares_and_means_have_their_known_values():
    flawed = np.array([False, False, True, True])
    alike = Weighed(np.full(4, 2.0), flawed, np.array([1.0, 3.0, 9.0, 9.0]))
    assert (alike.effective, alike.motion, alike.by_kind) == (1.0, 1.0, (2.0, 2.0))
    one = Weighed(np.array([4.0, 0.0, 0.0, 0.0]), flawed, alike.energy)
    assert (one.effective, one.motion, one.by_kind) == (0.25, 0.5, (2.0, 0.0))


def test_intervals_hold_their_estimates():
    rng = np.random.default_rng(0)
    found = Weighed(rng.uniform(0, 2, 200), rng.random(200) < 0.4, rng.uniform(0, 1, 200))
    cells = line(0.1, 0.5, found, rng).strip("| ").split(" | ")
    assert cells[:2] == ["0.1", "0.5"] and len(cells) == 8
    for cell in (cells[2], cells[3], cells[4], cells[7]):
        value, low, high = (float(part) for part in cell.replace("[", "").replace("]", "").replace(",", "").split())
        assert low <= value <= high and low < high
    assert float(cells[5]) == pytest.approx(found.weight.max(), abs=0.06)
