import math
from itertools import pairwise

import pytest
import torch

from phys_pipeline.noise_path import RectifiedFlow, VariancePreserving
from phys_pipeline.spectral import SpectralConfig, SpectralMotionLoss
from training.objectives.sampled import LARGEST_STEP, Sampled, band_power, deviation

LOSS = SpectralMotionLoss(SpectralConfig.calibrated())
FLOW = RectifiedFlow()


def square(frames=16, size=32, wobble=0.0, seed=0):
    """A soft square that moves right, each frame displaced by `wobble` pixels of noise: (1, 1, T, H, W) in [0, 1]."""
    generator = torch.Generator().manual_seed(seed)
    places = 8 + torch.arange(frames) + wobble * torch.randn(frames, generator=generator)  # (T,)
    across = torch.sigmoid(4 - (torch.arange(size)[None] - places[:, None]).abs())  # (T, W)
    down = torch.sigmoid(4 - (torch.arange(size) - 16).abs())  # (H,)
    return (across[:, None, :] * down[None, :, None])[None, None]


def towards(video, path=FLOW):
    """A network that predicts `video` from whatever it is given."""

    def predict(x, sigma):
        if isinstance(path, RectifiedFlow):
            return (x - video) / sigma.view(-1, 1, 1, 1, 1)
        none, level = torch.zeros_like(x), sigma
        noise = (x - path.corrupt(video.expand_as(x), none, level)) / path.corrupt(none, torch.ones_like(x), level)
        return path.target(video.expand_as(x), noise, level)

    return predict


def objective(path=FLOW, **settings):
    return Sampled(LOSS, path, **{"steps": 5, "levels": 2, "shift": 3.0, "keep": 0.0, **settings})


def no_base(x, sigma):
    raise AssertionError("no base video was asked for")


def test_its_steps_are_eulers_on_a_rectified_flow():
    noise, sampler = torch.randn(2, 1, 4, 6, 6), objective(steps=7)

    def predict(x, sigma):
        return torch.sin(x) * sigma.view(-1, 1, 1, 1, 1)

    x, levels = noise, [*(3 * u / (1 + 2 * u) for u in torch.linspace(1, 0, 8)[:-1].tolist()), 0.0]
    for now, after in pairwise(levels):
        x = x + (after - now) * predict(x, torch.full((2,), now))
    path = sampler.sample(predict, noise)
    assert len(path) == 8 and torch.equal(path[0], noise) and torch.allclose(path[-1], x, atol=1e-5)


@pytest.mark.parametrize("prediction", ["v", "eps"])
def test_a_variance_preserving_path_ends_at_what_the_network_believes_in(prediction):
    path = VariancePreserving(torch.linspace(0.9999, 0.0001, 100), prediction)
    video = square(frames=4, size=8)
    found = objective(path, shift=1.0).sample(towards(video, path), torch.randn(1, 1, 4, 8, 8))
    assert torch.allclose(found[-1], video, atol=1e-3) and not torch.allclose(found[-2], video, atol=0.1)


def test_the_value_is_the_loss_of_the_video_that_is_sampled_and_what_is_held_costs_nothing_where_nothing_changes():
    video, noise = square(wobble=1.0), torch.randn(2, 1, 16, 32, 32)
    bare = objective()(towards(video), no_base, noise, [0, 1])
    assert torch.allclose(bare.values, LOSS.losses(video).expand(2), atol=1e-4) and bare.skipped == 0
    assert bare.loss.item() == pytest.approx(bare.values.mean().item())
    held = objective(keep=5.0)(towards(video), towards(video), noise, [0, 1])
    assert torch.allclose(held.values, bare.values, atol=1e-5)
    still = video[:, :, :1].expand_as(video)
    assert (
        objective(keep=5.0)(towards(still), towards(video), noise, [0, 1]).loss > bare.loss
    )  # stillness has loss 0 and doesn't pay


@pytest.mark.parametrize("levels", [1, 3, 5])
def test_the_gradient_at_the_video_is_handed_to_x0_hat_at_the_drawn_levels(levels):
    noise = torch.randn(2, 1, 16, 32, 32, generator=torch.Generator().manual_seed(1))
    target, sampler, seen = square(wobble=0.5), objective(levels=levels), []
    change = torch.zeros(2, 1, 16, 32, 32, requires_grad=True)

    def predict(x, sigma):
        assert not x.requires_grad
        seen.append((torch.is_grad_enabled(), sigma))
        return (x - target - change) / sigma.view(-1, 1, 1, 1, 1)  # x0-hat is target + change at every level

    sampler(predict, no_base, noise, [7, 8]).loss.backward()
    drawn = [sigma for gradients, sigma in seen if gradients]
    assert len(seen) == 5 + levels and len(drawn) == levels
    for row in range(2):
        assert len({float(sigma[row]) for sigma in drawn}) == levels  # none twice
    with torch.no_grad():
        videos = sampler.sample(predict, noise)[-1]  # the target but for rounding, which this gradient can feel
    for row, video in enumerate(videos.split(1)):
        leaf = video.clone().requires_grad_()
        (slope,) = torch.autograd.grad(LOSS.losses(leaf).sum(), leaf)
        limit = min(1.0, LARGEST_STEP / (leaf.norm() * slope.norm()).item())
        assert torch.allclose(change.grad[row : row + 1], slope * limit / 2, atol=1e-6) and change.grad[row].norm() > 0.1


def test_a_samples_levels_depend_on_its_seed_alone():
    sampler = objective(levels=2, steps=10)
    path = [torch.full((2, 1, 3, 4, 4), float(step)) for step in range(11)]
    together = list(sampler._drawn(path, [3, 4]))
    alone = list(sampler._drawn([x[1:] for x in path], [4]))
    for (sigma, x), (own_sigma, own_x) in zip(together, alone, strict=True):
        assert torch.equal(sigma[1:], own_sigma) and torch.equal(x[1:], own_x)
        assert [sampler.sigmas[int(x[row, 0, 0, 0, 0])] for row in range(2)] == pytest.approx(sigma.tolist())


def test_following_the_gradient_removes_jitter_and_keeps_the_motion():
    shaken, noise = square(wobble=1.5, seed=3), torch.randn(1, 1, 16, 32, 32, generator=torch.Generator().manual_seed(0))
    change = torch.zeros_like(shaken, requires_grad=True)
    optimizer, sampler = torch.optim.Adam([change], lr=0.02), objective(keep=1.0)
    values = []
    for _ in range(40):
        optimizer.zero_grad()
        result = sampler(towards(shaken + change), towards(shaken), noise, [len(values)])
        result.loss.backward()
        optimizer.step()
        values.append(result.values.item())
    assert values[-1] < 0.7 * values[0]
    assert deviation(shaken + change.detach(), shaken).item() < 0.1


def test_pixels_are_what_is_scored_where_there_is_a_decoder_and_the_first_latent_frame_is_left_out_where_there_is_none():
    seen = []

    def decode(latents):
        seen.append(latents.shape)
        return latents * 0.5 + 0.25

    video, noise = square(wobble=1.0), torch.randn(2, 1, 16, 32, 32)
    decoded = objective(decode=decode)(towards(video), no_base, noise, [0, 1])
    assert torch.allclose(decoded.values, LOSS.losses(video * 0.5 + 0.25).expand(2), atol=1e-4)
    assert seen == [(1, 1, 16, 32, 32)] * 2  # one video at a time
    dropped = objective(drop_first=True)(towards(video), no_base, noise, [0, 1])
    assert torch.allclose(dropped.values, LOSS.losses(video[:, :, 1:]).expand(2), atol=1e-4)


def test_what_is_not_finite_is_left_out_and_counted():
    video = square(wobble=1.0).repeat(3, 1, 1, 1, 1)
    video[1, 0, 5] = math.nan
    scale = torch.tensor(1.0, requires_grad=True)
    result = objective()(lambda x, sigma: scale * towards(video)(x, sigma), no_base, torch.randn(3, 1, 16, 32, 32), [0, 1, 2])
    assert result.skipped == 1 and len(result.values) == 2 and torch.isfinite(result.loss)
    nothing = objective()(towards(video[1:2]), no_base, torch.randn(1, 1, 16, 32, 32), [0])
    assert nothing.skipped == 1 and nothing.loss == 0


@pytest.mark.parametrize("change", ["blur", "fade", "still", "one noisy frame", "speckle"])
def test_deviation_sees_what_a_reward_is_paid_in(change):
    video = square()
    changed = video.clone()
    if change == "blur":
        changed = torch.nn.functional.avg_pool3d(video, (1, 5, 5), 1, (0, 2, 2))
    elif change == "fade":
        changed = 0.5 * video + 0.25
    elif change == "still":
        changed = video.mean(dim=2, keepdim=True).expand_as(video)
    elif change == "one noisy frame":
        changed[:, :, 0] += 0.2 * torch.randn(32, 32)
    else:
        changed = video + 0.1 * torch.randn_like(video)
    assert deviation(changed, video).item() > 0.05 and deviation(video, video).item() == 0
    assert deviation(torch.roll(video, (3, 5), (3, 4)), video).item() < 1e-4  # where things are is not held
    assert torch.equal(deviation(torch.cat([changed, video]), torch.cat([video, video]))[1:], torch.zeros(1))


def test_band_power_is_the_frames_power():
    video = torch.randn(2, 3, 4, 8, 8)
    columns = torch.fft.rfft2(video - video.mean(dim=(-2, -1), keepdim=True)).abs().square().mean(dim=1).sum(dim=(-2, -1))
    assert band_power(video).shape == (2, 4, 5) and torch.allclose(band_power(video).sum(dim=-1), columns, rtol=1e-5)
