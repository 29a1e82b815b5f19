"""Rotation slice: a turning patch has its energy on omega_t + m Omega = 0 over angular harmonics m.

Paper, "Rotational Motion Loss".
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from .band import band_capture
from .config import SpectralConfig
from .lattice import constant, dft_matrix, hann, largest_radius, polar_table, resample_polar, time_spectrum


class PolarGeometry(NamedTuple):
    """What the polar slices need to know of the lattice: patch size and largest kept bins."""

    height: int
    width: int
    limit_y: int
    limit_x: int

    @property
    def largest_radius(self) -> float:
        return largest_radius(self.height, self.width, self.limit_y, self.limit_x)


class RotationResult(NamedTuple):
    """Loss (N,), slope of the best line (N,) in radians per frame (clockwise positive), ring concentration (N,).

    The slope is that of the moving part, so it is biased high for slow rotation; :mod:`estimate` has the value for reports.
    """

    loss: Tensor
    rotation: Tensor
    ring_concentration: Tensor


def signed_bins(samples: int, device: torch.device, dtype: torch.dtype) -> tuple[tuple[int, ...], Tensor]:
    """All temporal bins of ``samples`` frames, signed, as integers and as a tensor."""
    bins = tuple(range(-(samples // 2), (samples + 1) // 2))
    return bins, torch.tensor(bins, device=device, dtype=dtype)


def remove_time_mean(signal: Tensor, dim: int) -> Tensor:
    """Subtract the Hann-weighted temporal mean along ``dim``."""
    real = torch.float64 if signal.dtype in (torch.float64, torch.complex128) else torch.float32
    window = hann(signal.shape[dim], signal.device, real)
    shape = [1] * signal.dim()
    shape[dim] = -1
    weights = (window / window.sum()).view(shape)
    return signal - (signal * weights).sum(dim=dim, keepdim=True)


def rotation_loss(
    spectrum: Tensor, still: Tensor, ring_energy: Tensor, geometry: PolarGeometry, config: SpectralConfig
) -> RotationResult:
    """Energy that misses the best line over angular harmonics, plus the ring term.

    Args:
        spectrum: (N, C, T, Ky, Kx) complex on the signed lattice.
        still: (N, C, 1, Ky, Kx), spectrum of the still part: its energy over harmonics is the floor of the denominator.
        ring_energy: (N, T, R), see :func:`soft_ring_energy`.
    """
    # spectrum: (N, C, T, Ky, Kx)
    frames, real = spectrum.shape[2], spectrum.real.dtype
    radii = ring_radii(geometry, config)
    bins, bin_values = signed_bins(frames, spectrum.device, real)
    moving = angular_harmonics(spectrum, radii, geometry, config)  # (N, C, T, R, m)
    if config.polar == "magnitude":
        moving = remove_time_mean(moving, dim=2)
    energy = time_spectrum(moving, bins, dim=2).abs().square().sum(dim=(1, 3))  # (N, T, m)
    orders = torch.tensor(harmonic_orders(config), device=spectrum.device, dtype=real)  # (m,)
    floor = torch.zeros(spectrum.shape[0], device=spectrum.device, dtype=real)
    if config.polar == "magnitude":
        roll_off = orders**2 / (orders**2 + 1)
        energy = energy * roll_off
        with torch.no_grad():
            reference = angular_harmonics(still, radii, geometry, config).abs().square().sum(dim=(1, 2, 3)) * roll_off
            floor = config.energy_floor * window_power(frames, spectrum.device, real) * reference.sum(dim=1)
    missed, slope = band_capture(energy, bin_values, orders, floor, config)
    concentration = ring_concentration(ring_energy)
    loss = (1 - config.ring_weight) * missed + config.ring_weight * (1 - concentration)
    return RotationResult(loss, slope * 2 * math.pi / frames, concentration)


def window_power(frames: int, device: torch.device, dtype: torch.dtype) -> float:
    """Energy over all temporal bins of a unit constant under the Hann window: T sum h^2 (Parseval)."""
    return float(frames * hann(frames, device, dtype).square().sum())


def ring_radii(geometry: PolarGeometry, config: SpectralConfig) -> tuple[float, ...]:
    """Linear ring radii in bins; the paper starts at R / N_r, the calibrated preset where the lattice can be interpolated."""
    outer = geometry.largest_radius
    inner = outer / config.rings if config.polar == "complex" else min(config.inner_radius, outer)
    return tuple(torch.linspace(inner, outer, config.rings, dtype=torch.float64).tolist())


def harmonic_orders(config: SpectralConfig) -> tuple[int, ...]:
    """Angular harmonics used. Magnitudes are point-symmetric, so only even orders exist, and real, so m > 0 is enough."""
    if config.polar == "magnitude":
        return tuple(range(2, config.angles // 4 + 1, 2))
    return tuple(order for order in range(-(config.angles // 2), (config.angles + 1) // 2) if order != 0)


@lru_cache(maxsize=16)
def angle_grid(config: SpectralConfig) -> tuple[float, ...]:
    """Angles from +x towards +y (clockwise on the screen): half a turn for magnitudes, a full turn for complex values."""
    count, turn = (config.angles // 2, math.pi) if config.polar == "magnitude" else (config.angles, 2 * math.pi)
    return tuple(turn * index / count for index in range(count))


def angular_harmonics(spectrum: Tensor, radii: tuple[float, ...], geometry: PolarGeometry, config: SpectralConfig) -> Tensor:
    """Polar resampling and angular DFT: (N, C, T, Ky, Kx) -> (N, C, T, R, m)."""
    # spectrum: (N, C, T, Ky, Kx)
    real = spectrum.real.dtype
    angles = angle_grid(config)
    table = polar_table(*geometry, radii, angles, spectrum.device, real)
    values = spectrum.abs() if config.polar == "magnitude" else spectrum
    polar = resample_polar(values, table)  # (N, C, T, R, A)
    if config.whiten:
        polar = polar * torch.tensor(radii, device=spectrum.device, dtype=real)[:, None] ** config.whiten
    orders = harmonic_orders(config)
    period = tuple(order // 2 for order in orders) if config.polar == "magnitude" else orders
    matrix = dft_matrix(len(angles), period, False, spectrum.device, real) / len(angles)  # (m, A)
    return polar.to(matrix.dtype) @ matrix.T


@constant
def _ring_masks(geometry: PolarGeometry, rings: int, sharpness: float, device: torch.device, dtype: torch.dtype) -> Tensor:
    shorter = min(geometry.height, geometry.width)
    y = torch.arange(-geometry.limit_y, geometry.limit_y + 1, device=device, dtype=dtype) * shorter / geometry.height
    x = torch.arange(-geometry.limit_x, geometry.limit_x + 1, device=device, dtype=dtype) * shorter / geometry.width
    radius = torch.sqrt(y[:, None] ** 2 + x[None, :] ** 2) / geometry.largest_radius
    edges = torch.linspace(0, 1, rings + 1, device=device, dtype=dtype)
    rise = torch.sigmoid(sharpness * rings * (radius - edges[:-1, None, None]))
    fall = torch.sigmoid(sharpness * rings * (edges[1:, None, None] - radius))
    return rise * fall


def soft_ring_energy(spectrum: Tensor, geometry: PolarGeometry, config: SpectralConfig) -> Tensor:
    """Energy in soft concentric rings per frame, (N, T, R), from (N, C, T, Ky, Kx). Paper: sigmoid edges, sharpness 20."""
    masks = _ring_masks(geometry, config.rings, config.ring_sharpness, spectrum.device, spectrum.real.dtype)
    return torch.einsum("ncthw,rhw->ntr", spectrum.abs().square(), masks)


def ring_concentration(ring_energy: Tensor) -> Tensor:
    """C_ring = 1 - mean_t H(ring shares) / log N_r, (N,) in [0, 1] (paper, "Rotational Motion Loss")."""
    # ring_energy: (N, T, R)
    total = ring_energy.sum(dim=2, keepdim=True)
    share = ring_energy / torch.where(total > 0, total, torch.ones_like(total))
    entropy = -(share * torch.log(share + 1e-8)).sum(dim=2)
    return 1 - entropy.mean(dim=1) / math.log(ring_energy.shape[2])
