"""Properties that the calibrated loss must have (design: symmetries, invariances, degenerate inputs, gradients)."""

import itertools

import pytest
import torch

from phys_pipeline.media.synthetic import object_clip, textured_clip
from phys_pipeline.spectral import SpectralConfig, SpectralMotionLoss
from phys_pipeline.spectral.composite import combine

PRESETS = {"calibrated": SpectralConfig.calibrated(), "paper": SpectralConfig.paper()}


def clips() -> dict[str, torch.Tensor]:
    return {
        "translation": textured_clip(velocity=(1.3, -0.7), seed=1).video[None],
        "rotation": textured_clip(rotation=0.09, seed=2).video[None],
        "zoom": textured_clip(zoom=0.03, seed=3).video[None],
        "object": object_clip("bar", "red", velocity=(1.2, 0.3), rotation=0.08, centre=(24, 30), seed=4).video[None],
    }


def jittered(video: torch.Tensor, seed: int = 0) -> torch.Tensor:
    """Roll each frame by a random whole number of pixels: (B, C, T, H, W)."""
    shifts = torch.randint(-3, 4, (video.shape[2], 2), generator=torch.Generator().manual_seed(seed)).tolist()
    return torch.stack([video[:, :, t].roll((dy, dx), (-2, -1)) for t, (dy, dx) in enumerate(shifts)], dim=2)


def scores(video: torch.Tensor, config: SpectralConfig | None = None) -> torch.Tensor:
    output = SpectralMotionLoss(config)(video.double(), "none")
    return torch.stack([output.loss, output.translation, output.rotation, output.scaling])


@pytest.mark.parametrize("name", clips())
@pytest.mark.parametrize(
    "symmetry",
    [
        lambda v: v.flip(-1),
        lambda v: v.flip(-2),
        lambda v: v.flip(2),
        lambda v: v.transpose(-1, -2),
        lambda v: torch.rot90(v, 1, (-2, -1)),
    ],
    ids=["flip x", "flip y", "reverse time", "transpose", "quarter turn"],
)
def test_symmetries_leave_every_loss_unchanged(name, symmetry):
    video = clips()[name]
    torch.testing.assert_close(scores(symmetry(video)), scores(video), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", clips())
def test_a_mirrored_clip_has_the_mirrored_velocity(name):
    loss = SpectralMotionLoss()
    video = clips()[name].double()
    velocity, mirrored = (loss(v, "none").diagnostics["velocity"][0] for v in (video, video.flip(-1)))
    torch.testing.assert_close(mirrored, velocity * torch.tensor([-1.0, 1.0]), atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("name", clips())
def test_brightness_contrast_and_a_still_picture_change_nothing(name):
    video = clips()[name].double()
    base = scores(video)
    torch.testing.assert_close(scores(video + 0.3), base, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(scores(video * 0.4), base, rtol=1e-4, atol=1e-6)
    picture = textured_clip(frames=1, seed=9).video[None].double() - 0.5
    without_floor = SpectralConfig.calibrated(energy_floor=0.0)
    torch.testing.assert_close(
        scores(video + 0.5 * picture, without_floor)[1:], scores(video, without_floor)[1:], rtol=1e-4, atol=1e-6
    )


@pytest.mark.parametrize("name", clips())
def test_jitter_scores_worse_than_the_clean_clip(name):
    video = clips()[name]
    assert (scores(jittered(video))[0] > scores(video)[0] + 0.1).all()


def test_the_printed_loss_prefers_jitter_and_that_is_why_there_are_two_presets():
    video = clips()["translation"]
    printed = SpectralConfig.paper()
    assert scores(jittered(video), printed)[0] < scores(video, printed)[0]


def test_softmin_gradient_is_exactly_the_weights_and_the_printed_one_can_be_negative():
    losses = torch.tensor([[0.1, 0.4, 0.9], [0.5, 0.5, 0.5]], dtype=torch.float64, requires_grad=True)
    composite, weights = combine(losses, SpectralConfig.calibrated())
    (gradient,) = torch.autograd.grad(composite.sum(), losses)
    torch.testing.assert_close(gradient, weights.detach())
    torch.testing.assert_close(weights.sum(1), torch.ones(2, dtype=torch.float64))
    coupled, _ = combine(losses, SpectralConfig.paper())
    (printed,) = torch.autograd.grad(coupled.sum(), losses)
    assert float(printed[0, 1]) < 0  # L_i > L + tau: training would be paid for making that motion worse
    detached, _ = combine(losses, SpectralConfig.calibrated(weighting="detached"))
    (kept,) = torch.autograd.grad(detached.sum(), losses)
    torch.testing.assert_close(kept, weights.detach())


def test_softmin_lies_between_the_smallest_loss_and_the_mean_and_is_zero_at_zero():
    losses = torch.tensor([[0.2, 0.6, 0.7]], dtype=torch.float64)
    composite = float(combine(losses, SpectralConfig())[0])
    assert 0.2 <= composite <= 0.5
    assert float(combine(torch.zeros(1, 3), SpectralConfig())[0]) == 0.0


def test_numerator_only_gradient_equals_finite_differences_with_frozen_denominators():
    """Along the direction that scales the moving part the loss follows its numerator: w r^2 with g, Emax and sums frozen."""
    config = SpectralConfig.calibrated(patches=1)
    video = jittered(clips()["translation"]).double()
    video.requires_grad_(True)
    (gradient,) = torch.autograd.grad(SpectralMotionLoss(config)(video).translation, video)
    # all energies scale together when the moving part does: frozen denominators turn that into d/ds s^2 L = 2 L
    mean = (video * _window(16)).sum(2, keepdim=True) / _window(16).sum()
    along = float((gradient * (video - mean).detach()).sum())
    assert along == pytest.approx(2 * float(SpectralMotionLoss(config)(video.detach()).translation), rel=1e-3)


def _window(frames: int) -> torch.Tensor:
    return (torch.sin(torch.pi * (torch.arange(frames, dtype=torch.float64) + 0.5) / frames) ** 2).view(1, 1, -1, 1, 1)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize(
    "shape",
    [
        (1, 3, 1, 32, 32),
        (1, 3, 2, 32, 32),
        (1, 3, 3, 17, 40),
        (2, 1, 16, 2, 2),
        (1, 4, 16, 33, 20),
        (1, 16, 5, 8, 8),
        (1, 3, 16, 1, 1),
    ],
)
def test_degenerate_shapes_give_finite_losses_and_gradients(preset, shape):
    video = torch.rand(shape, generator=torch.Generator().manual_seed(0), requires_grad=True)
    output = SpectralMotionLoss(PRESETS[preset])(video)
    output.loss.backward()
    values = [
        output.loss,
        output.translation,
        output.rotation,
        output.scaling,
        *output.diagnostics.values(),
        *output.windows.values(),
    ]
    assert all(bool(torch.isfinite(value.float()).all()) for value in values)
    assert bool(torch.isfinite(video.grad).all())


@pytest.mark.parametrize("preset", PRESETS)
def test_one_frame_has_no_loss(preset):
    output = SpectralMotionLoss(PRESETS[preset])(torch.rand(1, 3, 1, 32, 32))
    assert [float(v) for v in (output.loss, output.translation, output.rotation, output.scaling)] == [0, 0, 0, 0]
    assert bool(output.diagnostics["is_static"][0])


def test_scoring_in_inference_mode_does_not_spoil_later_training():
    video = torch.rand(1, 3, 7, 21, 23)  # a shape that no other test has put into the caches
    with torch.inference_mode():
        SpectralMotionLoss()(video)
    video = video.clone().requires_grad_(True)
    SpectralMotionLoss()(video).loss.backward()
    assert bool(torch.isfinite(video.grad).all())


def test_noise_scores_high_and_short_clips_score_lower_than_long_ones():
    """Few frames can't show incoherence: docs/method.md, "Known limits"."""
    generator = torch.Generator().manual_seed(0)
    noise = torch.rand(2, 3, 16, 64, 64, generator=generator)
    three, eight, sixteen = (float(SpectralMotionLoss()(noise[:, :, :frames]).loss) for frames in (3, 8, 16))
    assert three < 0.4 < 0.9 < eight < 1.1 < sixteen


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("fill", [0.0, 0.7, 1.0])
def test_constant_clips_are_static_with_finite_gradient(preset, fill):
    video = torch.full((1, 3, 16, 32, 32), fill, requires_grad=True)
    output = SpectralMotionLoss(PRESETS[preset])(video)
    output.loss.backward()
    assert bool(torch.isfinite(video.grad).all()) and bool(output.diagnostics["is_static"][0])
    if preset == "calibrated":
        assert float(output.loss.detach()) == 0.0 and float(video.grad.abs().max()) == 0.0


def test_a_still_picture_is_static_and_costs_nothing():
    picture = textured_clip(frames=1, seed=4).video[None].expand(-1, -1, 16, -1, -1)
    output = SpectralMotionLoss()(picture)
    assert float(output.loss.detach()) == 0.0 and bool(output.diagnostics["is_static"][0])
    assert float(output.diagnostics["dynamic_degree"]) == 0.0


@pytest.mark.parametrize("factor", [1e-18, 1e-3, 1e4, 1e8, 1e18])
def test_huge_and_tiny_values_score_the_same(factor):
    video = clips()["object"]
    loss = SpectralMotionLoss()
    assert float(loss(video * factor).loss) == pytest.approx(float(loss(video).loss), rel=1e-3)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_scored_in_float32(dtype):
    video = clips()["object"].to(dtype).requires_grad_(True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = SpectralMotionLoss()(video)
    assert output.loss.dtype == torch.float32
    assert float(output.loss.detach()) == pytest.approx(float(SpectralMotionLoss()(video.detach().float()).loss), abs=1e-6)
    output.loss.backward()
    assert video.grad.dtype == dtype and bool(torch.isfinite(video.grad).all())


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_non_finite_input_is_refused(bad):
    video = clips()["object"].clone()
    video[0, 0, 3, 2, 2] = bad
    with pytest.raises(ValueError, match="NaN or infinite"):
        SpectralMotionLoss()(video)


@pytest.mark.parametrize(
    "video", [torch.rand(3, 16, 8, 8), torch.rand(1, 3, 0, 8, 8), torch.zeros(1, 3, 4, 8, 8, dtype=torch.uint8)]
)
def test_wrong_input_is_refused_with_its_shape_or_type(video):
    with pytest.raises(ValueError, match=r"expected a"):
        SpectralMotionLoss()(video)


def test_batch_equals_single_clips():
    pair = torch.cat([clips()["rotation"], clips()["object"]])
    both = SpectralMotionLoss()(pair, "none")
    for index in range(2):
        alone = SpectralMotionLoss()(pair[index : index + 1], "none")
        torch.testing.assert_close(both.loss[index], alone.loss[0], rtol=1e-4, atol=1e-6)
    assert both.weights.shape == (2, 3)
    torch.testing.assert_close(SpectralMotionLoss()(pair).loss, both.loss.mean())


def test_windows_are_reported_and_averaged():
    clip = torch.cat([clips()["translation"], jittered(clips()["translation"])], dim=2)
    output = SpectralMotionLoss()(clip, "none")
    assert output.windows["start"].tolist() == [0, 8, 16]
    assert output.windows["composite"].shape == (1, 3)
    assert float(output.windows["composite"][0, 0]) < float(output.windows["composite"][0, 2])
    torch.testing.assert_close(output.loss, output.windows["composite"].mean(1))


def test_excess_form_is_zero_for_the_reference_itself_and_positive_for_a_worse_clip():
    video = clips()["object"]
    loss = SpectralMotionLoss()
    assert float(loss(video, reference=video).loss) == 0.0
    worse = jittered(video)
    expected = float(loss(worse).loss) - float(loss(video).loss)
    assert float(loss(worse, reference=video).loss) == pytest.approx(expected, abs=1e-5)
    with_margin = SpectralMotionLoss(SpectralConfig.calibrated(margin=0.05))
    assert float(with_margin(worse, reference=video).loss) == pytest.approx(expected - 0.05, abs=1e-5)
    with pytest.raises(ValueError, match="reference has shape"):
        loss(video, reference=video[:, :, :8])


def test_halving_the_speed_does_not_pay():
    """No reward for stillness (design: by more than 0.02 on average)."""
    gains = []
    for seed, (x, y) in itertools.product(range(3), [(1.6, 0.4), (-0.8, 1.2)]):
        full = textured_clip(velocity=(x, y), seed=seed).video[None]
        half = textured_clip(velocity=(x / 2, y / 2), seed=seed).video[None]
        gains.append(float(scores(full)[0] - scores(half)[0]))
    assert sum(gains) / len(gains) < 0.02


def test_fading_the_motion_out_does_not_pay():
    """No reward for stillness: a moving part at 30 % of its contrast over the same still picture."""
    gains = []
    for seed, motion in itertools.product(range(3), [{"velocity": (1.2, 0.5)}, {"rotation": 0.08}, {"zoom": 0.03}]):
        full = object_clip("star", "white", centre=(30.0, 30.0), seed=seed, **motion).video[None]  # type: ignore[arg-type]
        mean = full.mean(dim=2, keepdim=True)
        gains.append(float(scores(full)[0] - scores(mean + 0.3 * (full - mean))[0]))
    assert sum(gains) / len(gains) < 0.02


def track(video: torch.Tensor) -> tuple[float, float]:
    """Mean jerk (second difference) and path length, in pixels, of the centre of the coloured pixels of (1, 3, T, H, W)."""
    weight = (video.amax(1) - video.amin(1) - 0.3).clamp_min(0)[0]
    y, x = torch.meshgrid(*(torch.arange(side, dtype=weight.dtype) for side in weight.shape[1:]), indexing="ij")
    mass = weight.sum((1, 2)).clamp_min(1e-3)
    centre = torch.stack([(weight * x).sum((1, 2)) / mass, (weight * y).sum((1, 2)) / mass], 1)
    step = centre.diff(dim=0)
    return float(step.diff(dim=0).norm(dim=1).mean()), float(step.norm(dim=1).sum())


def test_optimising_the_pixels_of_a_jittered_clip_takes_its_jerk_off():
    """The gradient of the translation slice points home: less jerk, a path of the clean length, no gaming of the normaliser."""
    circle = object_clip("circle", "red", height=32, width=32, radius=6, velocity=(1.0, 0.3), centre=(9, 13), texture=0.0)
    clean = circle.video[None]
    shifts = (torch.randn(16, 2, generator=torch.Generator().manual_seed(3)) * 1.2).round().int().tolist()
    shaken = torch.stack([clean[:, :, t].roll((dy, dx), (-2, -1)) for t, (dy, dx) in enumerate(shifts)], dim=2)
    loss = SpectralMotionLoss(SpectralConfig.calibrated(patches=1))
    pixels = shaken.clone().requires_grad_(True)
    optimiser = torch.optim.Adam([pixels], lr=0.005)
    for _ in range(80):
        optimiser.zero_grad()
        (loss(pixels).translation + 50 * (pixels - shaken).square().mean()).backward()
        optimiser.step()
    (jerk_before, path_before), (jerk, path), (_, path_clean) = track(shaken), track(pixels.detach()), track(clean)
    assert jerk < 0.5 * jerk_before
    assert path_clean - 1 < path < path_clean + 0.5 * (path_before - path_clean)
    reached, floor = float(loss(pixels.detach()).translation), float(loss(clean).translation)
    assert floor - 0.05 < reached < 0.3 * float(loss(shaken).translation)


@pytest.mark.parametrize("weighting", ["softmin", "detached", "coupled"])
def test_slices_that_are_left_out_have_no_weight(weighting):
    losses = torch.rand(5, 3, dtype=torch.float64, requires_grad=True)
    config = SpectralConfig.calibrated(weighting=weighting)
    some = SpectralConfig.calibrated(weighting=weighting, slices=("translation", "scaling"))
    composite, weights = combine(losses, some)
    assert (weights[:, 1] == 0).all() and torch.allclose(weights.sum(dim=1), torch.ones(5, dtype=torch.float64))
    (gradient,) = torch.autograd.grad(composite.sum(), losses)
    assert (gradient[:, 1] == 0).all() and (gradient[:, [0, 2]] != 0).all()
    one = SpectralConfig.calibrated(weighting=weighting, slices=("rotation",))
    assert torch.allclose(combine(losses, one)[0], losses[:, 1])
    none, weights = combine(losses, SpectralConfig.calibrated(weighting=weighting, slices=()))
    assert (none == 0).all() and (weights == 0).all()
    everything = SpectralConfig.calibrated(weighting=weighting, slices=("translation", "rotation", "scaling"))
    assert everything == config and torch.equal(combine(losses, everything)[0], combine(losses, config)[0])


@pytest.mark.parametrize("preset", ["calibrated", "paper"])
@pytest.mark.parametrize("shape", [(2, 4, 16, 8, 8), (1, 3, 20, 24, 32)])
def test_losses_alone_are_those_of_the_whole_output(preset, shape):
    generator = torch.Generator().manual_seed(0)
    video, clean = (torch.rand(shape, generator=generator, dtype=torch.float64).cumsum(dim=2) for _ in range(2))
    loss = SpectralMotionLoss(getattr(SpectralConfig, preset)())
    gradients = []
    for score in (lambda x, c=None: loss(x, "none", c).loss, loss.losses):
        hat = video.clone().requires_grad_()
        values = score(hat), score(hat, clean), score(hat, score(clean)), score(clean, clean)
        assert torch.equal(values[1], values[2]) and float(values[3].abs().max()) == 0
        gradients.append((torch.stack(values[:2]).detach(), *torch.autograd.grad(torch.cat(values).sum(), hat)))
    torch.testing.assert_close(*gradients, rtol=1e-9, atol=1e-12)
