"""Detail: known pictures, and what blur takes away."""

from __future__ import annotations

import numpy as np
import pytest
from evaluation_clips import measure, texture
from PIL import Image, ImageFilter

from phys_pipeline.evaluation.metrics.detail import Detail, spatial_energy


def test_known_pictures():
    stripes = np.zeros((8, 8, 3), np.uint8)
    stripes[:, ::2] = 255
    assert spatial_energy(stripes) == pytest.approx(1.0)
    assert spatial_energy(np.full((8, 8, 3), 77, np.uint8)) == 0
    assert spatial_energy(stripes[:, :1]) == 0  # a picture of one column has no neighbours across


def test_blur_takes_it_and_motion_does_not():
    sharp = texture(64, 4, velocity=(2.0, 0.0))
    blurred = np.stack([np.asarray(Image.fromarray(frame).filter(ImageFilter.GaussianBlur(1.0))) for frame in sharp])
    still = np.repeat(sharp[:1], 4, axis=0)
    whole, less, frozen = (measure(frames, Detail)["detail"] for frames in (sharp, blurred, still))
    assert less.value < 0.8 * whole.value and frozen.value == pytest.approx(whole.value, rel=0.1)
    assert len(whole.per_frame) == 4
