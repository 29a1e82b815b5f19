"""Energies of space-time blocks: what the slices, the pace and the coherence term read. One pass over the spectra."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from .config import SpectralConfig
from .lattice import complex_dtype, constant, dft_matrix, hann, kept_bins
from .polar import PolarGeometry, complex_harmonics, harmonic_orders, magnitude_harmonics, ring_energy, split_harmonics
from .products import magnitude, neighbour_product, power
from .transforms import fade_spectrum, mean_matrix, multiplicity, over_time, window_matrix
from .translation import PlaneDesign, plane_design


class Lattice(NamedTuple):
    """Kept frequencies of a block.

    ``times``: temporal bins; ``omega_t`` (Kt,), ``omega_y`` (Ky,), ``omega_x`` (Kx,) in radians per sample or frame;
    ``whitening`` (Ky, Kx), and ``measure``, the same times how often a bin stands for one of the full lattice. ``symmetric``: the
    half lattice ``kx >= 0`` of a point-symmetric spectrum; otherwise the paper's octant. ``design``: of the plane fit.
    """

    geometry: PolarGeometry
    times: tuple[int, ...]
    omega_t: Tensor
    omega_y: Tensor
    omega_x: Tensor
    whitening: Tensor
    measure: Tensor
    symmetric: bool
    design: PlaneDesign


class BlockEnergies(NamedTuple):
    """Energies of N blocks, summed over channels.

    ``plane`` (N, Kt, Ky, Kx), whitened; ``turn`` (N, T, m) and ``growth`` (N, T, nu); ``rings`` (N, T, R), None where nobody
    asks; ``cross`` (N, T - 1, Ky, Kx), complex cross-spectra of neighbouring frames; ``frame`` (N, T), whitened energy of the
    moving part. ``still`` (N,), ``turn_floor`` (N, m), ``growth_floor`` (N, nu): energies of the still part in the same measures,
    without gradient.
    """

    plane: Tensor
    turn: Tensor
    growth: Tensor
    rings: Tensor | None
    cross: Tensor
    frame: Tensor
    still: Tensor
    turn_floor: Tensor
    growth_floor: Tensor


@lru_cache(maxsize=64)
def config_at(longer: int, config: SpectralConfig) -> SpectralConfig:
    """The configuration for a frame whose longer side has ``longer`` samples: ``largest_frequency`` may lower ``keep``."""
    if not config.largest_frequency:
        return config
    return replace(config, keep=min(config.keep, 2 * config.largest_frequency / longer))


def spatial_limits(height: int, width: int, config: SpectralConfig) -> tuple[int, int]:
    """Largest bins (Ly, Lx) that a patch's spectrum must hold; the paper's octant reaches further than the signed lattice."""
    return tuple(  # type: ignore[return-value]
        max(kept_bins(side, config.keep)[-1], kept_bins(side, config.keep, one_sided=config.truncation == "one_sided")[-1])
        for side in (height, width)
    )


@constant
def make_lattice(
    height: int, width: int, frames: int, config: SpectralConfig, device: torch.device, dtype: torch.dtype
) -> Lattice:
    """Frequencies of a patch of ``height`` x ``width`` over ``frames``."""
    one_sided = config.truncation == "one_sided"
    limit_y, limit_x = (kept_bins(side, config.keep)[-1] for side in (height, width))
    rows = kept_bins(height, config.keep, one_sided=one_sided)
    columns = kept_bins(width, config.keep, one_sided=True) if one_sided else list(range(limit_x + 1))
    times = tuple(kept_bins(frames, config.keep_time, one_sided=one_sided, exclude_nyquist=not one_sided))
    omega_t, omega_y, omega_x = (
        2 * math.pi / samples * torch.tensor(bins, device=device, dtype=dtype)
        for samples, bins in ((frames, times), (height, rows), (width, columns))
    )
    whitening = (omega_y[:, None] ** 2 + omega_x[None, :] ** 2) ** config.whiten
    counts = torch.ones_like(whitening) if one_sided else multiplicity(limit_y, limit_x, device, dtype)
    geometry = PolarGeometry(height, width, limit_y, limit_x)
    design = plane_design((omega_t, omega_y, omega_x), config, None if one_sided else counts)
    return Lattice(geometry, times, omega_t, omega_y, omega_x, whitening, whitening * counts, not one_sided, design)


def block_energies(
    spectra: Tensor,
    starts: tuple[int, ...],
    length: int,
    lattice: Lattice,
    config: SpectralConfig,
    *,
    report: bool = True,
) -> BlockEnergies:
    """Energies of every window of every patch; N runs over clips, patches and windows, in this order.

    Args:
        spectra: (B, P, C, T, Ky, Kx), complex, half lattice of the frames; see :func:`transforms.patch_spectra`.
        starts: first frames of the windows of ``length`` frames; the last one ends at the last frame of ``spectra``.
        report: rings are wanted even if the loss doesn't use them.
    """
    # spectra: (B, P, C, T, Ky, Kx)
    device, real = spectra.device, spectra.real.dtype
    geometry = lattice.geometry
    down, right = spectra.shape[-2] // 2, spectra.shape[-1] - 1  # limits of the lattice given
    fade = fade_spectrum(geometry.height, geometry.width, down, right, config.apodise, device, real)
    moving = over_time(window_matrix(starts, length, config.remove_mean, device, real), spectra)
    if not config.remove_mean:
        moving = moving - 0.5 * fade
    moving = moving.view(*moving.shape[:3], len(starts), length, *moving.shape[4:])  # (B, P, C, W, T, Ky, Kx)
    with torch.no_grad():
        still = over_time(mean_matrix(starts, length, device, real), spectra)  # (B, P, C, W, Ky, Kx)
        level = still[..., down, 0].real / fade[down, 0].real  # the mean brightness is no structure
        still = still - level[..., None, None] * fade

    if lattice.symmetric:  # both read all bins that are given
        plane_spectrum, still_plane, signed, still_signed = moving, still, moving, still
    else:
        half = (..., slice(down - geometry.limit_y, down + geometry.limit_y + 1), slice(0, geometry.limit_x + 1))
        plane_spectrum, still_plane = moving[..., down:, :], still[..., down:, :]
        signed, still_signed = moving[half], still[half]
    polar = signed.flatten(-2)  # (B, P, C, W, T, K)
    times = _kept_times(length, lattice.times, device, real)  # (Kt, T)
    plane = power(times @ plane_spectrum.flatten(-2), (2,))  # (B, P, W, Kt, Ky Kx)
    size = magnitude(polar)  # (B, P, C, W, T, K)
    square = size.square().sum(dim=2)  # (B, P, W, T, K)
    rings = None
    if report or config.uses_rings:
        with torch.set_grad_enabled(torch.is_grad_enabled() and config.uses_rings):
            rings = ring_energy(square, geometry, config).flatten(0, 2)  # (N, T, R)
    frame = square if lattice.symmetric else power(plane_spectrum, (2,)).flatten(-2)
    all_bins = _all_bins(length, True, device, real)
    if size.shape[-1] < length:  # few bins: cheaper to transform them over time than their harmonics
        energy = power(magnitude_harmonics(all_bins @ size.to(all_bins.dtype), geometry, config), (2,))
    else:
        energy = power(all_bins @ magnitude_harmonics(size, geometry, config), (2,))  # (B, P, W, T, J)
    turn, growth = (part.sum(dim=-2) for part in split_harmonics(energy, geometry, config))
    with torch.no_grad():
        still_harmonics = magnitude_harmonics(still_signed.flatten(-2).abs(), geometry, config)
        turn_floor, growth_floor = (part.sum(dim=-2) for part in split_harmonics(power(still_harmonics, (2,)), geometry, config))
        still_energy = power(still_plane, (2,)).flatten(-2) @ lattice.measure.flatten()
    if config.polar == "complex":
        orders = len(harmonic_orders(config))
        printed = power(_all_bins(length, False, device, real) @ complex_harmonics(polar, geometry, config), (2,))
        turn = printed.unflatten(-1, (-1, orders)).sum(dim=-2)
    return BlockEnergies(
        plane=plane.view(-1, len(times), *lattice.whitening.shape) * lattice.whitening,
        turn=turn.flatten(0, 2),
        growth=growth.flatten(0, 2),
        rings=rings,
        cross=neighbour_product(plane_spectrum).flatten(0, 2),
        frame=(frame @ lattice.measure.flatten()).flatten(0, 2),
        still=still_energy.flatten(),
        turn_floor=turn_floor.flatten(0, 2),
        growth_floor=growth_floor.flatten(0, 2),
    )


@constant
def _kept_times(length: int, times: tuple[int, ...], device: torch.device, dtype: torch.dtype) -> Tensor:
    """Hann-windowed temporal DFT to the kept bins: (Kt, T), complex."""
    return dft_matrix(length, times, False, device, dtype) * hann(length, device, dtype)


@constant
def _all_bins(length: int, remove_mean: bool, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Hann-windowed temporal DFT to all bins, after removal of the Hann-weighted mean if told so: (T, T), complex."""
    weights = hann(length, torch.device("cpu"), torch.float64)
    bins = tuple(range(-(length // 2), (length + 1) // 2))
    times = dft_matrix(length, bins, False, torch.device("cpu"), torch.float64) * weights
    if remove_mean:
        times = times - times.sum(dim=1, keepdim=True) * weights / weights.sum()
    return times.to(complex_dtype(dtype)).to(device)
