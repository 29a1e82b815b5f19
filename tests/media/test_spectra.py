"""The pictures: whole, of one size, with the line where the slope says."""

from __future__ import annotations

import numpy as np
import pytest

from phys_pipeline.media.spectra import PlanePicture, draw_centroid, draw_plane

ORANGE = np.array([0xD5, 0x5E, 0x00])


def drawn(slope):
    omega = 2 * np.pi / 16 * np.arange(-7, 8)
    energy = np.ones((15, 21), np.float32)
    plane = PlanePicture(energy, omega, np.linspace(-1, 1, 21), slope, "title", "column", "line")
    picture = draw_plane(plane, fps=8)
    rows, columns = np.nonzero((np.abs(picture[60:-60, 60:-150].astype(int) - ORANGE) < 40).all(axis=2))
    return picture, rows, columns


@pytest.mark.parametrize("slope", [1.2, -1.2])
def test_the_line_rises_with_the_slope(slope):
    picture, rows, columns = drawn(slope)
    assert picture.dtype == np.uint8 and picture.shape[2] == 3 and min(picture.shape[:2]) > 300
    assert len(rows) > 50
    assert np.sign(np.corrcoef(columns, rows)[0, 1]) == -np.sign(slope)  # rows are counted from the top


def test_a_wrapped_line_has_no_stroke_through_the_picture():
    _, rows, columns = drawn(8.0)
    assert len(rows) and max(np.bincount(columns)) < 0.5 * (rows.max() - rows.min())


def test_centroid():
    picture = draw_centroid(np.linspace(0.5, 0.2, 16), np.arange(16) / 8)
    assert picture.ndim == 3 and len(np.unique(picture.reshape(-1, 3), axis=0)) > 20
    assert draw_centroid(np.zeros(4), np.arange(4) / 8).shape == picture.shape
