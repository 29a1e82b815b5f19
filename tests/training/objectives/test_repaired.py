"""Known answers of the repaired loss: 0 at the clean clip alone; freezing, fading, blurring and broken motion all cost."""

import pytest
import torch

from phys_pipeline.media.corruptions import corrupt
from phys_pipeline.media.synthetic import object_clip, textured_clip
from phys_pipeline.spectral import SpectralConfig
from training.objectives.repaired import Repaired

LOSS = Repaired(SpectralConfig.calibrated())
ZERO = torch.zeros(1)


def clips():
    size = {"height": 48, "width": 48}
    return {
        "translation": textured_clip(velocity=(1.3, -0.7), seed=1, **size).video[None],
        "zoom": textured_clip(zoom=0.03, seed=3, **size).video[None],
        "object": object_clip("bar", "red", velocity=(1.2, 0.3), centre=(14, 20), radius=7, seed=4, **size).video[None],
    }


def value(video, clean, loss=LOSS, sigma=ZERO):
    return float(loss(video, loss.of_clean(clean, sigma)))


def blur(video, size):
    return torch.nn.functional.avg_pool3d(video, (1, size, size), 1, (0, size // 2, size // 2), count_include_pad=False)


@pytest.mark.parametrize("name", clips())
def test_the_clean_clip_costs_nothing_and_what_freezes_fades_or_blurs_it_costs(name):
    clean = clips()[name]
    video = clean.clone().requires_grad_()
    loss = LOSS(video, LOSS.of_clean(clean, ZERO))
    (gradient,) = torch.autograd.grad(loss, video)
    assert float(loss.detach()) == 0 and float(gradient.abs().max()) == 0
    mean = clean.mean(dim=2, keepdim=True)
    faded = [value(mean + share * (clean - mean), clean) for share in (0.9, 0.5, 0.0)]
    assert 0 < faded[0] < faded[1] < faded[2] < value(clean[:, :, :1].expand_as(clean), clean)
    assert 0 < value(blur(clean, 3), clean) < value(blur(clean, 5), clean)


@pytest.mark.parametrize("name", clips())
@pytest.mark.parametrize("kind", ["jitter", "stutter", "reverse", "rubber", "teleport", "shuffle"])
def test_broken_motion_costs_and_more_of_it_costs_more(name, kind):
    clean = clips()[name]
    half, whole = (value(corrupt(clean, kind, strength, seed=1), clean) for strength in (0.5, 1.0))
    assert 0 < half < whole


def test_gradcheck_in_float64():
    clean = object_clip("bar", "red", frames=5, height=9, width=10, radius=2.5, velocity=(0.7, 0.2)).video[None].double()
    video = (clean + 0.1 * torch.rand(clean.shape, generator=torch.Generator().manual_seed(0))).requires_grad_(True)
    known = LOSS.of_clean(clean, ZERO.double())
    assert torch.autograd.gradcheck(lambda pixels: LOSS(pixels, known), (video,), fast_mode=True)


def test_the_blur_of_the_best_prediction_from_noise_costs_less():
    """Latents: the expected error at sigma is subtracted, exactly so for white clips, whose best prediction is g x_t."""
    clean = torch.randn(1, 4, 12, 16, 16, generator=torch.Generator().manual_seed(0))
    aware, unaware = Repaired(LOSS.config, white_noise=True), LOSS
    sigma = torch.tensor([0.3])
    noise = float((sigma / (1 - sigma)).square())
    best = clean / (1 + noise) ** 0.5  # the power of the posterior mean of unit white noise
    assert value(clean, clean, aware, sigma) == 0
    assert value(best, clean, aware, sigma) < 0.02 * value(best, clean, unaware, sigma)
    assert value(best, clean, aware, ZERO) == pytest.approx(value(best, clean, unaware), rel=1e-6)
    assert value(0.5 * clean, clean, aware, sigma) > 0.1


@pytest.mark.parametrize("shape", [(1, 3, 1, 32, 32), (2, 1, 16, 2, 2), (1, 16, 5, 8, 8), (1, 3, 4, 1, 1)])
def test_degenerate_shapes_and_constant_clips_are_finite(shape):
    video = torch.rand(shape, generator=torch.Generator().manual_seed(0), requires_grad=True)
    sigma = torch.full(shape[:1], 0.2)
    for clean in (torch.rand(shape, generator=torch.Generator().manual_seed(1)), torch.zeros(shape), torch.ones(shape)):
        for loss in (LOSS, Repaired(LOSS.config, white_noise=True)):
            values = loss(video, loss.of_clean(clean, sigma))
            (gradient,) = torch.autograd.grad(values.sum(), video)
            assert bool(torch.isfinite(values).all() & torch.isfinite(gradient).all())
            assert float(loss(clean, loss.of_clean(clean, sigma)).abs().max()) == 0
