import math

import pytest
import torch

from phys_pipeline.media.synthetic import textured_clip
from phys_pipeline.spectral import SpectralConfig, SpectralMotionLoss
from phys_pipeline.spectral.rotation import ring_concentration


@pytest.mark.parametrize("degrees", [-8.0, -4.0, 4.0, 8.0])
def test_rotation_about_the_centre_is_the_smallest_loss_and_has_the_right_sign(degrees):
    clip = textured_clip(rotation=math.radians(degrees), seed=5).video[None]
    output = SpectralMotionLoss(SpectralConfig.calibrated(patches=1))(clip, "none")
    assert float(output.rotation) < min(float(output.translation), float(output.scaling))
    found = math.degrees(float(output.diagnostics["rotation"][0]))
    assert found == pytest.approx(degrees, rel=0.5)  # a slope of the moving part: biased high when slow


def test_reversed_rotation_reverses_the_estimate():
    clip = textured_clip(rotation=0.1, seed=2).video[None]
    loss = SpectralMotionLoss(SpectralConfig.calibrated(patches=1))
    forward, backward = loss(clip, "none"), loss(clip.flip(2), "none")
    assert float(backward.diagnostics["rotation"]) == pytest.approx(-float(forward.diagnostics["rotation"]), abs=1e-4)


def test_ring_concentration_is_one_for_one_ring_and_zero_for_equal_rings():
    one = torch.zeros(1, 4, 20, dtype=torch.float64)
    one[:, :, 3] = 1.0
    assert float(ring_concentration(one)) == pytest.approx(1.0, abs=1e-6)
    assert float(ring_concentration(torch.ones(1, 4, 20, dtype=torch.float64))) == pytest.approx(0.0, abs=1e-5)
