"""What one training step minimises: the family's denoising loss, plus the spectral motion loss on the predicted clean clip."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from phys_pipeline.errors import ConfigError
from phys_pipeline.noise_path import NoisePath, fraction_below
from phys_pipeline.spectral import AnchoredMotionLoss, SpectralConfig, SpectralMotionLoss
from training.config import TrainConfig

_LEAST_WEIGHT = 1e-3  # below this a sample's motion term isn't worth its decoding


def sigma_weight(sigma: Tensor, sigma_max: float) -> Tensor:  # (B,)
    """cos^2(pi/2 * sigma / sigma_max), 0 above: 1 on clean latents, smooth at both ends.

    x0-hat is a blurred posterior mean at high noise, where a spectrum would punish honest blur.
    """
    return torch.cos(0.5 * math.pi * (sigma / sigma_max).clamp(max=1.0)).square()


def share_below(config: TrainConfig, shift: float) -> float:
    """Expected share of training samples whose sigma lies below `sigma_max`, so that they carry the motion term."""
    return fraction_below(config.sigma_max, config.sigma_law, shift)


def motion_energy(video: Tensor) -> Tensor:  # (B, C, T, H, W) -> (B,)
    """Mean square of what differs from the temporal mean: 0 for a still clip. Latents or pixels."""
    return (video - video.mean(dim=2, keepdim=True)).square().flatten(1).mean(dim=1)


def spectral_config(config: TrainConfig) -> SpectralConfig:
    """The preset with its overrides. Raises ConfigError on an unknown field or a value out of range."""
    preset = SpectralConfig.paper if config.motion_preset == "paper" else SpectralConfig.calibrated
    try:
        return preset(**config.motion_overrides)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"motion_overrides: {' '.join(str(error).split())}") from None


@dataclass(frozen=True)
class MotionResult:
    """Motion term of one batch. `values` and `energy_ratio` (K,) belong to the K samples that carried it, without gradient."""

    loss: Tensor  # scalar: mean over the whole batch of sigma weight x value
    values: Tensor
    energy_ratio: Tensor  # motion energy of x0-hat over that of x0; far below 1 = the model learns to freeze
    skipped: int  # samples left out because their loss was not finite


class MotionTerm:
    """Spectral motion loss on x0-hat, faded out towards `sigma_max`. Always float32, never under autocast.

    Args:
        loss: called with (K, C, T, H, W) and reduction "none"; an anchored loss also gets the clean clip.
        sigma_max: the weight is 0 from here on.
        decode: latents -> pixels in [0, 1], differentiable; None scores the latents themselves.
        excess: count only what exceeds the loss of the clean clip.
        drop_first: leave out the first latent frame, which covers one picture where the others cover several.
    """

    def __init__(
        self,
        loss: SpectralMotionLoss | AnchoredMotionLoss,
        sigma_max: float,
        *,
        decode: Callable[[Tensor], Tensor] | None = None,
        excess: bool = False,
        drop_first: bool = False,
    ) -> None:
        self.loss, self.sigma_max, self.decode, self.excess, self.drop_first = loss, sigma_max, decode, excess, drop_first

    def __call__(self, x0_hat: Tensor, x0: Tensor, sigma: Tensor) -> MotionResult:  # (B, C, T, H, W) twice, (B,)
        weight = sigma_weight(sigma.float(), self.sigma_max)
        rows = torch.nonzero((weight > _LEAST_WEIGHT) & torch.isfinite(x0_hat).flatten(1).all(dim=1)).flatten()
        wanted = int((weight > _LEAST_WEIGHT).sum())
        with torch.autocast(device_type=x0_hat.device.type, enabled=False):
            total, values, rows = self._values(x0_hat.float(), x0.float(), weight, rows)
            with torch.no_grad():
                before = motion_energy(x0[rows].float())
                ratio = motion_energy(x0_hat[rows].detach().float()) / before.clamp_min(1e-12)
        return MotionResult(total, values, ratio, wanted - len(rows))

    def _values(self, x0_hat: Tensor, x0: Tensor, weight: Tensor, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Weighted sum over the batch, values (K,) and rows (K,) of the samples whose value is finite."""
        for _ in range(2):  # a second time without the rows that were not finite: masking alone would leave NaN gradients
            if len(rows) == 0:
                break
            video = self._video(x0_hat[rows])
            with torch.no_grad():
                reference = self._video(x0[rows]) if self.excess or isinstance(self.loss, AnchoredMotionLoss) else None
            usable = torch.isfinite(video.detach()).flatten(1).all(dim=1)
            if reference is not None:
                usable &= torch.isfinite(reference).flatten(1).all(dim=1)
            if usable.all():
                values = self._loss(video, reference)
                usable = torch.isfinite(values.detach())
                if usable.all():
                    return (weight[rows] * values).sum() / len(weight), values.detach(), rows
            rows = rows[usable]
        return x0_hat.new_zeros(()), x0_hat.new_zeros(0), rows[:0]

    def _loss(self, video: Tensor, reference: Tensor | None) -> Tensor:  # (K, C, T, H, W) twice
        if isinstance(self.loss, AnchoredMotionLoss):
            assert reference is not None
            return self.loss(video, reference, "none")
        return self.loss(video, "none", reference).loss

    def _video(self, latents: Tensor) -> Tensor:  # (K, C, T, H, W)
        if self.decode is not None:
            return self.decode(latents).float()
        return latents[:, :, 1:] if self.drop_first else latents


@dataclass(frozen=True)
class StepLosses:
    """`total` is differentiated; `denoising` is its first part, `motion` what `motion_weight` multiplies (None without it)."""

    total: Tensor
    denoising: Tensor
    motion: MotionResult | None


def training_losses(
    predict: Callable[[Tensor, Tensor], Tensor],
    path: NoisePath,
    x0: Tensor,  # (B, C, T, H, W)
    noise: Tensor,  # (B, C, T, H, W)
    sigma: Tensor,  # (B,) float32
    motion: MotionTerm | None,
    motion_weight: float,
) -> StepLosses:
    """One sigma noises, tells the time, and reads back x0-hat; `predict(x_t, sigma)` is the network.

    The denoising loss is the mean squared error of the prediction, the same with and without the motion term.
    """
    x_t = path.corrupt(x0, noise, sigma)
    prediction = predict(x_t, sigma).float()
    denoising = F.mse_loss(prediction, path.target(x0, noise, sigma).float())
    if motion is None or motion_weight == 0:
        return StepLosses(denoising, denoising, None)
    result = motion(path.clean(prediction, x_t, sigma), x0, sigma)
    return StepLosses(denoising + motion_weight * result.loss, denoising, result)


def gradient_norm_ratio(losses: StepLosses, motion_weight: float, parameters: list[nn.Parameter]) -> float | None:
    """Norm of the weighted motion gradient over that of the denoising gradient; None where no sample carried the motion term.

    Costs one extra backward per term and leaves `.grad` untouched.
    """
    if losses.motion is None or not losses.motion.loss.requires_grad:
        return None

    def norm(loss: Tensor) -> float:
        gradients: tuple[Any, ...] = torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True)
        return math.sqrt(sum(float(g.float().square().sum()) for g in gradients if g is not None))

    denoising = norm(losses.denoising)
    return motion_weight * norm(losses.motion.loss) / denoising if denoising > 0 else None
