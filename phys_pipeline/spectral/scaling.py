"""Scaling slice: a zooming patch has its energy on tilted lines over log-radius harmonics (paper, "Scaling Motion Loss")."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from .band import band_capture
from .config import SpectralConfig
from .lattice import dft_matrix, hann, polar_table, resample_polar, time_spectrum
from .rotation import PolarGeometry, angle_grid, remove_time_mean, signed_bins, window_power


class ScalingResult(NamedTuple):
    """Loss (N,), slope of the best line (N,) in log-scale per frame (growing positive), the paper's two proxies, each (N,).

    The slope is that of the moving part, so it is biased high for slow zooms; :mod:`estimate` has the value for reports.
    """

    loss: Tensor
    zoom: Tensor
    flow_proxy: Tensor
    trend_proxy: Tensor


def scaling_loss(
    spectrum: Tensor, still: Tensor, ring_energy: Tensor, geometry: PolarGeometry, config: SpectralConfig
) -> ScalingResult:
    """Energy that misses the best line over log-radius harmonics (calibrated), or 1 - (C_flow + S_trend) / 2 (paper).

    Args:
        spectrum: (N, C, T, Ky, Kx) complex on the signed lattice.
        still: (N, C, 1, Ky, Kx), spectrum of the still part.
        ring_energy: (N, T, R), energy in linear rings.
    """
    # spectrum: (N, C, T, Ky, Kx)
    frames, real = spectrum.shape[2], spectrum.real.dtype
    flow, trend = scaling_proxies(ring_energy)
    outer = geometry.largest_radius
    inner = min(config.inner_radius, outer / 1.5)
    length = math.log(outer / inner) * config.radii / (config.radii - 1)  # period of the log-radius DFT
    harmonics = torch.arange(1, config.scaling_harmonics + 1, device=spectrum.device, dtype=real)
    bins, bin_values = signed_bins(frames, spectrum.device, real)
    moving = remove_time_mean(log_radius_harmonics(spectrum, inner, outer, geometry, config), dim=2)  # (N, C, T, nu, A)
    roll_off = harmonics**2 / (harmonics**2 + 1)
    energy = time_spectrum(moving, bins, dim=2).abs().square().sum(dim=(1, 4)) * roll_off  # (N, T, nu)
    with torch.no_grad():
        reference = log_radius_harmonics(still, inner, outer, geometry, config).abs().square().sum(dim=(1, 2, 4)) * roll_off
        floor = config.energy_floor * window_power(frames, spectrum.device, real) * reference.sum(dim=1)
    missed, slope = band_capture(energy, bin_values, harmonics, floor, config)
    loss = missed if config.scaling_loss == "line" else 1 - 0.5 * (flow + trend)
    return ScalingResult(loss, -slope * length / frames, flow, trend)  # content that grows shrinks its spectrum


def log_radius_harmonics(spectrum: Tensor, inner: float, outer: float, geometry: PolarGeometry, config: SpectralConfig) -> Tensor:
    """Log-polar resampling of the magnitude, Hann over log-radius, DFT: (N, C, T, Ky, Kx) -> (N, C, T, nu, A)."""
    real = spectrum.real.dtype
    log_radii = torch.linspace(math.log(inner), math.log(outer), config.radii, dtype=torch.float64)
    radii = tuple(log_radii.exp().tolist())
    table = polar_table(*geometry, radii, angle_grid(config), spectrum.device, real)
    polar = resample_polar(spectrum.abs(), table)  # (N, C, T, radii, A)
    weight = hann(config.radii, spectrum.device, real)
    if config.whiten:
        weight = weight * torch.tensor(radii, device=spectrum.device, dtype=real) ** config.whiten
    orders = tuple(range(1, config.scaling_harmonics + 1))
    matrix = dft_matrix(config.radii, orders, False, spectrum.device, real) * weight  # (nu, radii)
    return matrix @ polar.to(matrix.dtype)


def scaling_proxies(ring_energy: Tensor) -> tuple[Tensor, Tensor]:
    """The paper's C_flow (radial against temporal change of ring energy) and S_trend (drift of the radial centroid), each (N,).

    Fewer than three frames give 0.5 for both, as in the paper.
    """
    # ring_energy: (N, T, R)
    blocks, frames, rings = ring_energy.shape
    if frames < 3:
        half = ring_energy.new_full((blocks,), 0.5)
        return half, half
    total = ring_energy.sum(dim=2, keepdim=True)
    share = ring_energy / torch.where(total > 0, total, torch.ones_like(total))
    radial = (share[:, :, 1:] - share[:, :, :-1])[:, :-1].flatten(1)
    temporal = (share[:, 1:] - share[:, :-1])[:, :, :-1].flatten(1)
    flow = (radial * temporal).sum(dim=1).abs() / (_norm(radial) * _norm(temporal) + 1e-8)
    index = torch.arange(1, rings + 1, device=ring_energy.device, dtype=ring_energy.dtype)
    centroid = (share * index).sum(dim=2)
    centroid = centroid - centroid.mean(dim=1, keepdim=True)
    time = torch.arange(frames, device=ring_energy.device, dtype=ring_energy.dtype)
    time = time - time.mean()
    trend = (centroid * time).mean(dim=1).abs() / (_norm(centroid) * _norm(time[None]) / frames + 1e-8)
    return flow, trend


def _norm(rows: Tensor) -> Tensor:
    """Euclidean norm of each row, with a finite gradient at zero."""
    return torch.sqrt(rows.square().sum(dim=1) + 1e-24)
