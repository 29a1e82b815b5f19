"""Two videos in one: layout, common clock, wipe and difference."""

import numpy as np
import pytest

from phys_pipeline.errors import ConfigError, MediaError
from phys_pipeline.media import Video, side_by_side
from phys_pipeline.media.compare import Compared, wipe_position

NO_LABELS = ("", "")


def flat(levels, height=360, width=480, fps=10.0):
    """One grey level for each frame."""
    frames = np.zeros((len(levels), height, width, 3), np.uint8) + np.asarray(levels, np.uint8)[:, None, None, None]
    return Video.from_frames(frames, fps)


def noise(seed, count=3, height=360, width=480):
    return Video.from_frames(np.random.default_rng(seed).integers(0, 256, (count, height, width, 3), dtype=np.uint8), 10.0)


def test_horizontal_shows_both_pixel_for_pixel():
    a, b = noise(0), noise(1, width=400)
    result = side_by_side(a, b, labels=NO_LABELS)
    assert result.frames.shape == (3, 360, 480 + 4 + 400, 3)
    np.testing.assert_array_equal(result.frames[:, :, :480], a.frames)
    np.testing.assert_array_equal(result.frames[:, :, 484:], b.frames)


def test_vertical_shows_both_pixel_for_pixel():
    a, b = noise(0), noise(1, height=200)
    result = side_by_side(a, b, mode="vertical", labels=NO_LABELS, height=360)
    assert result.width % 2 == 0 and result.width == round(480 * 360 / 200)  # both as wide as the wider one at 360 rows
    same = side_by_side(a, noise(1), mode="vertical", labels=NO_LABELS)
    np.testing.assert_array_equal(same.frames[:, :360], a.frames)
    np.testing.assert_array_equal(same.frames[:, 364:], noise(1).frames)


@pytest.mark.parametrize("gap", [0, 30])
def test_gap(gap):
    a, b = flat([10, 20]), flat([30, 40])
    beside, below = (Compared(a, b, mode=mode, labels=("", ""), gap=gap) for mode in ("horizontal", "vertical"))
    assert (beside.width, below.height) == (a.width + gap + b.width, a.height + gap + b.height)
    assert np.array_equal(beside.frames[0][:, -b.width :], b.frames[0])
    assert np.array_equal(below.frames[0][-b.height :], b.frames[0])


def test_labels_lie_in_the_top_corners_only():
    a = flat([100])
    plain = side_by_side(a, a, labels=NO_LABELS).frames
    marked = side_by_side(a, a, labels=("Baseline", "Physics")).frames
    changed = (plain != marked).any((0, 3))
    rows, columns = np.nonzero(changed)
    assert rows.min() > 0 and rows.max() < 45
    assert {bool(c < 480) for c in columns} == {True, False} and changed.mean() < 0.03
    assert marked.max() > 220  # bright letters


def test_different_heights_meet_at_the_larger():
    result = side_by_side(noise(0), noise(1, height=720, width=960), labels=NO_LABELS)
    assert result.frames.shape == (3, 720, 960 + 8 + 960, 3)
    assert side_by_side(noise(0), noise(1, height=720, width=960), height=180).height == 180


def test_small_ones_are_enlarged_and_sides_are_even():
    result = side_by_side(noise(0, height=64, width=64), noise(1, height=64, width=64))
    assert result.height == 384 and result.width >= 768 and result.width % 2 == 0
    for size in ((1, 1), (2, 2), (17, 31), (3, 30), (30, 3)):
        for mode in ("horizontal", "vertical", "wipe", "difference"):
            odd = side_by_side(noise(0, 1, *size), noise(1, 1, 33, 47), mode=mode, height=51)
            assert odd.height % 2 == 0 and odd.width % 2 == 0 and len(odd) == 1


def test_common_clock_keeps_both_speeds():
    slow, fast = flat([10, 20, 30], fps=10), flat(range(100, 109), fps=30)
    result = side_by_side(slow, fast, labels=NO_LABELS)
    assert len(result) == 9 and result.fps == 30
    assert result.frames[:, 200, 100, 0].tolist() == [10] * 3 + [20] * 3 + [30] * 3
    assert result.frames[:, 200, 700, 0].tolist() == list(range(100, 109))


def test_rounded_times_do_not_slip():
    times = np.round(np.arange(60) / 30, 3)  # a container with milliseconds
    frames = flat(range(60)).frames
    result = side_by_side(Video(frames, times, 30.0), Video.from_frames(frames, 30.0), labels=NO_LABELS)
    assert result.frames[:, 200, 100, 0].tolist() == list(range(60)) == result.frames[:, 200, 700, 0].tolist()


def test_the_shorter_one_holds_darkened_and_marked():
    result = side_by_side(flat([200] * 4), flat([100, 200]), labels=NO_LABELS)
    assert len(result) == 4
    assert result.frames[:, 100, 600, 0].tolist() == [100, 200, 110, 110]
    assert result.frames[:, 100, 100, 0].tolist() == [200] * 4
    corner = result.frames[:, -45:, -100:].astype(int)
    assert np.ptp(corner[1]) == 0 and np.ptp(corner[2]) > 50  # the chip "ended"


def test_difference_is_twice_the_distance_on_black():
    assert side_by_side(noise(0), noise(0), mode="difference", labels=NO_LABELS).frames[:, 60:].max() == 0
    result = side_by_side(flat([10, 100, 0, 255]), flat([20, 60, 127, 0]), mode="difference", labels=NO_LABELS)
    assert result.frames[:, 200, 200, 0].tolist() == [20, 80, 254, 255]
    saturated = side_by_side(flat([0]), flat([128]), mode="difference", labels=NO_LABELS)
    assert saturated.frames[0, 200, 200, 0] == 255


def test_wipe_shows_a_left_and_b_right_of_a_divider_that_sweeps():
    a, b = flat([40] * 60), flat([180] * 60)
    result = side_by_side(a, b, mode="wipe", labels=NO_LABELS)
    assert result.frames.shape == (60, 360, 480, 3)
    for index in range(60):
        divider = round(480 * wipe_position(index / 10))
        assert (result.frames[index, 200, : divider - 3, 0] == 40).all()
        assert (result.frames[index, 200, divider + 3 :, 0] == 180).all()
    positions = [wipe_position(index / 10) for index in range(61)]
    assert positions[0] == 0.5 and min(positions) < 0.1 and max(positions) > 0.9
    assert positions[60] == pytest.approx(0.5)


def test_another_shape_is_fitted_with_bars():
    result = side_by_side(flat([0]), flat([255], 360, 360), mode="difference", labels=NO_LABELS)
    row = result.frames[0, 200, :, 0]
    assert (row[60:420] == 255).all() and (row[:58] < 60).all() and (row[-58:] < 60).all()


def test_bad_arguments(monkeypatch):
    a = flat([1])
    for bad in ({"mode": "diagonal"}, {"labels": ("A",)}, {"labels": "AB"}, {"height": 3}):
        with pytest.raises(ConfigError):
            side_by_side(a, a, **bad)
    monkeypatch.setenv("PHYS_PIPELINE_MAX_BYTES", "1000")
    with pytest.raises(MediaError, match="over the limit"):
        side_by_side(a, a)
