"""Scaling slice: a zooming patch has its energy on tilted lines over log-radius harmonics (paper, "Scaling Motion Loss")."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .band import band_capture, roll_off
from .config import SpectralConfig
from .lattice import window_power
from .polar import PolarGeometry, log_radii


class ScalingResult(NamedTuple):
    """Loss (N,), slope of the best line (N,) in log-scale per frame (growing positive), the paper's two proxies, each (N,).

    The slope is that of the moving part, so it is biased high for slow zooms; :mod:`estimate` has the value for reports.
    """

    loss: Tensor
    zoom: Tensor
    flow_proxy: Tensor
    trend_proxy: Tensor


def scaling_loss(
    energy: Tensor, ring_energy: Tensor | None, still: Tensor, geometry: PolarGeometry, config: SpectralConfig
) -> ScalingResult:
    """Energy that misses the best line over log-radius harmonics (calibrated), or 1 - (C_flow + S_trend) / 2 (paper).

    Args:
        energy: (N, T, nu) over all temporal bins.
        ring_energy: (N, T, R), energy of each frame in linear rings; None gives proxies of 0.
        still: (N, nu), energy of the still part in the same harmonics: the floor of the denominator.
    """
    # energy: (N, T, nu); ring_energy: (N, T, R); still: (N, nu)
    frames = energy.shape[1]
    flow, trend = energy.new_zeros(2, len(energy)) if ring_energy is None else scaling_proxies(ring_energy)
    period = log_radii(geometry, config)[1]
    harmonics = tuple(range(1, config.scaling_harmonics + 1))
    gain = roll_off(harmonics, energy.device, energy.dtype)
    floor = (still @ gain) * (config.energy_floor * window_power(frames, energy.device, energy.dtype))
    missed, slope = band_capture(energy, harmonics, floor, config, gain)
    loss = missed if config.scaling_loss == "line" else 1 - 0.5 * (flow + trend)
    return ScalingResult(loss, -slope * period / frames, flow, trend)  # content that grows shrinks its spectrum


def scaling_proxies(ring_energy: Tensor) -> tuple[Tensor, Tensor]:
    """The paper's C_flow (radial against temporal change of ring energy) and S_trend (drift of the radial centroid), each (N,).

    Fewer than three frames give 0.5 for both, as in the paper.
    """
    # ring_energy: (N, T, R)
    blocks, frames, _ = ring_energy.shape
    if frames < 3:
        half = ring_energy.new_full((blocks,), 0.5)
        return half, half
    total = ring_energy.sum(dim=2, keepdim=True)
    share = ring_energy / torch.where(total > 0, total, torch.ones_like(total))
    radial = (share[:, :, 1:] - share[:, :, :-1])[:, :-1].flatten(1)
    temporal = (share[:, 1:] - share[:, :-1])[:, :, :-1].flatten(1)
    flow = (radial * temporal).sum(dim=1).abs() / (_norm(radial) * _norm(temporal) + 1e-8)
    centroid = radial_centroid(ring_energy)
    centroid = centroid - centroid.mean(dim=1, keepdim=True)
    time = torch.arange(frames, device=ring_energy.device, dtype=ring_energy.dtype)
    time = time - time.mean()
    trend = (centroid * time).mean(dim=1).abs() / (_norm(centroid) * _norm(time[None]) / frames + 1e-8)
    return flow, trend


def radial_centroid(ring_energy: Tensor) -> Tensor:
    """Mean ring, counted from 1, of each frame's energy, (N, T); 0 where there is none."""
    # ring_energy: (N, T, R)
    total = ring_energy.sum(dim=2, keepdim=True)
    share = ring_energy / torch.where(total > 0, total, torch.ones_like(total))
    index = torch.arange(1, ring_energy.shape[2] + 1, device=ring_energy.device, dtype=ring_energy.dtype)
    return (share * index).sum(dim=2)


def _norm(rows: Tensor) -> Tensor:
    """Euclidean norm of each row, with a finite gradient at zero."""
    return torch.sqrt(rows.square().sum(dim=1) + 1e-24)
