"""A loss on the predicted clean clip x0-hat: which samples carry it, how much, and what it sees of them."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from training.objectives.crop import Crop

_LEAST_WEIGHT = 1e-3  # below this a sample's term isn't worth its decoding


class ClipLoss(Protocol):
    """Losses (K,) of videos (K, C, T, H, W); `reference`, the clean clips, is None unless `needs_reference`."""

    needs_reference: bool

    def __call__(self, video: Tensor, reference: Tensor | None) -> Tensor: ...


def sigma_weight(sigma: Tensor, sigma_max: float) -> Tensor:  # (B,)
    """cos^2(pi/2 * sigma / sigma_max), 0 above: 1 on clean latents, smooth at both ends.

    x0-hat is a blurred posterior mean at high noise, where a spectrum would punish honest blur.
    """
    return torch.cos(0.5 * math.pi * (sigma / sigma_max).clamp(max=1.0)).square()


def motion_energy(video: Tensor) -> Tensor:  # (B, C, T, H, W) -> (B,)
    """Mean square of what differs from the temporal mean: 0 for a still clip. Latents or pixels."""
    return (video - video.mean(dim=2, keepdim=True)).square().flatten(1).mean(dim=1)


@dataclass(frozen=True)
class TermResult:
    """A term on one batch. `values` (K,) belong to the K samples that carried it, without gradient."""

    loss: Tensor  # scalar: mean over the whole batch of sample weight x value
    values: Tensor
    skipped: int  # samples left out because their loss was not finite


class MotionTerm:
    """A clip loss on x0-hat, faded out towards `sigma_max`. Always float32, never under autocast.

    Args:
        loss: called with float32 (K, C, T, H, W).
        sigma_max: the weight is 0 from here on.
        every_step: weight 1 at every noise level instead, `sigma_max` is not used (the paper's training).
        decode: latents -> pixels in [0, 1], differentiable; None scores the latents themselves.
        crop: decode only this much of the latents, at a place drawn from each sample's seed.
        drop_first: leave out the first latent frame, which covers one picture where the others cover several.
    """

    def __init__(
        self,
        loss: ClipLoss,
        sigma_max: float,
        *,
        every_step: bool = False,
        decode: Callable[[Tensor], Tensor] | None = None,
        crop: Crop | None = None,
        drop_first: bool = False,
    ) -> None:
        self.loss, self.sigma_max, self.every_step = loss, sigma_max, every_step
        self.decode, self.crop, self.drop_first = decode, crop, drop_first

    def __call__(self, x0_hat: Tensor, x0: Tensor, sigma: Tensor, seeds: Sequence[int] | None = None) -> TermResult:
        # x0_hat, x0: (B, C, T, H, W); sigma: (B,); seeds: one per sample, needed for a crop
        weight = torch.ones_like(sigma.float()) if self.every_step else sigma_weight(sigma.float(), self.sigma_max)
        rows = torch.nonzero((weight > _LEAST_WEIGHT) & torch.isfinite(x0_hat).flatten(1).all(dim=1)).flatten()
        wanted = int((weight > _LEAST_WEIGHT).sum())
        with torch.autocast(device_type=x0_hat.device.type, enabled=False):
            total, values, rows = self._values(x0_hat.float(), x0.float(), weight, rows, seeds)
        return TermResult(total, values, wanted - len(rows))

    def whole(self) -> MotionTerm:
        """The same term on whole clips."""
        term = copy.copy(self)
        term.crop = None
        return term

    def _values(
        self, x0_hat: Tensor, x0: Tensor, weight: Tensor, rows: Tensor, seeds: Sequence[int] | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Weighted sum over the batch, values (K,) and rows (K,) of the samples whose value is finite."""
        for _ in range(2):  # a second time without the rows that were not finite: masking alone would leave NaN gradients
            if len(rows) == 0:
                break
            video = self._video(x0_hat, rows, seeds)
            with torch.no_grad():
                reference = self._video(x0, rows, seeds) if self.loss.needs_reference else None
            usable = torch.isfinite(video.detach()).flatten(1).all(dim=1)
            if reference is not None:
                usable &= torch.isfinite(reference).flatten(1).all(dim=1)
            if usable.all():
                values = self.loss(video, reference)
                usable = torch.isfinite(values.detach())
                if usable.all():
                    return (weight[rows] * values).sum() / len(weight), values.detach(), rows
            rows = rows[usable]
        return x0_hat.new_zeros(()), x0_hat.new_zeros(0), rows[:0]

    def _video(self, latents: Tensor, rows: Tensor, seeds: Sequence[int] | None) -> Tensor:
        # latents: (B, C, T, H, W); rows: (K,); returns (K, ...)
        latents = latents[rows]
        if self.decode is None:
            return latents[:, :, 1:] if self.drop_first else latents
        if self.crop is not None:
            if seeds is None:
                raise ValueError("a cropped term needs one seed per sample")
            latents = self.crop(latents, [seeds[row] for row in rows.tolist()])
        return self.decode(latents).float()
