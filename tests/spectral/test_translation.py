import math

import pytest
import torch

from phys_pipeline.media.synthetic import textured_clip
from phys_pipeline.spectral import SpectralConfig, SpectralMotionLoss
from phys_pipeline.spectral.translation import energy_weights, plane_design, translation_loss, weighted_plane


@pytest.mark.parametrize("velocity", [(1.5, 0.0), (-1.5, 0.0), (0.0, 2.0), (1.0, -0.8)])
def test_translation_is_coherent_and_its_velocity_is_found(velocity):
    clip = textured_clip(velocity=velocity, seed=3).video[None]
    output = SpectralMotionLoss(SpectralConfig.calibrated(patches=1))(clip, "none")
    assert float(output.translation) < 0.25
    assert float(output.translation) < float(output.rotation) and float(output.translation) < float(output.scaling)
    found = output.diagnostics["velocity"][0]
    assert math.hypot(float(found[0]) - velocity[0], float(found[1]) - velocity[1]) < 0.15 * math.hypot(*velocity)


@pytest.mark.parametrize("speed", [1.0, 3.0, 5.0, 7.0])
def test_fast_smooth_motion_is_as_coherent_as_slow_motion(speed):
    """Above 1 / 0.3 samples a frame the kept frequencies alias; distances are taken modulo the temporal period."""
    clip = textured_clip(velocity=(speed, -0.4 * speed), seed=8).video[None]
    config = SpectralConfig.calibrated(patches=1)
    wrapped = SpectralMotionLoss(config)(clip, "none")
    assert float(wrapped.translation) < 0.35
    assert wrapped.diagnostics["velocity"][0].tolist() == pytest.approx([speed, -0.4 * speed], rel=0.15)
    if speed >= 5:
        plain = SpectralMotionLoss(SpectralConfig.calibrated(patches=1, wrap=False))(clip, "none")
        assert float(plain.translation) > float(wrapped.translation) + 0.2


def test_unwrapping_does_not_excuse_noise():
    noise = torch.rand(4, 3, 16, 48, 48, generator=torch.Generator().manual_seed(0))
    assert float(SpectralMotionLoss()(noise).translation) > 0.8


def test_plane_fit_recovers_an_exact_plane():
    generator = torch.Generator().manual_seed(1)
    design = torch.randn(50, 3, dtype=torch.float64, generator=generator)
    truth = torch.tensor([0.7, -1.2, 0.1], dtype=torch.float64)
    weights = torch.rand(4, 50, dtype=torch.float64, generator=generator)
    fit = weighted_plane(weights / weights.sum(1, keepdim=True), design, (design @ truth).expand(4, -1), ridge=0.0)
    torch.testing.assert_close(fit, truth.expand(4, 3), atol=1e-6, rtol=1e-6)


def test_printed_gate_weighs_empty_bins_and_energy_weighting_does_not():
    energy = torch.zeros(1, 1000)
    energy[0, 0] = 1.0
    printed = energy_weights(energy, SpectralConfig.paper())
    ours = energy_weights(energy, SpectralConfig.calibrated())
    assert float(printed[0, 1]) == pytest.approx(1 / (1 + math.e), abs=1e-6)  # sigmoid(-1) = 0.27 on an empty bin
    assert float(printed[0, 0] / printed.sum()) < 0.01
    assert float(ours[0, 0] / ours.sum()) == 1.0


def energy_gradient(gradient: str) -> torch.Tensor:
    """d loss / d energy of a shaken clip's spectrum with numerator-only or full gradients."""
    config = SpectralConfig.calibrated(gradient=gradient)
    generator = torch.Generator().manual_seed(0)
    energy = torch.rand(1, 15, 9, 9, dtype=torch.float64, generator=generator).requires_grad_(True)
    omega = tuple(torch.linspace(-1, 1, n, dtype=torch.float64) * math.pi * share for n, share in ((15, 0.9), (9, 0.3), (9, 0.3)))
    design = plane_design(omega, config)  # type: ignore[arg-type]
    loss = translation_loss(energy, design, 16, torch.zeros(1, dtype=torch.float64), config).loss
    return torch.autograd.grad(loss.sum(), energy)[0]


def test_adding_energy_to_any_bin_never_pays():
    """With gradients through the normaliser it does: an optimiser paints coherent texture instead of repairing the motion."""
    assert float(energy_gradient("numerator").min()) >= 0
    assert float(energy_gradient("full").min()) < 0
