"""Noise paths: how a clean latent and noise are mixed, what the network predicts, and how the clean latent is read back.

Pure functions of tensors. Every base-model family owns one path; losses and trainers never look inside it. One ``sigma`` of
shape (B,), always float32 and always in [0, 1] (0 = clean, 1 = noise), serves noising, timestep and clean estimate, and the
timestep shift is applied to it exactly once, in :meth:`NoisePath.sample`.

The law all paths obey, and that the tests check: ``clean(target(x0, noise, s), corrupt(x0, noise, s), s) == x0``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from phys_pipeline.errors import ConfigError

SIGMA_LAWS = ("logit_normal", "uniform", "stratified")


def shift_sigma(sigma: Tensor, shift: float) -> Tensor:  # (...)
    """Timestep shift of Esser et al. 2024 (arXiv:2403.03206, section 5.3.2): ``s * u / (1 + (s - 1) * u)``; ends stay put."""
    return shift * sigma / (1 + (shift - 1) * sigma)


class NoisePath(ABC):
    """The five questions a trainer asks a model family about noise."""

    @abstractmethod
    def corrupt(self, x0: Tensor, noise: Tensor, sigma: Tensor) -> Tensor:  # (B, ...), (B, ...), (B,)
        """Noisy latent x_t. Computed in float32 or wider, whatever the dtype of ``x0``."""

    @abstractmethod
    def target(self, x0: Tensor, noise: Tensor, sigma: Tensor) -> Tensor:  # (B, ...), (B, ...), (B,)
        """What the network should predict at x_t."""

    @abstractmethod
    def clean(self, prediction: Tensor, x_t: Tensor, sigma: Tensor) -> Tensor:  # (B, ...), (B, ...), (B,)
        """Clean-latent estimate x0-hat of a network prediction. Differentiable."""

    @abstractmethod
    def timestep(self, sigma: Tensor) -> Tensor:  # (B,)
        """The value the network is told, (B,)."""

    def sample(
        self,
        n: int,
        generator: torch.Generator | None = None,
        law: Literal["logit_normal", "uniform", "stratified"] = "logit_normal",
        shift: float = 1.0,
        span: tuple[float, float] = (0.0, 1.0),
    ) -> Tensor:
        """Draw ``n`` values of sigma, float32 (n,), on the generator's device (CPU without one).

        ``logit_normal``: u = sigmoid(N(0, 1)), the usual training law of rectified-flow video models. ``uniform``: u in [0, 1].
        ``stratified``: also uniform over many draws, but the n values fall one into each of n equal slices (in random
        order), so that every batch holds its share of low noise; draw for the whole global batch at once, since one value
        alone can't be stratified. Then ``sigma = shift_sigma(u, shift)``, once. ``span`` keeps sigma between two values: the
        draws follow the law as it is there.
        """
        if n < 1:
            raise ConfigError(f"cannot draw {n} noise levels: ask for at least 1")
        _check_law(law, shift)
        device = generator.device if generator is not None else torch.device("cpu")
        if law == "logit_normal":
            u = torch.sigmoid(torch.randn(n, generator=generator, device=device, dtype=torch.float32))
        else:
            u = torch.rand(n, generator=generator, device=device, dtype=torch.float32)
            if law == "stratified":
                u = (torch.randperm(n, generator=generator, device=device) + u) / n
        if tuple(span) != (0.0, 1.0):
            share = torch.special.ndtr(torch.logit(u.double())) if law == "logit_normal" else u
            return sigma_at(share, law, shift, span).float().clamp(*span)
        return shift_sigma(u, shift).clamp(0.0, 1.0)


class RectifiedFlow(NoisePath):
    """Straight path ``x_t = (1 - sigma) * x0 + sigma * noise`` (Liu et al. 2022, arXiv:2209.03003).

    Args:
        sign: +1 if the network predicts ``noise - x0`` (HunyuanVideo, Wan, LTX), -1 if ``x0 - noise`` (Mochi, Open-Sora).
        time: ``"noise"``: timestep grows with noise, ``scale * sigma``; ``"data"``: ``scale * (1 - sigma)``.
        scale: 1000 for most models, 1 for those told sigma itself. Timesteps are float32 and never rounded.
    """

    def __init__(self, sign: int = 1, time: Literal["noise", "data"] = "noise", scale: float = 1000.0) -> None:
        if sign not in (1, -1):
            raise ConfigError(f"sign is {sign!r}: use +1 (predicts noise - x0) or -1 (predicts x0 - noise)")
        if time not in ("noise", "data"):
            raise ConfigError(f"time is {time!r}: use 'noise' (scale * sigma) or 'data' (scale * (1 - sigma))")
        if not scale > 0:
            raise ConfigError(f"scale is {scale!r}: use a positive number, usually 1000")
        self.sign = sign
        self.time = time
        self.scale = float(scale)

    def corrupt(self, x0: Tensor, noise: Tensor, sigma: Tensor) -> Tensor:  # (B, ...), (B, ...), (B,)
        x0, noise = _widen(x0), _widen(noise)
        s = _broadcast(sigma, x0)
        return (1 - s) * x0 + s * noise

    def target(self, x0: Tensor, noise: Tensor, sigma: Tensor) -> Tensor:  # (B, ...), (B, ...), (B,)
        _broadcast(sigma, x0)  # the straight path has one velocity everywhere; sigma is only checked
        return self.sign * (_widen(noise) - _widen(x0))

    def clean(self, prediction: Tensor, x_t: Tensor, sigma: Tensor) -> Tensor:  # (B, ...), (B, ...), (B,)
        x_t, prediction = _widen(x_t), _widen(prediction)
        return x_t - self.sign * _broadcast(sigma, x_t) * prediction

    def timestep(self, sigma: Tensor) -> Tensor:  # (B,)
        sigma = _check_sigma(sigma)
        return self.scale * (sigma if self.time == "noise" else 1 - sigma)


class VariancePreserving(NoisePath):
    """Discrete path ``x_t = sqrt(abar_t) * x0 + sqrt(1 - abar_t) * noise`` (Ho et al. 2020, arXiv:2006.11239, eq. 4).

    ``sigma`` is a position on the schedule, not a standard deviation: it is rounded to the index
    ``round(sigma * (N - 1))`` of ``alphas_cumprod`` (so sigma 0 is the first, cleanest entry), and :meth:`timestep`
    returns that index as int64. Noising, timestep and clean estimate use the same index, so they always agree.

    Args:
        alphas_cumprod: (N,) products abar_t, falling.
        prediction: ``"v"`` (Salimans & Ho 2022, arXiv:2202.00512: ``sqrt(abar) * noise - sqrt(1 - abar) * x0``) or ``"eps"``.
    """

    def __init__(self, alphas_cumprod: Tensor | Sequence[float], prediction: Literal["v", "eps"] = "v") -> None:  # (N,)
        table = torch.as_tensor(alphas_cumprod, dtype=torch.float64)
        if table.ndim != 1 or len(table) < 2 or bool((table < 0).any()) or bool((table > 1).any()):
            raise ConfigError("alphas_cumprod must be one row of at least 2 numbers in [0, 1]")
        if prediction not in ("v", "eps"):
            raise ConfigError(f"prediction is {prediction!r}: use 'v' or 'eps'")
        if prediction == "eps" and bool((table == 0).any()):
            raise ConfigError("alphas_cumprod holds a zero, where x0 can't be read back from a noise prediction: use 'v'")
        self.alphas_cumprod = table
        self.prediction = prediction

    def _coefficients(self, sigma: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:  # (B,), (B, ...)
        abar = self.alphas_cumprod.to(sigma.device)[self.timestep(sigma)]
        shape = (-1, *(1,) * (like.ndim - 1))
        signal = abar.sqrt().to(like.device, like.dtype).view(shape)
        noise = (1 - abar).sqrt().to(like.device, like.dtype).view(shape)
        return signal, noise

    def corrupt(self, x0: Tensor, noise: Tensor, sigma: Tensor) -> Tensor:  # (B, ...), (B, ...), (B,)
        x0, noise = _widen(x0), _widen(noise)
        _broadcast(sigma, x0)
        a, b = self._coefficients(sigma, x0)
        return a * x0 + b * noise

    def target(self, x0: Tensor, noise: Tensor, sigma: Tensor) -> Tensor:  # (B, ...), (B, ...), (B,)
        x0, noise = _widen(x0), _widen(noise)
        _broadcast(sigma, x0)
        if self.prediction == "eps":
            return noise
        a, b = self._coefficients(sigma, x0)
        return a * noise - b * x0

    def clean(self, prediction: Tensor, x_t: Tensor, sigma: Tensor) -> Tensor:  # (B, ...), (B, ...), (B,)
        x_t, prediction = _widen(x_t), _widen(prediction)
        _broadcast(sigma, x_t)
        a, b = self._coefficients(sigma, x_t)
        if self.prediction == "eps":
            return (x_t - b * prediction) / a
        return a * x_t - b * prediction

    def timestep(self, sigma: Tensor) -> Tensor:  # (B,)
        sigma = _check_sigma(sigma)
        return (sigma.double() * (len(self.alphas_cumprod) - 1)).round().long()


def sigma_at(share: Tensor, law: str, shift: float = 1.0, span: tuple[float, float] = (0.0, 1.0)) -> Tensor:  # (...)
    """Sigma below which that share of the law's draws lies, of those between the ends of ``span``."""
    low, high = (fraction_below(sigma, law, shift) for sigma in span)
    if not low < high:
        raise ConfigError(f"no noise level lies between {span[0]} and {span[1]}: use 0 <= low < high <= 1")
    u = low + (high - low) * share
    if law == "logit_normal":
        u = torch.sigmoid(torch.special.ndtri(u))
    return shift_sigma(u, shift)


def fraction_below(threshold: float, law: str = "logit_normal", shift: float = 1.0) -> float:
    """Exact share of draws with ``sigma < threshold``: what part of training steps a low-noise loss term can see."""
    _check_law(law, shift)
    if threshold <= 0:
        return 0.0
    if threshold >= 1:
        return 1.0
    u = threshold / (shift - (shift - 1) * threshold)  # inverse of shift_sigma
    if law == "logit_normal":
        return 0.5 * (1 + math.erf(math.log(u / (1 - u)) / math.sqrt(2)))
    return u


def _check_law(law: str, shift: float) -> None:
    if law not in SIGMA_LAWS:
        raise ConfigError(f"unknown sigma law {law!r}: use one of {', '.join(SIGMA_LAWS)}")
    if not (math.isfinite(shift) and shift > 0):
        raise ConfigError(f"timestep shift is {shift!r}: use a positive number (1 = no shift)")


def _check_sigma(sigma: Tensor) -> Tensor:  # (B,)
    if sigma.dtype != torch.float32 or sigma.ndim != 1:
        raise ConfigError(f"sigma must be float32 of shape (B,), not {sigma.dtype} of shape {tuple(sigma.shape)}")
    return sigma


def _broadcast(sigma: Tensor, like: Tensor) -> Tensor:  # (B,), (B, ...)
    sigma = _check_sigma(sigma)
    if len(sigma) != like.shape[0]:
        raise ConfigError(f"{len(sigma)} noise levels for a batch of {like.shape[0]}: give one per sample")
    return sigma.to(like.device, like.dtype).view(-1, *(1,) * (like.ndim - 1))


def _widen(x: Tensor) -> Tensor:  # (...)
    """bfloat16 would round sigma 0.98733 to 0.98828, so mixing is done in float32 at least."""
    return x.to(torch.promote_types(x.dtype, torch.float32))
