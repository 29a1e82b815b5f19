"""Autograd equals finite differences in float64 for every switch of the configuration."""

import pytest
import torch

from phys_pipeline.media.synthetic import object_clip
from phys_pipeline.spectral import SpectralConfig, SpectralMotionLoss
from phys_pipeline.spectral.composite import block_losses
from phys_pipeline.spectral.products import magnitude, neighbour_product, power

SMALL = {"gradient": "full", "patches": 1, "rings": 4, "angles": 16, "radii": 6}
SWITCHES = {
    "calibrated": {},
    "two patches": {"patches": 2, "minimum_patch_side": 4},
    "several windows": {"window": 3, "stride": 1},
    "one-sided": {"truncation": "one_sided"},
    "gate alone": {"energy_weighting": False},
    "mean kept": {"remove_mean": False},
    "borders kept": {"apodise": False},
    "not whitened": {"whiten": 0.0},
    "not unwrapped": {"wrap": False},
    "not normalised": {"normalise": False},
    "complex polar": {"polar": "complex"},
    "closed form": {"slope": "closed_form"},
    "proxies": {"scaling_loss": "proxies"},
    "ring term": {"ring_weight": 0.5},
    "no pace": {"pace_weight": 0.0},
    "no coherence": {"coherence_weight": 0.0},
    "coupled": {"weighting": "coupled"},
    "few temporal bins": {"keep_time": 0.6},
    "low frequencies": {"keep": 1.0, "largest_frequency": 2.5},
    "no floor": {"energy_floor": 0.0},
}


def clip() -> torch.Tensor:
    video = object_clip("bar", "red", frames=5, height=10, width=9, radius=2.5, velocity=(0.7, 0.2), rotation=0.2).video[None, :2]
    return video.double() + 0.01 * torch.rand(video.shape, generator=torch.Generator().manual_seed(0))


def check(config: SpectralConfig) -> None:
    """Of each block: the shares by which patches are averaged carry no gradient."""

    def value(pixels: torch.Tensor) -> torch.Tensor:
        result, _ = block_losses(pixels, config)
        return torch.cat([result.composite.flatten(), result.losses.flatten()])

    assert torch.autograd.gradcheck(value, (clip().requires_grad_(True),), eps=1e-6, atol=1e-5, rtol=1e-3, fast_mode=True)


@pytest.mark.parametrize("switch", SWITCHES)
def test_gradcheck_of_the_calibrated_preset_with_each_switch(switch):
    check(SpectralConfig.calibrated(**{**SMALL, **SWITCHES[switch]}))


@pytest.mark.parametrize("switch", ["calibrated", "mean kept", "not whitened", "proxies", "ring term", "coupled"])
def test_gradcheck_of_the_paper_preset(switch):
    check(SpectralConfig.paper(**{**SMALL, **SWITCHES[switch]}))


def test_gradcheck_of_the_excess_form():
    reference = clip().flip(-1)
    loss = SpectralMotionLoss(SpectralConfig.calibrated(**SMALL))
    shaken = torch.stack([frame.roll(shift, -1) for frame, shift in zip(clip().unbind(2), (0, 2, -1, 1, 0), strict=True)], dim=2)
    assert float(loss(shaken, reference=reference).loss) > 0

    def value(pixels: torch.Tensor) -> torch.Tensor:
        return loss(pixels, reference=reference).loss

    assert torch.autograd.gradcheck(value, (shaken.requires_grad_(True),), eps=1e-6, atol=1e-5, rtol=1e-3, fast_mode=True)


def spectrum() -> torch.Tensor:
    return torch.randn(1, 2, 3, 1, 4, 3, 2, dtype=torch.complex128, generator=torch.Generator().manual_seed(1)).requires_grad_(
        True
    )


@pytest.mark.parametrize(
    "product", [magnitude, neighbour_product, lambda values: power(values, (2,)), lambda values: power(values, (5, 2))]
)
def test_hand_written_gradients_equal_finite_differences(product):
    assert torch.autograd.gradcheck(product, (spectrum(),))


def test_products_equal_their_plain_forms():
    values = spectrum().detach()
    torch.testing.assert_close(power(values, (2, -1)), values.abs().square().sum(dim=(2, -1)))
    torch.testing.assert_close(magnitude(values), values.abs())
    plain = (values[..., 1:, :, :] * values[..., :-1, :, :].conj()).sum(dim=2)
    torch.testing.assert_close(neighbour_product(values), plain)


def test_magnitude_has_no_gradient_at_zero():
    zero = torch.zeros(3, dtype=torch.complex64, requires_grad=True)
    magnitude(zero).sum().backward()
    assert torch.equal(zero.grad, torch.zeros(3, dtype=torch.complex64))


def test_second_derivatives_are_refused():
    values = spectrum()
    (gradient,) = torch.autograd.grad(power(values, (2,)).sum(), values, create_graph=True)
    with pytest.raises(RuntimeError, match=r"does not require grad|twice"):
        torch.autograd.grad(gradient.abs().sum(), values)
