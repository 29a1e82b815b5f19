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


def band_capture(energy: Tensor, bins: Tensor, harmonics: Tensor, floor: Tensor, config: SpectralConfig) -> tuple[Tensor, Tensor]:
    """Share of the energy that misses the best line ``bin + harmonic * slope = 0``.

    Args:
        energy: (N, T, K), temporal bins x harmonics.
        bins: (T,) signed temporal bins; harmonics: (K,).
        floor: (N,) energy added to the denominator.

    Returns:
        missed share (N,) in [0, 1] and slope (N,) in temporal bins per harmonic.
    """
    # energy: (N, T, K)
    total = energy.sum(dim=(1, 2)) + floor
    if config.gradient == "numerator":
        total = total.detach()
    safe = torch.where(total > 0, total, torch.ones_like(total))
    if config.slope == "closed_form":
        slope = closed_form_slope(energy, bins, harmonics)
        distance = bins[None, :, None] + harmonics[None, None, :] * slope[:, None, None]
        inside = torch.sigmoid(config.ring_sharpness * (config.band_half_width - distance.abs()))
        missed = energy * (1 - inside)
    else:
        slope = best_slope(energy.detach(), bins, harmonics, config.band_sigma)
        missed = energy * (1 - gaussian_band(bins, harmonics, slope, config.band_sigma))
    return missed.sum(dim=(1, 2)) / safe, slope


def closed_form_slope(energy: Tensor, bins: Tensor, harmonics: Tensor) -> Tensor:
    """Least squares through the origin, -sum E k_t m / sum E m^2 (paper's Omega*); biased towards 0 once the line wraps. (N,)"""
    numerator = (energy * bins[None, :, None] * harmonics[None, None, :]).sum(dim=(1, 2))
    denominator = (energy * harmonics[None, None, :] ** 2).sum(dim=(1, 2))
    return -numerator / torch.where(denominator > 0, denominator, torch.ones_like(denominator))


def gaussian_band(bins: Tensor, harmonics: Tensor, slope: Tensor, sigma: float) -> Tensor:
    """Gaussian of the distance to the line, modulo one temporal period. (S, T, K) for slopes (S,)."""
    period = bins.shape[0]
    distance = bins[None, :, None] + harmonics[None, None, :] * slope[:, None, None]
    distance = torch.remainder(distance + period / 2, period) - period / 2
    return torch.exp(-0.5 * (distance / sigma) ** 2)


@torch.no_grad()
def best_slope(energy: Tensor, bins: Tensor, harmonics: Tensor, sigma: float) -> Tensor:
    """Slope with the most energy in its band: a grid, then one Newton step on the three points around the maximum. (N,)

    The grid spans +-1/8 of the temporal period per harmonic. No gradient passes: at a maximum it vanishes (envelope theorem).
    """
    period = bins.shape[0]
    grid = torch.linspace(-period / 8, period / 8, _SLOPES, dtype=energy.dtype, device=energy.device)  # (S,)
    captured = energy.flatten(1) @ gaussian_band(bins, harmonics, grid, sigma).flatten(1).T  # (N, S)
    # a symmetric spectrum has two equal maxima: then the slower motion is taken, whichever its sign
    captured = captured * (1 - 1e-6 * (grid / grid[-1]).abs())
    best = captured.argmax(dim=1)
    inner = best.clamp(1, _SLOPES - 2)
    left, middle, right = (captured.gather(1, (inner + shift)[:, None])[:, 0] for shift in (-1, 0, 1))
    curvature = left - 2 * middle + right
    step = torch.where(curvature < 0, 0.5 * (left - right) / curvature.clamp(max=-torch.finfo(energy.dtype).tiny), 0.0)
    refined = grid[inner] + step.clamp(-1, 1) * (grid[1] - grid[0])
    slope = torch.where(best == inner, refined, grid[best])
    return torch.where(energy.sum(dim=(1, 2)) > 0, slope, torch.zeros_like(slope))
