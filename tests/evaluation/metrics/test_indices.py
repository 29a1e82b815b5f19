import numpy as np

from phys_pipeline.evaluation.metrics.indices import reflected


def test_plays_back_and_forth():
    assert reflected(np.arange(9), 4).tolist() == [0, 1, 2, 3, 2, 1, 0, 1, 2]


def test_inside_nothing_changes_and_one_frame_is_repeated():
    assert reflected(np.arange(4), 4).tolist() == [0, 1, 2, 3]
    assert reflected(np.arange(3), 1).tolist() == [0, 0, 0]


def test_neighbours_stay_neighbours():
    assert np.abs(np.diff(reflected(np.arange(200), 7))).max() == 1
