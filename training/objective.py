"""What one training step minimises: the family's denoising loss and the candidates of `objective`, which combine.

    total = mean of (product of weight maps) * squared error  +  sum over terms of weight * term

`ltd` and `coherence_weighted` are weight maps; `spectral`, `anchored`, `repaired` and `flow` are terms on the predicted clean
clip x0-hat; `preference` is a term on the prediction errors of a clip and of its corrupted copy; `sampled` is one on videos that
the model makes itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from phys_pipeline.errors import ConfigError
from phys_pipeline.noise_path import NoisePath, fraction_below
from phys_pipeline.spectral import AnchoredMotionLoss, SpectralConfig, SpectralMotionLoss
from phys_pipeline.spectral.config import SLICES
from training.config import MOTION_NAMES, MOTION_TERMS, TrainConfig
from training.objectives.anchored import Anchored
from training.objectives.coherence_weighted import CoherenceWeights
from training.objectives.crop import Crop
from training.objectives.flow import FlowConsistency, flow_estimator
from training.objectives.ltd import DifferenceWeights
from training.objectives.preference import Preference
from training.objectives.repaired import Repaired
from training.objectives.sampled import Predict, Sampled
from training.objectives.spectral import Spectral
from training.objectives.term import MotionTerm, TermResult, motion_energy

_STILL = 1e-6  # motion energy over mean square under which a clip is still and has no energy ratio


def share_below(config: TrainConfig, shift: float, span: tuple[float, float] = (0.0, 1.0)) -> float:
    """Expected share of training samples, of those in `span`, whose sigma lies below `sigma_max`, so that they carry the motion
    term."""
    if config.motion_sigma == "every_step":
        return 1.0
    below, low, high = (fraction_below(sigma, config.sigma_law, shift) for sigma in (config.sigma_max, *span))
    return min(max((below - low) / (high - low), 0.0), 1.0)


def spectral_config(config: TrainConfig) -> SpectralConfig:
    """The preset with its overrides, `motion_terms` left out of the composite that it doesn't name.

    Raises ConfigError on an unknown field or a value out of range.
    """
    preset = SpectralConfig.paper if config.motion_preset == "paper" else SpectralConfig.calibrated
    left_out = set(MOTION_TERMS) - set(config.motion_terms)
    changes: dict[str, Any] = {f"{name}_weight": 0.0 for name in ("pace", "coherence") if name in left_out}
    if left_out - {"pace", "coherence"}:
        changes["slices"] = tuple(name for name in SLICES if name not in left_out)
    try:
        return preset(**{**config.motion_overrides, **changes})
    except (TypeError, ValueError) as error:
        raise ConfigError(f"motion_overrides: {' '.join(str(error).split())}") from None


@dataclass(frozen=True)
class Objective:
    """The active candidates. `terms` and `weightings` map a name to (weight, term) and to a weight map's function."""

    terms: dict[str, tuple[float, MotionTerm]] = field(default_factory=dict)
    weightings: dict[str, CoherenceWeights | DifferenceWeights] = field(default_factory=dict)
    preference: tuple[float, Preference] | None = None
    sampled: tuple[float, Sampled] | None = None
    sigma_max: float = 0.7  # samples below it are watched for motion energy

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the terms that are added to the denoising loss, in the order of the log."""
        return (*self.terms, *(["preference"] if self.preference else []), *(["sampled"] if self.sampled else []))

    @property
    def held_out(self) -> Objective:
        """What can be said of clips outside the data set: the terms, on whole clips, and motion energy at every noise level; no
        weight map, no preference, no video of its own, no `batch`."""
        return Objective({name: (w, term.whole()) for name, (w, term) in self.terms.items()}, sigma_max=math.inf)


@dataclass(frozen=True)
class Batch:
    """Who the samples are: `samples` their places in the data set, `seeds` one number each for what is drawn per sample.

    `base` predicts like the network with its adapter switched off, without gradient; only `preference` and `sampled` call it.
    """

    samples: Sequence[int]
    seeds: Sequence[int]
    base: Predict | None = None


@dataclass(frozen=True)
class StepLosses:
    """`total` = `fit` + `added` is differentiated."""

    total: Tensor
    denoising: Tensor  # plain mean squared error, whatever the objective: comparable between runs
    fit: Tensor  # the same with the weight maps; `denoising` itself without any
    added: Tensor | None  # weighted sum of the terms
    terms: dict[str, TermResult]
    energies: Tensor  # (K, 2) motion energy of x0-hat and of x0, moving samples below sigma_max

    @property
    def energy_ratio(self) -> Tensor:
        """(K,) motion energy of x0-hat over that of x0; far below 1 = freezing, and any size where a clip hardly moves."""
        return self.energies[:, 0] / self.energies[:, 1]

    @property
    def motion(self) -> TermResult | None:
        """The spectral term, else the anchored, else the repaired one."""
        return next((self.terms[name] for name in MOTION_NAMES if name in self.terms), None)


def training_losses(
    predict: Predict,
    path: NoisePath,
    x0: Tensor,  # (B, C, T, H, W)
    noise: Tensor,  # (B, C, T, H, W)
    sigma: Tensor,  # (B,) float32
    objective: Objective | None = None,
    batch: Batch | None = None,
) -> StepLosses:
    """One sigma noises, tells the time, and reads back x0-hat; `predict(x_t, sigma)` is the network.

    `batch` is needed by `coherence_weighted`, `preference`, `sampled` and cropped terms.
    """
    objective = Objective() if objective is None else objective
    x_t, target = path.corrupt(x0, noise, sigma), path.target(x0, noise, sigma).float()
    prediction = predict(x_t, sigma).float()
    denoising = fit = F.mse_loss(prediction, target)
    if objective.weightings:
        fit = (_weight_map(objective, x0, batch) * (prediction - target).square()).mean()
    x0_hat = path.clean(prediction, x_t, sigma)
    terms: dict[str, TermResult] = {}
    added: list[Tensor] = []
    for name, (weight, term) in objective.terms.items():
        terms[name] = term(x0_hat, x0, sigma, *((batch.seeds, batch.samples) if batch else ()))
        added.append(weight * terms[name].loss)
    if objective.preference is not None:
        if batch is None or batch.base is None:
            raise ValueError("the preference objective needs the batch's seeds and its base model")
        weight, preference = objective.preference
        loser = preference.loser(x0, batch.seeds)
        loser_t, loser_target = path.corrupt(loser, noise, sigma), path.target(loser, noise, sigma).float()
        with torch.no_grad():
            base = batch.base(x_t, sigma).float() - target, batch.base(loser_t, sigma).float() - loser_target
        errors = prediction - target, predict(loser_t, sigma).float() - loser_target, *base
        result = preference(*errors, counts=preference.counts(x0, loser))
        terms["preference"] = result
        added.append(weight * result.loss)
    if objective.sampled is not None:
        if batch is None or batch.base is None:
            raise ValueError("the sampled objective needs the batch's base model")
        weight, sampled = objective.sampled
        terms["sampled"] = sampled(predict, batch.base, noise, batch.seeds)
        added.append(weight * terms["sampled"].loss)
    energy = _motion_energies(x0_hat, x0, sigma, objective.sigma_max)
    if not added:
        return StepLosses(fit, denoising, fit, None, terms, energy)
    total = torch.stack(added).sum()
    return StepLosses(fit + total, denoising, fit, total, terms, energy)


def gradient_norm_ratio(losses: StepLosses, parameters: list[nn.Parameter]) -> float | None:
    """Norm of the added terms' gradient over that of the denoising gradient; None where no sample carried a term.

    Costs one extra backward per part and leaves `.grad` untouched.
    """
    if losses.added is None or not losses.added.requires_grad:
        return None

    def norm(loss: Tensor) -> float:
        gradients: tuple[Any, ...] = torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True)
        return math.sqrt(sum(float(g.float().square().sum()) for g in gradients if g is not None))

    fit = norm(losses.fit)
    return norm(losses.added) / fit if fit > 0 else None


def step_numbers(losses: StepLosses, names: tuple[str, ...]) -> Tensor:
    """Denoising loss, the weighted one, sums of both motion energies; per term the values' sum, their number, the skipped."""
    numbers = [float(losses.denoising.detach()), float(losses.fit.detach()), *losses.energies.sum(dim=0).tolist()]
    for name in names:
        term = losses.terms[name]
        numbers += [float(term.values.sum()), len(term.values), term.skipped]
    return torch.tensor(numbers, dtype=torch.float64)


def step_record(sums: Tensor, names: tuple[str, ...], batch: int) -> dict[str, float | None]:
    """What the log says of the terms; `motion` is the first of MOTION_NAMES that is used.

    The energy ratio is one of sums: a clip that hardly moves may have a ratio of hundreds, which no mean of ratios survives.
    """
    carried = {name: float(sums[5 + 3 * place]) for place, name in enumerate(names)}
    means = {name: float(sums[4 + 3 * place]) / carried[name] if carried[name] else None for place, name in enumerate(names)}
    motion = next((name for name in MOTION_NAMES if name in names), None)
    record: dict[str, float | None] = {
        "motion": means[motion] if motion else None,
        "motion_share": carried[motion] / batch if motion else 0.0,
        "motion_skipped": sum(float(sums[6 + 3 * place]) for place in range(len(names))),
        "motion_energy_ratio": float(sums[2]) / float(sums[3]) if sums[3] else None,
    }
    for name in names:
        if name != motion:
            record |= {name: means[name], f"{name}_share": carried[name] / batch}
    return record


def check_scored_frames(config: TrainConfig, frames: int, latent_frames: int) -> None:
    """Raise ConfigError where an objective on latents would see fewer than three frames of them (the first is left out)."""
    scored = latent_frames - (latent_frames < frames)
    if scored >= 3:
        return
    for name in ("spectral", "anchored", "repaired", "sampled", "coherence_weighted"):
        if name in config.active and config.motion_space == "latent":
            raise ConfigError(
                f"motion_space=latent leaves {scored} of {frames} frames, too few for motion: "
                f"use more frames, motion_space=pixel or an objective without {name}"
            )
    if "preference" in config.active and config.preference_space == "latent":
        raise ConfigError(f"preference reorders latent frames and has {scored}: use more frames or preference_space=pixel")


def build_objective(
    config: TrainConfig,
    spectral: SpectralConfig,
    clip: tuple[int, int],
    latents: tuple[int, ...],
    device: torch.device,
    decode: Callable[[Tensor], Tensor],
    encode: Callable[[Tensor], Tensor],
    path: NoisePath,
    shift: float,
) -> Objective:
    """The objective of a configuration.

    Args:
        clip: frames and height in pixels of the shortest clip, and `latents` its latents' shape (C, T, H, W).
        decode: latents -> pixels in [0, 1], differentiable; `encode` the way back. Called only by what works in pixels.
        path: noise path and `shift` timestep shift of the videos that `sampled` makes.

    Raises ConfigError for clips that are too short and settings that don't go with their size.
    """
    check_scored_frames(config, clip[0], latents[1])
    active, pixels = config.active, config.motion_space == "pixel"
    drop_first = latents[1] < clip[0]
    every_step = config.motion_sigma == "every_step"
    seen: dict[str, Any] = {"decode": decode if pixels else None, "crop": _crop(config, clip, latents), "drop_first": drop_first}
    terms: dict[str, tuple[float, MotionTerm]] = {}
    if "spectral" in active:
        loss = Spectral(SpectralMotionLoss(spectral), excess=config.motion_form == "excess")
        terms["spectral"] = config.motion_weight, MotionTerm(loss, config.sigma_max, every_step=every_step, **seen)
    if "anchored" in active:
        error = Anchored(AnchoredMotionLoss(spectral))
        terms["anchored"] = config.weights["anchored"], MotionTerm(error, config.sigma_max, every_step=every_step, **seen)
    if "repaired" in active:
        repaired = Repaired(spectral, white_noise=not pixels)
        terms["repaired"] = config.weights["repaired"], MotionTerm(repaired, config.repaired_sigma_max, **seen)
    if "flow" in active:
        _, estimator = flow_estimator(config.flow_estimator, device)
        flow = FlowConsistency(estimator, config.flow_smoothness)
        terms["flow"] = config.flow_weight, MotionTerm(flow, config.flow_sigma_max, **{**seen, "decode": decode})
    weightings: dict[str, CoherenceWeights | DifferenceWeights] = {}
    if "coherence_weighted" in active:
        weightings["coherence_weighted"] = CoherenceWeights(
            spectral,
            config.coherence_tau,
            config.coherence_strength,
            config.coherence_gate,
            decode=seen["decode"],
            drop_first=drop_first,
        )
    if "ltd" in active:
        weightings["ltd"] = DifferenceWeights(config.ltd_strength, drop_first=drop_first)
    preference = None
    if "preference" in active:
        in_pixels = config.preference_space == "pixel"
        score = None
        if config.preference_by_score:
            score = MotionTerm(Spectral(SpectralMotionLoss(spectral)), 1.0, every_step=True, **{**seen, "crop": None}).of_clips
        coders: dict[str, Any] = {"decode": decode, "encode": encode} if in_pixels else {}
        preference = config.preference_weight, Preference(
            config.preference_corruptions, form=config.preference_form, beta=config.preference_beta,  # type: ignore[arg-type]
            margin=config.preference_margin, drop_first=drop_first, score=score, **coders,
        )  # fmt: skip
    sampled = None
    if "sampled" in active:
        sampled = config.sampled_weight, Sampled(
            SpectralMotionLoss(spectral), path, steps=config.sampled_steps, levels=config.sampled_levels,
            shift=shift, keep=config.sampled_keep, decode=seen["decode"], drop_first=drop_first,
        )  # fmt: skip
    return Objective(terms, weightings, preference, sampled, config.sigma_max)


def _crop(config: TrainConfig, clip: tuple[int, int], latents: tuple[int, ...]) -> Crop | None:
    frames, size = config.motion_crop_frames, config.motion_crop_size
    if frames is None and size is None:
        return None
    stride = clip[1] // latents[2]  # pixels per latent cell
    if size is not None and size % stride:
        raise ConfigError(f"motion_crop_size={size} must be a multiple of {stride}, the autoencoder's step in pixels")
    pictures = frames
    if frames is not None and latents[1] < clip[0]:
        pictures = 1 + (frames - 1) * (clip[0] - 1) // max(1, latents[1] - 1)
    if pictures is not None and pictures < 3:
        raise ConfigError(f"motion_crop_frames={frames} gives {pictures} frame(s), too few for motion: use more")
    return Crop(frames, None if size is None else size // stride)


def _weight_map(objective: Objective, x0: Tensor, batch: Batch | None) -> Tensor:  # (B, C, T, H, W) -> (B, 1, T, H, W)
    product = torch.ones_like(x0[:, :1], dtype=torch.float32)
    for weighting in objective.weightings.values():
        if isinstance(weighting, DifferenceWeights):
            product = product * weighting(x0)
        elif batch is None:
            raise ValueError("coherence_weighted needs the batch's samples")
        else:
            product = product * weighting(x0, batch.samples)
    return product


@torch.no_grad()
def _motion_energies(x0_hat: Tensor, x0: Tensor, sigma: Tensor, sigma_max: float) -> Tensor:
    # x0_hat, x0: (B, C, T, H, W); sigma: (B,); returns (K, 2)
    before = motion_energy(x0.float())
    moves = before > _STILL * x0.float().square().flatten(1).mean(dim=1)
    both = torch.stack([motion_energy(x0_hat.float()), before], dim=1)
    return both[moves & (sigma < sigma_max) & torch.isfinite(both).all(dim=1)]
