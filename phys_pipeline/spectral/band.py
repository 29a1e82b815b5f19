"""Energy near a line through the origin of a (temporal bin x harmonic) plane: rotation and scaling share it."""

from __future__ import annotations

import torch
from torch import Tensor

from .config import SpectralConfig
from .lattice import constant

_SLOPES = 121  # grid points; neighbours differ by 1/480 of the temporal period, refined below


@constant
def signed_bins(samples: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """All temporal bins of ``samples`` frames, signed, (T,)."""
    return torch.arange(-(samples // 2), (samples + 1) // 2, device=device, dtype=dtype)


@constant
def roll_off(harmonics: tuple[int, ...], device: torch.device, dtype: torch.dtype) -> Tensor:
    """Weight h^2 / (h^2 + 1) of each harmonic's energy, (K,): the lowest are the least selective."""
    square = torch.tensor(harmonics, dtype=torch.float64) ** 2
    return (square / (square + 1)).to(dtype).to(device)


@constant
def _as_tensor(harmonics: tuple[int, ...], device: torch.device, dtype: torch.dtype) -> Tensor:
    """Harmonics as a tensor (K,)."""
    return torch.tensor(harmonics, device=device, dtype=dtype)


def band_capture(
    energy: Tensor, harmonics: tuple[int, ...], floor: Tensor, config: SpectralConfig, gain: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Share of the energy that misses the best line ``bin + harmonic * slope = 0``.

    Args:
        energy: (N, T, K), all temporal bins x harmonics.
        floor: (N,) energy added to the denominator.
        gain: (K,) weights of the harmonics' energies, see :func:`roll_off`; None: all count alike.

    Returns:
        missed share (N,) in [0, 1] and slope (N,) in temporal bins per harmonic.
    """
    # energy: (N, T, K); floor: (N,); gain: (K,)
    bins, steps = signed_bins(energy.shape[1], energy.device, energy.dtype), _as_tensor(harmonics, energy.device, energy.dtype)
    with torch.set_grad_enabled(torch.is_grad_enabled() and (config.gradient == "full" or config.slope == "closed_form")):
        counted = energy if gain is None else energy * gain
        total = counted.sum(dim=(1, 2)) + floor
        if config.gradient == "numerator":
            total = total.detach()
        if config.slope == "closed_form":
            slope = closed_form_slope(counted, bins, steps)
            distance = bins[None, :, None] + steps * slope[:, None, None]
            inside = torch.sigmoid(config.ring_sharpness * (config.band_half_width - distance.abs()))
        else:
            slope = best_slope(counted, harmonics, config.band_sigma)
            inside = gaussian_band(bins, steps, slope, config.band_sigma)
        missed = 1 - inside if gain is None else (1 - inside) * gain
        total = torch.where(total > 0, total, 1.0)
    return (missed * energy).sum(dim=(1, 2)) / total, slope


def closed_form_slope(energy: Tensor, bins: Tensor, harmonics: Tensor) -> Tensor:
    """Least squares through the origin, -sum E k_t m / sum E m^2 (paper's Omega*); biased towards 0 once the line wraps. (N,)"""
    numerator = (energy * bins[None, :, None] * harmonics[None, None, :]).sum(dim=(1, 2))
    denominator = (energy * harmonics[None, None, :] ** 2).sum(dim=(1, 2))
    return -numerator / torch.where(denominator > 0, denominator, torch.ones_like(denominator))


def gaussian_band(bins: Tensor, harmonics: Tensor, slope: Tensor, sigma: float) -> Tensor:
    """Gaussian of the distance to the line, modulo one temporal period. (S, T, K) for slopes (S,)."""
    period = bins.shape[0]
    distance = torch.addcmul(bins[:, None] + period / 2, slope[:, None, None], harmonics)
    distance = torch.remainder(distance, period) - period / 2
    return torch.exp(distance.square() * (-0.5 / sigma**2))


@torch.no_grad()
def best_slope(energy: Tensor, harmonics: tuple[int, ...], sigma: float) -> Tensor:
    """Slope with the most energy in its band: a grid, then one Newton step on the three points around the maximum. (N,)

    The grid spans +-1/8 of the temporal period per harmonic. No gradient passes: at a maximum it vanishes (envelope theorem).
    """
    # energy: (N, T, K)
    slopes, slower, bands, neighbours = _grid(energy.shape[1], harmonics, sigma, energy.device, energy.dtype)
    captured = (energy.flatten(1) @ bands) * slower  # (N, S)
    largest, best = captured.max(dim=1)
    inner = best.clamp(1, _SLOPES - 2)
    left, middle, right = captured.gather(1, inner[:, None] + neighbours).unbind(dim=1)
    curvature = left - 2 * middle + right
    step = 0.5 * (left - right) / curvature.clamp(max=-torch.finfo(energy.dtype).tiny)
    step = torch.where((curvature < 0) & (best == inner), step.clamp(-1, 1), 0.0)
    slope = slopes[best] + step * (energy.shape[1] / 4 / (_SLOPES - 1))
    return torch.where(largest > 0, slope, 0.0)


@constant
def _grid(
    frames: int, harmonics: tuple[int, ...], sigma: float, device: torch.device, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Slopes (S,), weights (S,) that prefer slower ones, their bands (T K, S), and the steps (3,) to a slope's neighbours.

    A symmetric spectrum has two equal maxima: then the slower motion is taken, whichever its sign.
    """
    slopes = torch.linspace(-frames / 8, frames / 8, _SLOPES, dtype=dtype, device=device)
    bands = gaussian_band(signed_bins(frames, device, dtype), _as_tensor(harmonics, device, dtype), slopes, sigma)
    return slopes, 1 - 1e-6 * (slopes / slopes[-1]).abs(), bands.flatten(1).T, torch.arange(-1, 2, device=device)
