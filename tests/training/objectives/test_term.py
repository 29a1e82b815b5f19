"""The term's own gradient: exact, made in the forward pass, and one x0-hat in size."""

import pytest
import torch
from torch import nn

from benchmarks.motion_memory import factors
from phys_pipeline.spectral import AnchoredMotionLoss, SpectralMotionLoss
from training.objectives.anchored import Anchored
from training.objectives.crop import Crop
from training.objectives.spectral import Spectral
from training.objectives.term import MotionTerm, sigma_weight

EXCESS = Spectral(SpectralMotionLoss(), excess=True)


def batch(count=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x0 = torch.randn(count, 4, 8, 16, 16, generator=generator).cumsum(dim=2)
    return x0, x0 + torch.randn(x0.shape, generator=generator), torch.tensor([0.1, 0.9, 0.3])[:count]


class Plain:
    """A loss of the video alone, `of(video)` (K, ...) -> (K,)."""

    needs_reference = one_number = False

    def __init__(self, of):
        self.of = of

    def of_clean(self, reference, sigma):
        raise AssertionError("not needed")

    def __call__(self, video, clean=None):
        return self.of(video)


@pytest.mark.parametrize("decode", [None, lambda z: z.repeat_interleave(2, dim=-1).tanh()], ids=["latents", "pixels"])
@pytest.mark.parametrize("name", ["absolute", "excess", "anchored"])
def test_the_gradient_is_that_of_the_plain_sum(name, decode):
    x0, start, sigma = batch()
    see = decode or (lambda z: z)
    spectral, anchored = SpectralMotionLoss(), AnchoredMotionLoss()
    losses = {
        "absolute": (Spectral(spectral), lambda x, c: spectral(x, "none").loss),
        "excess": (EXCESS, lambda x, c: spectral(x, "none", c).loss),
        "anchored": (Anchored(anchored), lambda x, c: anchored(x, c, "none")),
    }
    loss, plain = losses[name]
    hat, other = start.clone().requires_grad_(), start.clone().requires_grad_()
    result = MotionTerm(loss, 0.7, decode=decode, drop_first=True)(hat, x0, sigma)
    video, clean = (see(z) if decode else z[:, :, 1:] for z in (other[[0, 2]], x0[[0, 2]]))
    expected = (sigma_weight(sigma[[0, 2]], 0.7) * plain(video, clean)).sum() / 3
    for scale in (1.0, 65536.0):  # a scaler's factor, and a second backward pass through a graph that is kept
        hat.grad = other.grad = None
        (scale * result.loss).backward(retain_graph=True)
        (scale * expected).backward(retain_graph=True)
        torch.testing.assert_close(result.loss, expected)
        torch.testing.assert_close(hat.grad, other.grad, rtol=1e-4, atol=1e-6 * float(other.grad.abs().max()))
        assert float(hat.grad[0].abs().max()) > 0 and float(hat.grad[1].abs().max()) == 0


def test_accumulated_micro_batches_add_up_to_the_whole_batch():
    x0, start, _ = batch()
    sigma = torch.tensor([0.1, 0.2, 0.3])
    weight = nn.Parameter(torch.tensor(0.8))
    term = MotionTerm(EXCESS, 0.7)
    term(weight * start, x0, sigma).loss.backward()
    whole, weight.grad = weight.grad.clone(), None
    for i in range(3):
        (term(weight * start[i : i + 1], x0[i : i + 1], sigma[i : i + 1]).loss / 3).backward()
    torch.testing.assert_close(weight.grad, whole, rtol=1e-4, atol=1e-8)


@pytest.mark.parametrize("loss", [EXCESS, Anchored(AnchoredMotionLoss())], ids=["excess", "anchored"])
def test_one_x0_hat_is_held_until_the_backward_pass(loss):
    held, peak = factors(loss, (1, 16, 9, 40, 64))
    assert 1.0 <= held <= 1.2 and peak < 8


def test_without_gradients_nothing_is_differentiated():
    x0, start, sigma = batch()
    seen = []
    term = MotionTerm(Plain(lambda x: seen.append(x.requires_grad) or x.mean(dim=(1, 2, 3, 4))), 0.7)
    with torch.no_grad():
        quiet = term(start.clone().requires_grad_(), x0, sigma)
    assert seen == [False] and not quiet.loss.requires_grad
    loud = term(start.clone().requires_grad_(), x0, sigma)
    assert seen == [False, True] and torch.equal(loud.loss.detach(), quiet.loss)


def test_a_gradient_that_is_not_finite_is_left_out_alone():
    x0, start, sigma = batch()
    start[0] = 0.0
    hat = start.requires_grad_()
    term = MotionTerm(Plain(lambda x: x.square().mean(dim=(1, 2, 3, 4)).sqrt()), 0.7)  # an infinite slope at 0, value 0
    result = term(hat, x0, sigma)
    result.loss.backward()
    assert result.skipped == 1 and len(result.values) == 1 and bool(torch.isfinite(hat.grad).all())
    assert float(hat.grad[2].abs().max()) > 0 and float(hat.grad[0].abs().max()) == 0


def test_small_gradients_survive_a_decoder_in_half_precision():
    x0, start, sigma = batch(count=1)
    hat = start.requires_grad_()
    term = MotionTerm(Plain(lambda x: 1e-9 * x.mean(dim=(1, 2, 3, 4))), 0.7, decode=lambda z: 2 * z.half())
    term(hat, x0, sigma).loss.backward()  # float16 ends at 6e-8
    torch.testing.assert_close(
        hat.grad, torch.full_like(hat, float(2e-9 * sigma_weight(sigma, 0.7)) / hat.numel()), rtol=1e-3, atol=0
    )


def test_what_is_known_of_a_clean_clip_is_computed_once_and_for_it_alone():
    x0, start, sigma = batch()
    calls = []

    def decode(latents):
        calls.append(len(latents))
        return latents * 1.0

    sigma[1] = 0.2
    for crop, decodings in ((None, 3 + 3 + 3), (Crop(6, 12), 6 + 6)):
        calls.clear()
        term = MotionTerm(EXCESS, 0.7, decode=decode, crop=crop)
        first = term(start, x0, sigma, [1, 2, 3], [7, 8, 9])
        again = term(start, x0, sigma, [1, 2, 3], [7, 8, 9])
        assert len(calls) == decodings and torch.equal(first.values, again.values)
    # another process, or a run that goes on, asks in other batches and without a decoder: the same bits
    together, alone = MotionTerm(EXCESS, 0.7), MotionTerm(EXCESS, 0.7)
    together(start, x0, sigma, None, [7, 8, 9])
    for i in (2, 0, 1):
        alone(start[i : i + 1], x0[i : i + 1], sigma[i : i + 1], None, [7 + i])
    assert together._known == alone._known and len(alone._known) == 3
    assert alone.whole()(start, x0, sigma).values.shape == (3,)  # held-out clips have no place in the data set
    assert len(alone._known) == 3


def test_a_clips_own_loss_has_no_weight_and_no_gradient():
    _x0, start, _ = batch()
    term = MotionTerm(Spectral(SpectralMotionLoss()), 0.7, drop_first=True)
    start[1, 0, 3] = float("nan")
    found = term.of_clips(start.requires_grad_())
    assert not found.requires_grad and bool(found[1].isnan())
    assert torch.allclose(found[[0, 2]], SpectralMotionLoss()(start[[0, 2]][:, :, 1:].detach(), "none").loss)
