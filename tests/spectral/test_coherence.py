"""Phase coherence: constant phase steps cost nothing at any speed, changing ones do, and added coherent energy doesn't pay."""

import math

import pytest
import torch

from phys_pipeline.media.corruptions import corrupt
from phys_pipeline.media.synthetic import object_clip, textured_clip
from phys_pipeline.spectral import SpectralConfig, SpectralMotionLoss
from phys_pipeline.spectral.coherence import coherence_loss

CONFIG = SpectralConfig.calibrated()
ONE = torch.ones(1, 1, dtype=torch.float64)


def neighbours(spectrum):
    """Cross-spectra (N, T - 1, Ky, Kx) of (N, C, T, Ky, Kx)."""
    return (spectrum[:, :, 1:] * spectrum[:, :, :-1].conj()).sum(dim=1)


def coherence(phases, floor=0.0):
    """One bin of unit amplitude with the given phases."""
    spectrum = torch.polar(torch.ones(len(phases), dtype=torch.float64), torch.tensor(phases, dtype=torch.float64))
    return float(
        coherence_loss(neighbours(spectrum.view(1, 1, -1, 1, 1)), ONE, torch.full((1,), floor, dtype=torch.float64), CONFIG)
    )


@pytest.mark.parametrize("step", [0.0, 0.3, -2.0, 3.1, 6.0])
def test_constant_steps_are_coherent_at_any_speed_even_aliased(step):
    assert coherence([step * t for t in range(9)]) == pytest.approx(0.0, abs=1e-12)


def test_known_values():
    there_and_back = [0.5 * t for t in range(5)] + [0.5 * (3 - t) for t in range(4)]  # four steps of 0.5, four of -0.5
    assert coherence(there_and_back) == pytest.approx(1 - math.cos(0.5), rel=1e-9)
    quarter_turns = [0.0, 0.0, math.pi / 2, math.pi / 2, math.pi, math.pi]  # steps 0, 90, 0, 90, 0 degrees
    assert coherence(quarter_turns) == pytest.approx(1 - math.sqrt(9 + 4) / 5, rel=1e-9)
    assert coherence([0.0, 1.0]) == coherence([0.0]) == 0.0
    assert coherence(there_and_back, floor=1.0) == pytest.approx((1 - math.cos(0.5)) / 2, rel=1e-9)


def test_each_frequency_has_its_own_rate_and_time_may_run_backwards():
    generator = torch.Generator().manual_seed(0)
    rates, amplitudes = 6 * torch.rand(1, 1, 1, 4, 5, generator=generator), torch.rand(1, 1, 1, 4, 5, generator=generator)
    even = torch.polar(amplitudes.expand(1, 1, 7, 4, 5).contiguous(), rates * torch.arange(7).view(1, 1, 7, 1, 1))
    weights = torch.ones(4, 5)
    assert float(coherence_loss(neighbours(even), weights, torch.zeros(1), CONFIG)) == pytest.approx(0.0, abs=1e-5)
    noise = torch.randn(2, 3, 7, 4, 5, dtype=torch.complex64, generator=generator)
    forwards, backwards = (coherence_loss(neighbours(x), weights, torch.zeros(2), CONFIG) for x in (noise, noise.flip(2)))
    assert torch.allclose(forwards, backwards, atol=1e-6) and float(forwards.min()) > 0.2 and float(forwards.max()) <= 1


@pytest.mark.parametrize("motion", [{"velocity": (1.3, 0.4)}, {"rotation": 0.06}, {"zoom": 0.02}])
def test_even_motion_scores_below_every_interruption(motion):
    loss = SpectralMotionLoss()
    for clip in (
        textured_clip(**motion, seed=3).video[None],
        object_clip("star", "white", centre=(30.0, 30.0), **motion).video[None],
    ):
        clean = float(loss(clip, "none").diagnostics["coherence"])
        for kind in ("jitter", "shuffle", "walk", "reverse", "stutter"):
            assert float(loss(corrupt(clip, kind, 1.0, seed=0), "none").diagnostics["coherence"]) > clean + 0.01, kind


def test_more_energy_of_the_same_kind_costs_more_unless_gradients_pass_the_denominator():
    spectrum = torch.randn(1, 2, 6, 4, 5, dtype=torch.complex128, generator=torch.Generator().manual_seed(1))
    for gradient, expected in (("numerator", 2.0), ("full", 0.0)):
        gain = torch.ones((), dtype=torch.float64, requires_grad=True)
        config = SpectralConfig.calibrated(gradient=gradient)
        value = coherence_loss(neighbours(gain * spectrum), ONE.expand(4, 5), torch.zeros(1, dtype=torch.float64), config)
        assert float(torch.autograd.grad(value.sum(), gain)[0]) == pytest.approx(expected * float(value.detach()), abs=1e-9)


def test_gradient_is_finite_where_nothing_moves():
    broken = corrupt(textured_clip(velocity=(1.0, 0.3), seed=4).video[None], "stutter", 1.0, seed=0)
    for video in (broken, torch.full((1, 3, 16, 32, 32), 0.5)):
        leaf = video.clone().requires_grad_(True)
        SpectralMotionLoss(SpectralConfig.calibrated(coherence_weight=1.0))(leaf).loss.backward()
        assert torch.isfinite(leaf.grad).all()


def test_the_weight_adds_the_term_and_the_paper_has_none():
    clip = corrupt(textured_clip(velocity=(1.0, 0.5), seed=2).video[None], "jitter", 1.0, seed=0)
    without, with_it = (
        SpectralMotionLoss(SpectralConfig.calibrated(pace_weight=0.0, coherence_weight=w))(clip, "none") for w in (0.0, 0.5)
    )
    assert float(with_it.loss - without.loss) == pytest.approx(0.5 * float(with_it.diagnostics["coherence"]), abs=1e-6)
    assert float(without.diagnostics["coherence"]) == 0.0 and SpectralConfig.paper().coherence_weight == 0.0
