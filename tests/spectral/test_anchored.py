"""Properties of the anchored loss: its only minimum is the reference, and errors that break the motion cost more."""

import pytest
import torch

from phys_pipeline.media.corruptions import corrupt
from phys_pipeline.media.synthetic import object_clip, textured_clip
from phys_pipeline.spectral import AnchoredMotionLoss, SpectralConfig
from phys_pipeline.spectral.blocks import fades

LOSS = AnchoredMotionLoss()


def clips() -> dict[str, torch.Tensor]:
    size = {"height": 48, "width": 48}
    return {
        "translation": textured_clip(velocity=(1.3, -0.7), seed=1, **size).video[None],
        "rotation": textured_clip(rotation=0.09, seed=2, **size).video[None],
        "zoom": textured_clip(zoom=0.03, seed=3, **size).video[None],
        "object": object_clip("bar", "red", velocity=(1.2, 0.3), centre=(14, 20), radius=7, seed=4, **size).video[None],
    }


def value(video: torch.Tensor, reference: torch.Tensor) -> float:
    return float(LOSS(video, reference))


@pytest.mark.parametrize("name", clips())
def test_the_reference_itself_costs_nothing_and_has_no_gradient(name):
    clean = clips()[name]
    video = clean.clone().requires_grad_(True)
    loss = LOSS(video, clean)
    loss.backward()
    assert float(loss.detach()) == 0.0 and float(video.grad.abs().max()) == 0.0


def test_it_lies_between_the_manifold_weight_and_one_times_the_relative_squared_error():
    """So it is positive wherever the clip differs from its reference, at borders and ends and at every frequency."""
    generator = torch.Generator().manual_seed(0)
    for name, clean in clips().items():
        clean = clean.double()
        noise = torch.randn(clean.shape, generator=generator, dtype=torch.float64)
        corner = torch.zeros_like(clean)
        corner[:, :, 0, 0, 0] = 1.0
        for error in (noise, noise.mean(2, keepdim=True).expand_as(noise), torch.ones_like(noise), corner):
            whole = float(AnchoredMotionLoss(manifold_weight=1.0)(clean + error, clean))
            assert 0.3 * whole * (1 - 1e-9) <= value(clean + error, clean) <= whole * (1 + 1e-9), name
            mean = clean.mean(2, keepdim=True)
            contrast = (mean - mean.mean((3, 4), keepdim=True)).square().sum() * clean.shape[2]
            energy = (clean - mean).square().sum() + 0.1 * contrast
            assert whole == pytest.approx(float(error.square().sum() / energy), rel=1e-9)


@pytest.mark.parametrize(
    ("length", "size", "starts"),
    [(48, 24, (0, 12, 24)), (49, 25, (0, 12, 24)), (30, 16, (0, 8, 14)), (5, 5, (0,)), (2, 1, (0, 1))],
)
def test_squared_fades_sum_to_one(length, size, starts):
    total = torch.zeros(length, dtype=torch.float64)
    for start, weight in zip(starts, fades(length, size, starts, torch.device("cpu"), torch.float64), strict=True):
        total[start : start + size] += weight.square()
    torch.testing.assert_close(total, torch.ones_like(total))


def test_gradcheck_in_float64():
    clean = object_clip("bar", "red", frames=5, height=9, width=10, radius=2.5, velocity=(0.7, 0.2)).video[None].double()
    video = (clean + 0.1 * torch.rand(clean.shape, generator=torch.Generator().manual_seed(0))).requires_grad_(True)
    assert torch.autograd.gradcheck(lambda pixels: LOSS(pixels, clean), (video,), fast_mode=True)


@pytest.mark.parametrize("name", clips())
@pytest.mark.parametrize("kind", ["jitter", "stutter", "reverse", "rubber", "teleport"])
def test_broken_motion_costs_and_more_of_it_costs_more(name, kind):
    clean = clips()[name]
    half, whole = (value(corrupt(clean, kind, strength, seed=1), clean) for strength in (0.5, 1.0))
    assert 0 < half < whole


@pytest.mark.parametrize("name", clips())
def test_fading_freezing_and_painting_do_not_pay(name):
    clean = clips()[name]
    mean = clean.mean(2, keepdim=True)
    faded = [value(mean + share * (clean - mean), clean) for share in (0.9, 0.5, 0.0)]
    assert 0 < faded[0] < faded[1] < faded[2]
    assert value(clean[:, :, :1].expand_as(clean), clean) > faded[2]  # its first frame for ever
    paint = textured_clip(velocity=(1.3, -0.7), height=48, width=48, seed=8).video[None] - 0.5
    painted = [value(clean + amount * paint, clean) for amount in (0.1, 0.2)]
    assert 0 < painted[0] < painted[1]


def test_painting_a_broken_clip_along_the_clean_motion_does_not_pay():
    clean = clips()["translation"]
    broken = corrupt(clean, "jitter", 1.0, seed=1)
    paint = textured_clip(velocity=(1.3, -0.7), height=48, width=48, seed=8).video[None] - 0.5
    assert value(broken + 0.2 * paint, clean) > value(broken, clean)


@pytest.mark.parametrize("name", ["translation", "rotation", "zoom"])
def test_an_error_off_the_motion_costs_more_than_one_on_it(name):
    """The same pictures in another order carry the same energy: a share of a clip's own motion, or of it played backwards."""
    clean = clips()[name]
    on_it = 0.3 * (clean - clean.mean(2, keepdim=True))
    order = torch.randperm(clean.shape[2], generator=torch.Generator().manual_seed(0))
    for off_it in (on_it.flip(2), on_it[:, :, order]):
        assert value(clean + off_it, clean) > 1.3 * value(clean + on_it, clean)


@pytest.mark.parametrize(
    "symmetry",
    [lambda v: v.flip(-1), lambda v: v.flip(-2), lambda v: v.flip(2), lambda v: v.transpose(-1, -2)],
    ids=["flip x", "flip y", "reverse time", "transpose"],
)
def test_symmetries(symmetry):
    clean = clips()["object"].double()
    broken = corrupt(clean, "jitter", 0.5, seed=2)
    assert value(symmetry(broken), symmetry(clean)) == pytest.approx(value(broken, clean), rel=2e-3)  # the sign of a Nyquist bin


def test_contrast_and_brightness_change_nothing():
    clean = clips()["object"].double()
    broken = corrupt(clean, "jitter", 0.5, seed=2)
    assert value(0.2 * broken + 3, 0.2 * clean + 3) == pytest.approx(value(broken, clean), rel=1e-6)


@pytest.mark.parametrize("shape", [(1, 3, 1, 32, 32), (1, 3, 2, 17, 40), (2, 1, 16, 2, 2), (1, 16, 5, 8, 8), (1, 3, 16, 1, 1)])
def test_degenerate_shapes_and_constant_clips_are_finite(shape):
    video = torch.rand(shape, generator=torch.Generator().manual_seed(0), requires_grad=True)
    for reference in (torch.rand(shape, generator=torch.Generator().manual_seed(1)), torch.zeros(shape), torch.ones(shape)):
        loss = LOSS(video, reference)
        (gradient,) = torch.autograd.grad(loss, video)
        assert float(loss.detach()) > 0 and bool(torch.isfinite(gradient).all())
        assert float(LOSS(reference, reference)) == 0.0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(dtype):
    clean = clips()["object"].to(dtype)
    video = corrupt(clips()["object"], "jitter", seed=1).to(dtype).requires_grad_(True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = LOSS(video, clean)
    assert loss.dtype == torch.float32
    assert float(loss.detach()) == pytest.approx(value(video.detach().float(), clean.float()), rel=1e-6)
    loss.backward()
    assert video.grad.dtype == dtype and bool(torch.isfinite(video.grad).all())


def test_batch_equals_single_clips_and_the_mean_is_theirs():
    clean = torch.cat([clips()["rotation"], clips()["object"]])
    broken = corrupt(clean, "jitter", seed=1)
    both = LOSS(broken, clean, "none")
    alone = torch.stack([LOSS(broken[i : i + 1], clean[i : i + 1]) for i in range(2)])
    torch.testing.assert_close(both, alone)
    torch.testing.assert_close(LOSS(broken, clean), both.mean())


def test_wrong_input_is_refused():
    clean = clips()["object"]
    with pytest.raises(ValueError, match="expected two videos"):
        LOSS(clean, clean[:, :, :8])
    with pytest.raises(ValueError, match="NaN or infinite"):
        LOSS(clean * float("nan"), clean)
    with pytest.raises(ValueError, match="manifold_weight"):
        AnchoredMotionLoss(SpectralConfig(), manifold_weight=0.0)
    with pytest.raises(ValueError, match="reduction"):
        LOSS(clean, clean, "sum")
