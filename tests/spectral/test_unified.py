import math

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from phys_pipeline.media.synthetic import object_clip, textured_clip
from phys_pipeline.spectral import SpectralConfig, SpectralMotionLoss
from phys_pipeline.spectral.band import closed_form_slope
from phys_pipeline.spectral.lattice import spatial_spectrum
from phys_pipeline.spectral.polar import PolarGeometry, ring_energy
from phys_pipeline.spectral.scaling import scaling_proxies
from phys_pipeline.spectral.translation import weighted_plane
from phys_pipeline.spectral.unified import SpectralSamples, clip_samples, robust_loss, robust_weight, unified_residual

TRUTH = torch.tensor([0.7, -1.2, 0.05, 0.02, 0.1], dtype=torch.float64)
LOSSES = ("squared", "huber", "charbonnier")
slow = [HealthCheck.too_slow]  # a busy machine is no failure
examples = settings(deadline=None, max_examples=25, derandomize=True, database=None, suppress_health_check=slow)


def joint_samples(seed: int, truth: torch.Tensor = TRUTH, blocks: int = 2, count: int = 80, wrapped: bool = False):
    """One joint lattice with every column active; omega_t exactly on the hyperplane of ``truth``."""
    generator = torch.Generator().manual_seed(seed)
    design = torch.randn(count, 5, dtype=torch.float64, generator=generator) * torch.tensor([0.4, 0.4, 4.0, 6.0, 0.0])
    design[:, 4] = 1
    omega_t = -(design @ truth)
    if wrapped:
        omega_t = torch.remainder(omega_t + math.pi, 2 * math.pi) - math.pi
    weights = torch.rand(blocks, count, dtype=torch.float64, generator=generator)
    start = (truth + 0.01 * torch.randn(5, dtype=torch.float64, generator=generator)).expand(blocks, 5)
    members = torch.ones(3, count, dtype=torch.bool)
    return SpectralSamples(design, omega_t, weights / weights.sum(1, keepdim=True), members, 1, start, 16)


@pytest.mark.parametrize("loss", LOSSES)
def test_a_hyperplane_is_found_exactly(loss):
    result = unified_residual(joint_samples(0), ridge=0.0, loss=loss, wrap=False)
    torch.testing.assert_close(result.parameters, TRUTH.expand(2, 5), atol=1e-4 if loss == "squared" else 0.02, rtol=0)
    assert float(result.residual.max()) < 1e-3
    assert result.velocity.shape == (2, 2) and result.rotation.shape == result.zoom.shape == result.offset.shape == (2,)


def test_a_wrapped_hyperplane_is_found_only_with_distances_modulo_the_period():
    samples = joint_samples(1, truth=5 * TRUTH, wrapped=True)
    assert float((samples.omega_t + samples.design @ (5 * TRUTH)).abs().max()) > 6  # some samples did wrap
    found = unified_residual(samples, ridge=0.0)
    torch.testing.assert_close(found.parameters, (5 * TRUTH).expand(2, 5), atol=1e-5, rtol=0)
    assert float(found.residual.max()) < 1e-9 < 0.1 < float(unified_residual(samples, ridge=0.0, wrap=False).residual.min())


@given(seed=st.integers(0, 10**6), noise=st.floats(0, 2), ridge=st.sampled_from([0.0, 1e-3, 0.1]))
@examples
def test_no_slice_of_the_same_samples_fits_better_than_the_whole(seed, noise, ridge):
    """Clamping columns can only raise the minimum: L_uni <= each slice (with the ridge on both sides)."""
    samples = joint_samples(seed)
    jitter = noise * torch.randn(80, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    result = unified_residual(samples._replace(omega_t=samples.omega_t + jitter), ridge=ridge, wrap=False)
    whole = result.residual + ridge * result.parameters.square().sum(1)
    for index, columns in enumerate(((0, 1, 4), (2,), (3,))):
        part = result.slice_residuals[:, index] + ridge * result.slice_parameters[:, list(columns)].square().sum(1)
        assert bool((whole <= part * (1 + 1e-9) + 1e-7).all())


def test_a_slice_alone_misses_what_the_other_columns_explain():
    result = unified_residual(joint_samples(0), ridge=0.0, wrap=False)
    assert float(result.residual.max()) < 1e-9 < 0.04 < float(result.slice_residuals.min())


@pytest.mark.parametrize("loss", ["huber", "charbonnier"])
def test_robust_losses_resist_outliers(loss):
    errors = {name: [] for name in ("squared", loss)}
    for seed in range(10):
        samples = joint_samples(seed, blocks=1)
        generator = torch.Generator().manual_seed(seed)
        bad = torch.rand(80, generator=generator) < 0.15
        moved = samples.omega_t + bad * 3.0 * (0.5 + torch.rand(80, dtype=torch.float64, generator=generator))
        for name in errors:
            found = unified_residual(samples._replace(omega_t=moved), ridge=1e-6, loss=name, wrap=False).parameters
            errors[name].append(float((found - TRUTH)[:, :2].norm()))
    assert sum(errors[loss]) < 0.6 * sum(errors["squared"])


@pytest.mark.parametrize("loss", LOSSES)
def test_weights_are_the_derivative_of_the_loss(loss):
    residual = torch.tensor([-3.0, -0.4, -0.1, 0.2, 0.39, 0.41, 2.0], dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(robust_loss(residual, loss, 0.4).sum(), residual)
    torch.testing.assert_close(slope, 2 * residual.detach() * robust_weight(residual.detach(), loss, 0.4))
    small = torch.tensor(1e-4, dtype=torch.float64)
    assert float(robust_loss(small, loss, 0.4)) == pytest.approx(1e-8, rel=1e-6)


@pytest.fixture(scope="module")
def turning():
    return clip_samples(textured_clip(rotation=0.05, velocity=(0.3, 0.2), seed=5).video.double()[None])


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("wrap", [False, True])
def test_on_the_slices_lattices_the_whole_is_the_sum_of_its_parts(turning, loss, wrap):
    result = unified_residual(turning, loss=loss, wrap=wrap)
    torch.testing.assert_close(result.parameters, result.slice_parameters, atol=1e-10, rtol=1e-8)
    torch.testing.assert_close(result.residual, result.slice_residuals.mean(1), atol=1e-12, rtol=1e-9)


def test_slices_are_the_stand_alone_fits_on_the_same_samples(turning):
    result = unified_residual(turning, ridge=0.0, wrap=False)
    for index, columns in enumerate(((0, 1, 4), (2,), (3,))):
        mine = turning.members[index]
        weights, design = turning.weights[:, mine], turning.design[mine][:, list(columns)]
        target = -turning.omega_t[mine].expand(1, -1)
        plane = weighted_plane(weights, design, target, 0.0)
        torch.testing.assert_close(result.slice_parameters[:, list(columns)], plane)
        expected = (weights * (plane @ design.T - target) ** 2).sum(1)
        torch.testing.assert_close(result.slice_residuals[:, index], expected)
        if index:  # the closed form through the origin, in bins per harmonic
            harmonics = design[: len(design) // 16, 0]
            bins = turning.omega_t[mine].view(16, -1)[:, 0] * 16 / (2 * math.pi)
            slope = closed_form_slope(weights.view(1, 16, -1), bins, harmonics) * 2 * math.pi / 16
            torch.testing.assert_close(result.slice_parameters[:, columns[0]], slope, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("wrap", [False, True])
def test_samples_are_those_of_the_loss(wrap):
    clip = textured_clip(velocity=(1.3, 0.4), rotation=0.03, seed=2).video.double()[None]
    config = SpectralConfig.calibrated(patches=1, normalise=False, ridge=0.0, slope="closed_form", wrap=wrap)
    loss = SpectralMotionLoss(config)(clip, "none")
    result = unified_residual(clip_samples(clip, config), ridge=0.0, wrap=wrap)
    torch.testing.assert_close(result.slice_residuals[:, 0] / math.pi**2, loss.translation, rtol=1e-5, atol=0)
    if not wrap:
        torch.testing.assert_close(result.rotation, loss.diagnostics["rotation"], rtol=1e-6, atol=0)
        torch.testing.assert_close(result.zoom, loss.diagnostics["zoom"], rtol=1e-6, atol=0)


@pytest.mark.parametrize("velocity", [(1.5, -0.6), (-0.8, 1.1), (5.0, 1.0)])
@pytest.mark.parametrize("loss", LOSSES)
def test_velocity_of_a_clip(velocity, loss):
    clip = textured_clip(velocity=velocity, seed=3).video[None]
    result = unified_residual(clip_samples(clip), loss=loss)
    assert math.dist(result.velocity[0].tolist(), velocity) < 0.08 * math.hypot(*velocity)


@pytest.mark.parametrize("lattice", ["slices", "mellin"])
@pytest.mark.parametrize("rotation", [0.1, -0.12, 0.15])
def test_rotation_of_a_clip(rotation, lattice):
    clip = textured_clip(rotation=rotation, seed=3).video[None]
    assert float(unified_residual(clip_samples(clip, lattice=lattice)).rotation) == pytest.approx(rotation, rel=0.15)


@pytest.mark.parametrize("zoom", [0.03, -0.03])
def test_zoom_of_an_object_has_the_right_sign_and_is_biased_high(zoom):
    clip = object_clip("star", "red", zoom=zoom, radius=9.0 if zoom > 0 else 14.0, angle=0.4, seed=1).video[None]
    for lattice in ("slices", "mellin"):
        found = float(unified_residual(clip_samples(clip, lattice=lattice)).zoom)
        assert 1.0 < found / zoom < 1.8


def test_a_joint_lattice_does_not_take_rotation_for_zoom():
    clip = object_clip("square", "red", rotation=0.08, texture=0.06, angle=0.4, seed=1).video[None]
    separate, joint = (unified_residual(clip_samples(clip, lattice=lattice), loss="huber") for lattice in ("slices", "mellin"))
    assert abs(float(joint.zoom)) < 0.5 * abs(float(separate.zoom))
    assert float(joint.residual) < float(separate.residual)


@pytest.mark.parametrize("lattice", ["slices", "mellin"])
def test_noise_leaves_many_times_the_residual_of_motion(lattice):
    noise = torch.rand(1, 3, 16, 64, 64, generator=torch.Generator().manual_seed(0))
    moving = object_clip("square", "red", velocity=(1.0, 0.5), seed=1).video[None]
    residuals = unified_residual(clip_samples(torch.cat([moving, noise]), lattice=lattice)).residual
    assert float(residuals[0]) < 0.25 * float(residuals[1])
    alone = unified_residual(clip_samples(noise, lattice=lattice)).residual
    torch.testing.assert_close(residuals[1:], alone, rtol=1e-4, atol=0)  # blocks do not see each other


def test_printed_scaling_proxies_have_no_bound_in_either_direction():
    perfect = torch.ones(1, 16, 20, dtype=torch.float64)  # a zooming scale-free texture: ring energies never change
    flow, trend = scaling_proxies(perfect)
    assert float(1 - (flow + trend) / 2) == pytest.approx(1, abs=1e-6)  # residual 0, printed loss 1
    clip = textured_clip(zoom=0.03, height=65, width=65, seed=4).video.double()[None]
    quarters = torch.randint(4, (16,), generator=torch.Generator().manual_seed(0)).tolist()
    broken = torch.stack([frame.rot90(k, (-2, -1)) for frame, k in zip(clip.unbind(2), quarters, strict=True)], dim=2)
    config, kept = SpectralConfig.calibrated(), tuple(range(-9, 10))
    proxies = []
    for video in (clip, broken):
        power = spatial_spectrum(video, kept, tuple(range(10))).abs().square().sum(dim=1).flatten(-2)  # (1, T, K)
        proxies.append(torch.stack(scaling_proxies(ring_energy(power, PolarGeometry(65, 65, 9, 9), config))))
    torch.testing.assert_close(proxies[0], proxies[1])  # frames turned at random: the same rings, the same printed loss
    zoom, noise = (float(unified_residual(clip_samples(video)).slice_residuals[0, 2]) for video in (clip, broken))
    assert noise > 2 * zoom


@pytest.mark.parametrize("loss", LOSSES)
def test_full_gradients_are_exact_and_numerator_gradients_never_reward_energy(loss):
    samples = joint_samples(4, count=30)
    moved = samples._replace(omega_t=samples.omega_t + 0.3 * torch.sin(torch.arange(30, dtype=torch.float64)))

    def residual(weights: torch.Tensor) -> torch.Tensor:
        return unified_residual(moved._replace(weights=weights), loss=loss, gradient="full").residual

    assert torch.autograd.gradcheck(residual, (moved.weights.clone().requires_grad_(True),))
    weights = moved.weights.clone().requires_grad_(True)
    (slope,) = torch.autograd.grad(unified_residual(moved._replace(weights=weights), loss=loss).residual.sum(), weights)
    assert float(slope.min()) >= 0 and float(slope.max()) > 0


@pytest.mark.parametrize("lattice", ["slices", "mellin"])
@pytest.mark.parametrize("shape", [(1, 1, 1, 8, 8), (2, 3, 2, 8, 8), (1, 1, 16, 2, 2), (1, 2, 5, 9, 14), (1, 1, 3, 33, 20)])
def test_any_size_gives_finite_values_and_gradients(shape, lattice):
    blocks = torch.rand(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_(True)
    result = unified_residual(clip_samples(blocks, lattice=lattice))
    assert result.residual.dtype == torch.float64 and result.parameters.shape == (shape[0], 5)
    result.residual.sum().backward()
    assert bool(torch.isfinite(result.parameters).all()) and bool(torch.isfinite(blocks.grad).all())
    assert shape[2] == 1 or float(result.residual.detach().min()) > 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_a_still_clip_has_no_residual(dtype):
    still = torch.rand(1, 3, 1, 16, 16, generator=torch.Generator().manual_seed(2)).expand(-1, -1, 16, -1, -1).to(dtype)
    result = unified_residual(clip_samples(still))
    assert result.residual.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert float(result.residual) < 1e-6 and float(result.parameters.abs().max()) < 0.5


def test_what_cannot_be_fitted_is_refused():
    samples = joint_samples(0)
    with pytest.raises(ValueError, match="loss='cauchy'"):
        unified_residual(samples, loss="cauchy")
    with pytest.raises(ValueError, match="scale must be positive"):
        unified_residual(samples, loss="huber", scale=0.0)
    with pytest.raises(ValueError, match="truncation='signed'"):
        clip_samples(torch.rand(1, 1, 4, 8, 8), SpectralConfig.paper())
    with pytest.raises(ValueError, match="finite blocks"):
        clip_samples(torch.full((1, 1, 4, 8, 8), math.nan))
