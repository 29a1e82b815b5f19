import math

import pytest
import torch

from phys_pipeline.media.synthetic import object_clip
from phys_pipeline.spectral import SpectralConfig, SpectralMotionLoss
from phys_pipeline.spectral.scaling import scaling_proxies


def zooming(path: list[float]) -> torch.Tensor:
    """A star whose log-size follows ``path``: (1, 3, T, H, W)."""
    frames = [object_clip("star", "red", frames=1, radius=11 * math.exp(size), texture=0.0).video for size in path]
    return torch.cat(frames, dim=1)[None]


@pytest.mark.parametrize("shape", ["square", "circle", "bar", "star"])
@pytest.mark.parametrize("zoom", [-0.03, 0.03])
def test_zoom_has_the_right_sign_and_beats_rotation(shape, zoom):
    clip = object_clip(shape, "red", zoom=zoom, radius=8 if zoom > 0 else 14, texture=0.0).video[None]
    output = SpectralMotionLoss(SpectralConfig.calibrated(patches=1))(clip, "none")
    assert float(output.diagnostics["zoom"][0]) * zoom > 0
    if shape != "square":  # four corners of a growing square are as good a rotation
        assert float(output.scaling) < float(output.rotation)


def test_steady_zoom_scores_better_than_a_trembling_one():
    steady = [0.03 * (t - 8) for t in range(16)]
    tremble = torch.randn(16, generator=torch.Generator().manual_seed(1)).tolist()
    loss = SpectralMotionLoss(SpectralConfig.calibrated(patches=1))
    trembling = loss(zooming([size + 0.06 * noise for size, noise in zip(steady, tremble, strict=True)]))
    assert float(loss(zooming(steady)).scaling) < float(trembling.scaling) - 0.05


def test_proxies_are_one_half_for_fewer_than_three_frames():
    assert [value.tolist() for value in scaling_proxies(torch.rand(2, 2, 20))] == [[0.5, 0.5], [0.5, 0.5]]


def test_trend_proxy_sees_a_steady_drift_of_the_radial_centroid():
    ring = torch.arange(20, dtype=torch.float64)
    centre = torch.linspace(5, 14, 16, dtype=torch.float64)[:, None]
    steady = torch.exp(-0.5 * ((ring - centre) / 2) ** 2)[None]
    shuffled = steady[:, torch.randperm(16, generator=torch.Generator().manual_seed(0))]
    assert float(scaling_proxies(steady)[1]) > 0.99
    assert float(scaling_proxies(shuffled)[1]) < 0.6
