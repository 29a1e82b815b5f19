"""A loss on the predicted clean clip x0-hat: which samples carry it, how much, and what it sees of them.

Value and gradient are computed together in the forward pass, a few samples at a time, and only the gradient is kept: one x0-hat
in float32 waits for the backward pass, beside the network's activations, whatever the loss and its decoder need on their way.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from training.objectives.crop import Crop

_LEAST_WEIGHT = 1e-3  # below this a sample's term isn't worth its decoding
_TOGETHER = 2**18  # latents (1 MB) that are scored at once: small clips share the calls, of large ones each goes alone
_KEPT = 100_000  # samples whose clean clip's number is remembered, about 10 MB


class ClipLoss(Protocol):
    """Losses (K,) of videos (K, C, T, H, W); `clean` is what `of_clean` made of the clean clips, None unless `needs_reference`.

    `sigma` (K,) is the noise level that x0-hat was predicted from. `one_number`: `of_clean` gives numbers (K,) whatever the noise
    level, which may be remembered in place of the clips.
    """

    needs_reference: bool
    one_number: bool

    def of_clean(self, reference: Tensor, sigma: Tensor) -> Any: ...

    def __call__(self, video: Tensor, clean: Any) -> Tensor: ...


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
    skipped: int  # samples left out because their loss or its gradient was not finite


class _WithGradient(Function):
    """`value` as a function of `source` whose gradient is known already."""

    @staticmethod
    def forward(context: Any, source: Tensor, value: Tensor, gradient: Tensor) -> Tensor:
        context.save_for_backward(gradient)
        return value.clone()

    @staticmethod
    @once_differentiable
    def backward(context: Any, outer: Tensor) -> tuple[Tensor, None, None]:
        (gradient,) = context.saved_tensors
        return outer * gradient, None, None


class MotionTerm:
    """A clip loss on x0-hat, faded out towards `sigma_max`. Always float32, never under autocast.

    Gradients reach x0-hat and nothing else; the decoder's weights are frozen. They can't be differentiated again.

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
        self._known: dict[int, float] = {}

    def __call__(
        self,
        x0_hat: Tensor,  # (B, C, T, H, W)
        x0: Tensor,  # (B, C, T, H, W)
        sigma: Tensor,  # (B,)
        seeds: Sequence[int] | None = None,  # one per sample, needed for a crop
        samples: Sequence[int] | None = None,  # places in the data set; what is known of a whole clean clip is kept under them
    ) -> TermResult:
        weight = torch.ones_like(sigma.float()) if self.every_step else sigma_weight(sigma.float(), self.sigma_max)
        wanted = torch.nonzero(weight > _LEAST_WEIGHT).flatten().tolist()
        together = 1 if self.decode is not None else max(1, _TOGETHER // x0_hat[0].numel())
        differentiate = x0_hat.requires_grad and torch.is_grad_enabled()
        gradient = torch.zeros_like(x0_hat, dtype=torch.float32) if differentiate and wanted else None
        values = torch.full_like(weight, math.nan)
        waiting = [wanted[i : i + together] for i in range(0, len(wanted), together)]
        with torch.autocast(device_type=x0_hat.device.type, enabled=False):
            while waiting:
                rows = waiting.pop(0)
                place = _place(rows)
                found = self._score(x0_hat.detach()[place], x0[place], sigma[place].float(), rows, seeds, samples, differentiate)
                if found is not None:
                    values[place], slope = found
                    if gradient is not None and slope is not None:
                        gradient[place] = slope * (weight[place] / len(weight)).view(-1, 1, 1, 1, 1)
                elif len(rows) > 1:  # something is not finite: each alone
                    waiting += [[row] for row in rows]
        carried = torch.isfinite(values)
        scores = values[carried]
        if not len(scores):
            return TermResult(x0_hat.new_zeros((), dtype=torch.float32), scores, len(wanted))
        total = (weight[carried] * scores).sum() / len(weight)
        if gradient is not None:
            total = _WithGradient.apply(x0_hat, total, gradient)  # type: ignore[no-untyped-call]
        return TermResult(total, scores, len(wanted) - len(scores))

    @torch.no_grad()
    def of_clips(self, latents: Tensor) -> Tensor:  # (B, C, T, H, W) -> (B,)
        """The loss of each clip by itself, without gradient and weight; NaN where it is not finite."""
        alone = [clip.float() for clip in latents.split(1)]
        found = [self._score(clip, clip, clip.new_zeros(1), [0], None, None, False) for clip in alone]
        return torch.tensor([math.nan if result is None else float(result[0]) for result in found], device=latents.device)

    def whole(self) -> MotionTerm:
        """The same term on whole clips."""
        term = copy.copy(self)
        term.crop = None
        return term

    def _score(
        self,
        latents: Tensor,  # (K, C, T, H, W)
        x0: Tensor,  # (K, C, T, H, W)
        sigma: Tensor,  # (K,)
        rows: list[int],
        seeds: Sequence[int] | None,
        samples: Sequence[int] | None,
        differentiate: bool,
    ) -> tuple[Tensor, Tensor | None] | None:
        """Values (K,) and their gradients (K, C, T, H, W) at the latents; None when anything is not finite."""
        if not _finite(latents):
            return None
        own_seeds = None if seeds is None else [seeds[row] for row in rows]
        with torch.no_grad():
            own_samples = None if samples is None else [samples[row] for row in rows]
            clean, finite = self._clean(x0.float(), sigma, own_seeds, own_samples)
        if not finite:
            return None
        with torch.set_grad_enabled(differentiate):
            leaf = latents.float().requires_grad_(differentiate)
            video = self._video(leaf, own_seeds)
            scored = video.detach().requires_grad_(differentiate)
            if self.decode is not None and not _finite(scored):
                return None
            values = self.loss(scored, clean)
            if not _finite(values.detach()):
                return None
            if not differentiate:
                return values, None
            slope = _slope(values, scored)
        values = values.detach()
        if video is not leaf:
            slope = _through(video, leaf, slope)
        return (values, slope) if _finite(slope) else None

    def _clean(self, x0: Tensor, sigma: Tensor, seeds: Sequence[int] | None, samples: Sequence[int] | None) -> tuple[Any, bool]:
        """What the loss needs to know of the clean clips, and whether all of it is finite.

        A number per clip is computed for each clip alone, so that it doesn't depend on the batch that asked first.
        """
        # x0: (K, C, T, H, W); sigma: (K,)
        if not self.loss.needs_reference:
            return None, True
        if not self.loss.one_number or samples is None or self.crop is not None:
            video = self._video(x0, seeds)
            return (self.loss.of_clean(video, sigma), True) if _finite(video) else (None, False)
        numbers = []
        for place, sample in enumerate(samples):
            number = self._known.get(sample)
            if number is None:
                video = self._video(x0[place : place + 1], None)
                number = float(self.loss.of_clean(video, sigma[place : place + 1])) if _finite(video) else math.nan
                if len(self._known) < _KEPT:
                    self._known[sample] = number
            numbers.append(number)
        return torch.tensor(numbers, device=x0.device), all(map(math.isfinite, numbers))

    def _video(self, latents: Tensor, seeds: Sequence[int] | None) -> Tensor:
        # latents: (K, C, T, H, W); returns (K, ...)
        if self.decode is None:
            return latents[:, :, 1:] if self.drop_first else latents
        if self.crop is not None:
            if seeds is None:
                raise ValueError("a cropped term needs one seed per sample")
            latents = self.crop(latents, seeds)
        return self.decode(latents).float()


def _finite(values: Tensor) -> bool:
    """Whether all values are finite; one pass without a mask, in a tenth of the time of `isfinite`."""
    return all(map(math.isfinite, torch.stack(torch.aminmax(values)).tolist()))


def _place(rows: list[int]) -> slice | list[int]:
    """Index of rows of a batch; a slice, which copies nothing, where they are neighbours."""
    neighbours = slice(rows[0], rows[0] + len(rows))
    return neighbours if rows == list(range(neighbours.start, neighbours.stop)) else rows


def _slope(values: Tensor, video: Tensor) -> Tensor:
    """Gradient of each value at its video; 0 where the loss is constant."""
    if not values.requires_grad:
        return torch.zeros_like(video)
    return torch.autograd.grad(values.sum(), video)[0]


def _through(video: Tensor, latents: Tensor, slope: Tensor) -> Tensor:
    """The gradient `slope` at the video, at the latents: multiplied by a power of two that no decoder in half precision loses."""
    largest = float(slope.abs().max())
    if not 0 < largest < math.inf:
        return torch.zeros_like(latents) if largest == 0 else torch.full_like(latents, largest)
    scale = 2.0 ** -math.frexp(largest)[1]
    return torch.autograd.grad(video, latents, slope * scale)[0].float() / scale
