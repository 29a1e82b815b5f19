import math

import pytest
import torch
from torch import nn

from phys_pipeline.errors import ConfigError
from phys_pipeline.noise_path import RectifiedFlow
from phys_pipeline.spectral import AnchoredMotionLoss, SpectralConfig, SpectralMotionLoss
from training.config import MOTION_TERMS, TrainConfig
from training.objective import (
    Batch,
    Objective,
    build_objective,
    gradient_norm_ratio,
    share_below,
    spectral_config,
    step_numbers,
    step_record,
    training_losses,
)
from training.objectives.anchored import Anchored
from training.objectives.coherence_weighted import CoherenceWeights
from training.objectives.crop import Crop
from training.objectives.flow import FlowConsistency
from training.objectives.ltd import DifferenceWeights
from training.objectives.preference import Preference
from training.objectives.spectral import Spectral
from training.objectives.term import MotionTerm, motion_energy, sigma_weight

PATH = RectifiedFlow()
SURROUNDINGS = (torch.device("cpu"), lambda x: x, lambda x: x, PATH, 3.0)  # of an objective: device, decode, encode, path, shift
LOSS = SpectralMotionLoss()
SCORE, EXCESS = Spectral(LOSS), Spectral(LOSS, excess=True)


def spectral(weight, **settings):
    return Objective({"spectral": (weight, MotionTerm(SCORE, 0.7, **settings))})


def moving(batch=2, frames=8, size=16, seed=0, jitter=0.0):
    """Blobs that travel to the right, with `jitter` pixels of random displacement per frame."""
    generator = torch.Generator().manual_seed(seed)
    grid = torch.arange(size).float()
    shift = torch.arange(frames).float() + jitter * torch.randn(batch, frames, generator=generator)
    x = 4 + shift[:, None, :, None, None]
    blob = torch.exp(-((grid[None, None, None, None] - x) ** 2 + (grid[None, None, None, :, None] - size / 2) ** 2) / 8)
    return blob.expand(batch, 3, frames, size, size).contiguous()


def test_sigma_weight_is_one_on_clean_zero_above_and_smooth():
    sigma = torch.linspace(0, 1, 1001)
    weight = sigma_weight(sigma, 0.7)
    assert weight[0] == 1 and weight[sigma >= 0.7].abs().max() < 1e-9
    assert (weight.diff() <= 0).all()
    slope = weight.diff() / sigma.diff()
    assert slope[0].abs() < 0.02 and slope[699].abs() < 0.02 and slope.diff().abs().max() < 0.02  # no kink


def test_share_below_matches_draws():
    config = TrainConfig(sigma_max=0.5)
    for law, shift in (("stratified", 7.0), ("logit_normal", 3.0), ("uniform", 1.0)):
        config.sigma_law = law
        drawn = PATH.sample(20000, torch.Generator().manual_seed(0), law=law, shift=shift)
        assert (drawn < 0.5).float().mean().item() == pytest.approx(share_below(config, shift), abs=0.01)


def test_motion_energy_of_a_still_clip_is_zero():
    assert motion_energy(torch.rand(2, 3, 1, 4, 4).expand(2, 3, 5, 4, 4)).abs().max() < 1e-12
    x = torch.rand(2, 3, 5, 4, 4)
    assert torch.allclose(motion_energy(3 * x + 1), 9 * motion_energy(x), rtol=1e-4)


def test_denoising_loss_is_the_velocity_error_and_ignores_the_motion_term():
    x0, noise, sigma = moving(), torch.randn(2, 3, 8, 16, 16), torch.tensor([0.2, 0.9])
    wrong = torch.randn_like(x0)
    seen = {}

    def predict(x_t, s):
        seen.update(x_t=x_t, sigma=s)
        return noise - x0 + wrong

    plain = training_losses(predict, PATH, x0, noise, sigma)
    assert torch.allclose(plain.denoising, wrong.square().mean()) and plain.total is plain.denoising and plain.motion is None
    assert torch.equal(seen["sigma"], sigma)
    assert torch.allclose(seen["x_t"][1], 0.1 * x0[1] + 0.9 * noise[1], atol=1e-6)
    both = training_losses(predict, PATH, x0, noise, sigma, spectral(0.5))
    assert torch.equal(both.denoising, plain.denoising) and both.fit is both.denoising
    assert torch.allclose(both.total, both.denoising + 0.5 * both.motion.loss)


def test_motion_term_sees_exactly_the_clean_clip_under_a_perfect_prediction():
    x0, noise, sigma = moving(jitter=1.0), torch.randn(2, 3, 8, 16, 16), torch.tensor([0.3, 0.6])
    losses = training_losses(lambda x, s: noise - x0, PATH, x0, noise, sigma, spectral(1.0))
    result = losses.motion
    expected = LOSS(x0, reduction="none").loss
    assert torch.allclose(result.values, expected, atol=1e-4)
    assert torch.allclose(result.loss, (sigma_weight(sigma, 0.7) * expected).mean(), atol=1e-4)
    assert torch.allclose(losses.energy_ratio, torch.ones(2), atol=1e-3)
    excess = MotionTerm(EXCESS, 0.7)(x0, x0, sigma)
    assert excess.loss == 0 and (excess.values == 0).all()


def test_noisy_samples_carry_no_motion_term_and_are_not_decoded():
    decoded = []

    def decode(latents):
        decoded.append(len(latents))
        return latents

    x0 = moving(batch=3, jitter=1.0)
    term = MotionTerm(SCORE, 0.7, decode=decode)
    result = term(x0, x0, torch.tensor([0.8, 0.1, 0.7]))
    assert decoded == [1] and len(result.values) == 1 and result.skipped == 0
    assert result.loss > 0 and torch.allclose(result.loss, sigma_weight(torch.tensor(0.1), 0.7) * result.values[0] / 3)
    nothing = term(x0, x0, torch.tensor([0.8, 0.9, 1.0]))
    assert nothing.loss == 0 and len(nothing.values) == 0 and decoded == [1]


def test_jittered_prediction_costs_more_than_a_coherent_one():
    sigma = torch.tensor([0.1, 0.1])
    term = MotionTerm(EXCESS, 0.7)
    clean = moving(frames=12)
    assert term(moving(frames=12, jitter=2.0), clean, sigma).loss > term(clean, clean, sigma).loss + 0.01


def test_anchored_form_is_zero_at_the_clean_clip_and_points_to_it():
    x0, sigma = moving(frames=12), torch.tensor([0.1, 0.2])
    term = MotionTerm(Anchored(AnchoredMotionLoss()), 0.7, decode=lambda latents: 2 * latents)
    assert term(x0, x0, sigma).loss == 0
    hat = moving(frames=12, jitter=1.0, seed=3).requires_grad_()
    result = term(hat, x0, sigma)
    assert torch.equal(result.values, AnchoredMotionLoss()(2 * hat.detach(), 2 * x0, "none"))
    result.loss.backward()
    assert (hat.grad * (x0 - hat.detach())).sum() < 0


def test_gradient_reaches_the_prediction_through_the_decoder():
    x0 = moving(jitter=1.0)
    scale = nn.Parameter(torch.tensor(1.0))
    mix = nn.Conv3d(3, 3, 1)

    def decode(latents):
        return mix(latents)

    hat = x0 * scale + 0.1 * torch.randn_like(x0) * (1 - scale)
    MotionTerm(SCORE, 0.7, decode=decode)(hat, x0, torch.tensor([0.1, 0.2])).loss.backward()
    assert scale.grad is not None and torch.isfinite(scale.grad) and scale.grad != 0


def test_first_latent_frame_is_left_out_only_when_time_is_compressed():
    x0 = moving(frames=9)
    disturbed = x0.clone()
    disturbed[:, :, 0] = torch.randn_like(disturbed[:, :, 0])
    sigma = torch.tensor([0.1, 0.1])
    drop, keep = MotionTerm(SCORE, 0.7, drop_first=True), MotionTerm(SCORE, 0.7)
    assert torch.allclose(drop(disturbed, x0, sigma).values, drop(x0, x0, sigma).values)
    assert not torch.allclose(keep(disturbed, x0, sigma).values, keep(x0, x0, sigma).values)


def test_bad_samples_are_skipped_counted_and_leave_gradients_finite():
    x0, sigma = moving(batch=3), torch.tensor([0.1, 0.1, 0.1])
    hat = moving(batch=3, jitter=1.0).requires_grad_()
    poison = torch.ones(3, 1, 1, 1, 1)
    poison[1] = math.inf
    result = MotionTerm(SCORE, 0.7)(hat * poison, x0, sigma)
    assert result.skipped == 1 and len(result.values) == 2 and torch.isfinite(result.loss)
    result.loss.backward()
    assert torch.isfinite(hat.grad[[0, 2]]).all()

    def decode(latents):  # a decoder that overflows on one sample
        return latents * math.inf if torch.equal(latents, hat.detach()[1:2]) else latents

    result = MotionTerm(SCORE, 0.7, decode=decode)(hat.detach(), x0, sigma)
    assert result.skipped == 1 and len(result.values) == 2


def test_motion_term_is_float32_under_autocast():
    x0, sigma = moving(jitter=1.0), torch.tensor([0.2, 0.2])
    expected = MotionTerm(SCORE, 0.7)(x0, x0, sigma).values
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = MotionTerm(SCORE, 0.7)(x0, x0, sigma)
    assert inside.values.dtype == torch.float32 and torch.equal(inside.values, expected)
    mixing = torch.linalg.qr(torch.randn(16, 16, generator=torch.Generator().manual_seed(0)))[0]
    mixed = MotionTerm(SCORE, 0.7, decode=lambda z: z @ mixing)  # a product that autocast would make bfloat16
    expected = mixed(x0, x0, sigma).values
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = mixed(x0, x0, sigma)
    assert torch.equal(inside.values, expected)


def test_gradient_ratio_is_measured_without_touching_gradients():
    x0, noise, sigma = moving(jitter=1.0), torch.randn(2, 3, 8, 16, 16), torch.tensor([0.2, 0.3])
    weight = nn.Parameter(torch.tensor(0.9))
    losses = training_losses(lambda x, s: weight * (noise - x0), PATH, x0, noise, sigma, spectral(0.5))
    ratio = gradient_norm_ratio(losses, [weight])
    assert weight.grad is None
    (denoising,) = torch.autograd.grad(losses.denoising, [weight], retain_graph=True)
    (motion,) = torch.autograd.grad(losses.motion.loss, [weight], retain_graph=True)
    assert ratio == pytest.approx(0.5 * abs(motion.item()) / abs(denoising.item()), rel=1e-4) and ratio > 0
    high = training_losses(lambda x, s: weight * x, PATH, x0, noise, torch.tensor([0.9, 0.9]), spectral(0.5))
    assert gradient_norm_ratio(high, [weight]) is None


def test_spectral_config_from_settings():
    assert spectral_config(TrainConfig(motion_preset="paper")) == SpectralConfig.paper()
    assert spectral_config(TrainConfig(motion_overrides={"patches": 1})) == SpectralConfig.calibrated(patches=1)
    with pytest.raises(ConfigError, match="did you mean 'patches'"):
        spectral_config(TrainConfig(motion_overrides={"patchs": 1}))
    with pytest.raises(ConfigError, match="keep must lie"):
        spectral_config(TrainConfig(motion_overrides={"keep": 2.0}))


def everything(**changes):
    """All candidates at once, on latents; `changes` replace weights."""
    weights = {"spectral": 0.5, "anchored": 0.3, "flow": 0.2, "preference": 0.1, "coherence": 1.0, "ltd": 1.0, **changes}
    calm = FlowConsistency(lambda a, b: torch.zeros(len(a), 2, *a.shape[2:]))
    losses = {"spectral": EXCESS, "anchored": Anchored(AnchoredMotionLoss()), "flow": calm}
    return Objective(
        {name: (weights[name], MotionTerm(loss, 0.7)) for name, loss in losses.items() if weights[name]},
        {
            "coherence_weighted": CoherenceWeights(SpectralConfig.calibrated(), strength=weights["coherence"]),
            "ltd": DifferenceWeights(weights["ltd"]),
        },
        (weights["preference"], Preference(beta=10.0)) if weights["preference"] else None,
    )


def step(objective, predict=None, rows=slice(None), batch=2):
    generator = torch.Generator().manual_seed(5)
    x0 = moving(batch=batch, jitter=1.0)
    noise, wrong = torch.randn(x0.shape, generator=generator), torch.randn(x0.shape, generator=generator)
    sigma = torch.linspace(0.2, 0.5, batch)
    who = Batch(list(range(batch))[rows], list(range(10, 10 + batch))[rows], lambda x, s: x * 0.3)
    predict = predict or (lambda x, s: 0.9 * (noise - x0)[rows] + 0.1 * wrong[rows] + 0.1 * x)
    return training_losses(predict, PATH, x0[rows], noise[rows], sigma[rows], objective, who)


def test_candidates_combine_without_touching_each_other():
    both = step(everything())
    assert set(both.terms) == set(everything().names) == {"spectral", "anchored", "flow", "preference"}
    zero = dict.fromkeys(("spectral", "anchored", "flow", "preference"), 0)
    parts = 0.0
    for name, weight in (("spectral", 0.5), ("anchored", 0.3), ("flow", 0.2), ("preference", 0.1)):
        alone = step(everything(**{**zero, name: weight}))
        assert torch.equal(alone.terms[name].values, both.terms[name].values) and torch.equal(alone.fit, both.fit)
        assert torch.equal(alone.denoising, both.denoising)
        parts += weight * alone.terms[name].loss
    assert torch.allclose(both.total, both.fit + parts) and not torch.allclose(both.fit, both.denoising)


def test_weights_of_zero_are_the_plain_denoising_loss():
    nothing = step(everything(spectral=0, anchored=0, flow=0, preference=0, coherence=0.0, ltd=0.0))
    plain = step(Objective())
    assert torch.allclose(nothing.total, plain.total, rtol=1e-6) and nothing.added is None and not nothing.terms


def test_every_candidate_is_a_mean_over_its_samples():
    both, first, second = step(everything()), step(everything(), rows=slice(0, 1)), step(everything(), rows=slice(1, 2))
    for name, term in both.terms.items():
        assert torch.allclose(term.loss, (first.terms[name].loss + second.terms[name].loss) / 2, atol=1e-5), name
    assert torch.allclose(both.fit, (first.fit + second.fit) / 2, rtol=1e-4)
    assert torch.allclose(both.total, (first.total + second.total) / 2, rtol=1e-4)


def test_the_networks_output_is_not_changed_in_place():
    """Sharded models hang their backward on the output tensor; changing it in place would cut that off."""
    outputs = []

    def predict(x, sigma):
        outputs.append((0.9 * x).detach().requires_grad_())
        return outputs[-1]

    step(everything(), predict).total.backward()
    assert [output._version for output in outputs] == [0, 0]  # of the clip and of its corrupted copy
    assert all(output.grad.abs().sum() > 0 for output in outputs)


def test_weight_maps_have_their_minimum_at_the_target():
    """Whatever the weights, the gradient of the weighted loss vanishes at the true velocity and points to it elsewhere."""
    x0, noise, sigma = moving(jitter=1.0), torch.randn(2, 3, 8, 16, 16), torch.tensor([0.2, 0.5])
    objective = everything(spectral=0, anchored=0, flow=0, preference=0)
    error = torch.randn_like(x0)
    for size in (0.0, 1.0):
        prediction = (noise - x0 + size * error).requires_grad_()
        losses = training_losses(lambda x, s, p=prediction: p, PATH, x0, noise, sigma, objective, Batch([0, 1], [0, 1]))
        (gradient,) = torch.autograd.grad(losses.total, prediction)
        assert (gradient * error >= 0).all() and (size == 0) == bool((gradient == 0).all())


def test_energy_ratio_is_of_moving_clips_below_sigma_max():
    x0 = torch.cat([moving(), moving()[:, :, :1].expand(2, -1, 8, -1, -1)])
    sigma = torch.tensor([0.1, 0.8, 0.1, 0.1])
    losses = training_losses(lambda x, s: torch.zeros_like(x), PATH, x0, 0.5 * x0, sigma)  # x0-hat = (1 - sigma / 2) x0
    assert torch.allclose(losses.energy_ratio, torch.tensor([0.95**2]), rtol=1e-4)


def test_the_logged_energy_ratio_is_not_that_of_a_clip_that_hardly_moves():
    """Such a clip has a ratio of hundreds; a mean of ratios made the freezing alarm ring for the plain denoising loss."""
    slow = 1.0 + 1e-2 * moving()[:1]
    x0 = torch.cat([moving()[:1], slow])
    wrong = torch.randn(1, 3, 8, 16, 16)

    def predict(x_t, sigma):
        return torch.cat([torch.zeros_like(wrong), -0.5 * wrong])  # x0-hat = x_t - sigma * prediction

    losses = training_losses(predict, PATH, x0, torch.zeros_like(x0), torch.tensor([0.1, 0.1]))
    assert losses.energy_ratio[0] == pytest.approx(0.9**2, rel=1e-3) and losses.energy_ratio[1] > 100
    numbers = step_numbers(losses, ())
    before, after = losses.energies[:, 1].sum(), losses.energies[:, 0].sum()
    record = step_record(numbers, (), 2)
    assert record["motion_energy_ratio"] == pytest.approx(float(after / before), rel=1e-4) and record["motion_energy_ratio"] < 1


def test_preference_without_a_base_and_a_crop_without_seeds_are_mistakes():
    x0, sigma = moving(), torch.tensor([0.2, 0.3])
    with pytest.raises(ValueError, match="needs the batch's seeds"):
        training_losses(lambda x, s: x, PATH, x0, x0, sigma, everything(coherence=0.0), Batch([0, 1], [0, 1]))
    with pytest.raises(ValueError, match="one seed per sample"):
        MotionTerm(SCORE, 0.7, decode=lambda z: z, crop=Crop(4))(x0, x0, sigma)


def test_held_out_clips_need_no_place_in_the_data_set():
    full = everything()
    full.terms["spectral"] = 0.5, MotionTerm(EXCESS, 0.7, decode=lambda z: z, crop=Crop(4))
    x0, sigma = moving(jitter=1.0), torch.tensor([0.2, 0.3])
    held_out = training_losses(lambda x, s: x, PATH, x0, x0.flip(2), sigma, full.held_out)
    assert held_out.fit is held_out.denoising and set(held_out.terms) == {"spectral", "anchored", "flow"}
    whole = training_losses(lambda x, s: x, PATH, x0, x0.flip(2), sigma, spectral(0.5)).terms["spectral"]
    assert full.terms["spectral"][1].crop is not None and held_out.terms["spectral"].values.shape == whole.values.shape


def test_every_step_gives_each_sample_the_whole_term():
    x0, sigma = moving(jitter=1.0), torch.tensor([0.1, 0.99])
    result = MotionTerm(SCORE, 0.7, every_step=True)(x0, x0, sigma)
    assert len(result.values) == 2 and torch.allclose(result.loss, result.values.mean())
    assert share_below(TrainConfig(motion_sigma="every_step"), 7.0) == 1.0
    config = TrainConfig(sigma_max=0.6, sigma_law="uniform")
    assert share_below(config, 1.0, (0.5, 1.0)) == pytest.approx(0.2) and share_below(config, 1.0, (0.7, 1.0)) == 0.0
    assert share_below(config, 1.0, (0.0, 0.5)) == 1.0


def test_cropped_term_scores_the_same_piece_of_both_clips():
    seen = []

    def decode(latents):
        seen.append(latents)
        return latents

    x0, sigma = moving(jitter=1.0, frames=9), torch.tensor([0.1, 0.1])
    term = MotionTerm(EXCESS, 0.7, decode=decode, crop=Crop(5, 12))
    assert term(x0, x0, sigma, [1, 2]).loss == 0 and seen[0].shape == (1, 3, 5, 12, 12)  # decoded one at a time
    assert torch.equal(seen[0], seen[1]) and torch.equal(seen[2], seen[3])
    alone = term(x0[1:], x0[1:], sigma[1:], [2])
    assert torch.equal(seen[4], seen[2]) and len(alone.values) == 1


def test_parts_of_the_spectral_loss_can_be_left_out():
    without = {name: spectral_config(TrainConfig(motion_terms=[t for t in MOTION_TERMS if t != name])) for name in MOTION_TERMS}
    assert spectral_config(TrainConfig()) == SpectralConfig.calibrated()
    assert without["pace"] == SpectralConfig.calibrated(pace_weight=0.0)
    assert without["coherence"] == SpectralConfig.calibrated(coherence_weight=0.0)
    assert without["rotation"] == SpectralConfig.calibrated(slices=("translation", "scaling"))
    scores = {name: SpectralMotionLoss(c)(moving(jitter=1.0, frames=12)).loss.item() for name, c in without.items()}
    assert len({round(score, 5) for score in (*scores.values(), LOSS(moving(jitter=1.0, frames=12)).loss.item())}) == 6


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"motion_space": "latent"}, "motion_space=latent leaves 2 of 9 frames"),
        ({"objective": ["preference"], "frames": 9}, "preference reorders latent frames and has 2"),
        ({"motion_crop_size": 20}, "must be a multiple of 8"),
        ({"motion_crop_frames": 1}, r"motion_crop_frames=1 gives 1 frame\(s\)"),
    ],
)
def test_settings_that_do_not_go_with_the_latents(settings, message):
    config = TrainConfig(**{"frames": 9, "height": 32, "width": 32, **settings})
    with pytest.raises(ConfigError, match=message):
        build_objective(
            config, spectral_config(config), (9, 32), (4, 3, 4, 4), torch.device("cpu"), *[lambda x: x] * 2, RectifiedFlow(), 1.0
        )


def test_objective_of_a_configuration():
    names = ["spectral", "anchored", "coherence_weighted", "preference", "ltd"]
    config = TrainConfig(objective=names, anchored_weight=0.7, motion_crop_frames=2, motion_crop_size=16, frames=13)
    made = build_objective(
        config, spectral_config(config), (13, 64), (4, 4, 8, 8), torch.device("cpu"), *[lambda x: x] * 2, RectifiedFlow(), 1.0
    )
    assert made.names == ("spectral", "anchored", "preference") and set(made.weightings) == {"coherence_weighted", "ltd"}
    assert made.terms["anchored"][0] == 0.7 and made.terms["spectral"][1].crop == Crop(2, 2)
    older = TrainConfig(motion_form="anchored", frames=13)
    assert build_objective(older, spectral_config(older), (13, 64), (4, 4, 8, 8), *SURROUNDINGS).names == ("anchored",)
    own = TrainConfig(
        objective=["sampled"], sampled_weight=0.4, sampled_steps=6, sampled_levels=2, motion_space="latent", frames=13
    )
    made = build_objective(own, spectral_config(own), (13, 64), (4, 4, 8, 8), *SURROUNDINGS)
    assert made.names == ("sampled",) and made.sampled[0] == 0.4 and made.held_out.names == ()
    assert len(made.sampled[1].sigmas) == 7 and made.sampled[1].levels == 2 and made.sampled[1].term.drop_first
