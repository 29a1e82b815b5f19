import math

import pytest
import torch

from phys_pipeline.media.corruptions import CORRUPTIONS, corrupt
from training.objectives.preference import LATENT_CORRUPTIONS, Preference

ONES = torch.ones(2, 3, 4, 5, 5)


def gain(preference, winner, loser, base_winner=1.0, base_loser=1.0):
    """Loss of constant errors; one error per copy."""
    return preference(winner * ONES, loser * ONES, base_winner * ONES, base_loser * ONES).loss.item()


def test_dpo_is_log_two_before_anything_is_learnt_and_falls_as_the_winner_gains():
    dpo = Preference(beta=2.0)
    assert gain(dpo, 1.0, 1.0) == pytest.approx(math.log(2))
    assert gain(dpo, 0.5, 1.0) < math.log(2) < gain(dpo, 1.0, 0.5)
    assert gain(dpo, 0.5, 1.0) == pytest.approx(-math.log(1 / (1 + math.exp(-0.75))))  # beta / 2 x (1 - 0.25)
    assert gain(dpo, 0.7, 0.7) == pytest.approx(math.log(2))  # both better by the same: no preference
    assert gain(dpo, 2.0, 3.0, 2.0, 3.0) == pytest.approx(math.log(2))  # a hard pair is no preference either


def test_hinge_stops_at_the_margin():
    hinge = Preference(form="hinge", margin=0.1)
    assert gain(hinge, 1.0, 1.0) == pytest.approx(0.1)
    assert gain(hinge, math.sqrt(0.9), 1.0) == pytest.approx(0.0, abs=1e-6) and gain(hinge, 0.5, 1.0) == 0.0


def test_gradient_lowers_the_winners_error_and_raises_the_losers_and_spares_the_base():
    errors = [torch.full((1, 1, 3, 2, 2), 1.0, requires_grad=True) for _ in range(4)]
    Preference(beta=1.0)(*errors).loss.backward()
    winner, loser, *base = errors
    assert (winner.grad > 0).all() and torch.allclose(loser.grad, -winner.grad) and all(b.grad is None for b in base)


def test_bad_samples_are_skipped_counted_and_samples_do_not_mix():
    torch.manual_seed(0)
    errors = [torch.randn(3, 2, 4, 3, 3) for _ in range(4)]
    clean = Preference()(*errors)
    alone = [Preference()(*(e[i : i + 1] for e in errors)).values for i in range(3)]
    assert torch.allclose(clean.values, torch.cat(alone)) and clean.skipped == 0
    assert torch.allclose(clean.loss, clean.values.mean())
    errors[1][1] = math.nan
    prediction = errors[1].requires_grad_()
    result = Preference()(*errors)
    assert result.skipped == 1 and len(result.values) == 2 and torch.allclose(result.loss, clean.values[[0, 2]].sum() / 3)
    result.loss.backward()
    assert torch.isfinite(prediction.grad).all() and (prediction.grad[1] == 0).all()


def test_latent_losers_are_the_same_frames_in_another_order():
    x0 = torch.randn(8, 4, 9, 3, 3)
    preference = Preference(drop_first=True)
    losers = preference.loser(x0, list(range(8)))
    assert torch.equal(losers[:, :, 0], x0[:, :, 0]) and not any(torch.equal(a, b) for a, b in zip(losers, x0, strict=True))
    for clip, loser in zip(x0, losers, strict=True):
        frames = {frame.numpy().tobytes() for frame in clip.unbind(1)}
        assert all(frame.contiguous().numpy().tobytes() in frames for frame in loser.unbind(1))
    alone = torch.cat([preference.loser(x0[i : i + 1], [i]) for i in range(8)])
    assert torch.equal(losers, alone)
    expected = [torch.cat([x0[0, :, :1], corrupt(x0[0, :, 1:], k, seed=0)], 1) for k in ("reverse", "stutter")]
    kinds = preference.loser(x0[:1].expand(40, -1, -1, -1, -1), list(range(40)))
    assert all(any(torch.equal(loser, e) for loser in kinds) for e in expected)


def test_pixel_losers_differ_by_the_corruption_alone():
    x0 = torch.rand(2, 3, 6, 8, 8)
    lossy = Preference(CORRUPTIONS, decode=lambda z: z * 0.5 + 0.2, encode=lambda p: (p - 0.2) * 2 + 0.1)  # E(D(x)) = x + 0.1
    losers = lossy.loser(x0, [1, 2])
    assert losers.shape == x0.shape and not torch.allclose(losers, x0)
    nothing = Preference(("stutter",), decode=lambda z: z, encode=lambda p: p + 0.1)
    still = x0[:, :, :1].expand_as(x0)
    assert torch.allclose(nothing.loser(still, [1, 2]), still)  # stutter changes nothing here, and the autoencoder cancels


def test_latent_corruptions_only_reorder():
    assert set(LATENT_CORRUPTIONS) <= set(CORRUPTIONS)


def test_a_score_decides_how_much_a_pair_counts():
    losses = {0: 0.30, 1: 0.35, 2: 0.30, 3: 0.90, 4: math.nan}  # of clips filled with their number

    def score(latents):
        return torch.tensor([losses[int(clip.flatten()[0])] for clip in latents])

    def clips(*numbers):
        return torch.stack([torch.full((2, 4, 3, 3), float(number)) for number in numbers])

    preference = Preference(score=score)
    counts = preference.counts(clips(0, 0, 1, 0, 0), clips(1, 2, 0, 3, 4))
    assert torch.allclose(counts, torch.tensor([0.25, 0.0, 0.0, 1.0, 0.0]))
    assert torch.equal(Preference().counts(clips(0, 1), clips(1, 0)), torch.ones(2))
    errors = [torch.randn(5, 2, 4, 3, 3) for _ in range(4)]
    plain, weighed = preference(*errors), preference(*errors, counts=counts)
    assert torch.allclose(weighed.values, plain.values * counts) and torch.allclose(weighed.loss, weighed.values.sum() / 5)
