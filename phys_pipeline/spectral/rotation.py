"""Rotation slice: a turning patch has its energy on omega_t + m Omega = 0 over angular harmonics m.

Paper, "Rotational Motion Loss".
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from .band import band_capture, roll_off
from .config import SpectralConfig
from .lattice import window_power
from .polar import harmonic_orders


class RotationResult(NamedTuple):
    """Loss (N,), slope of the best line (N,) in radians per frame (clockwise positive), ring concentration (N,).

    The slope is that of the moving part, so it is biased high for slow rotation; :mod:`estimate` has the value for reports.
    """

    loss: Tensor
    rotation: Tensor
    ring_concentration: Tensor


def rotation_loss(energy: Tensor, ring_energy: Tensor | None, still: Tensor, config: SpectralConfig) -> RotationResult:
    """Energy that misses the best line over angular harmonics, plus the ring term.

    Args:
        energy: (N, T, m) over all temporal bins.
        ring_energy: (N, T, R), energy of each frame in soft rings; None gives a concentration of 0.
        still: (N, m), energy of the still part in the same harmonics: the floor of the denominator.
    """
    # energy: (N, T, m); ring_energy: (N, T, R); still: (N, m)
    frames, orders = energy.shape[1], harmonic_orders(config)
    gain, floor = None, energy.new_zeros(energy.shape[0])
    if config.polar == "magnitude":
        gain = roll_off(orders, energy.device, energy.dtype)
        floor = (still @ gain) * (config.energy_floor * window_power(frames, energy.device, energy.dtype))
    missed, slope = band_capture(energy, orders, floor, config, gain)
    concentration = floor.new_zeros(len(floor)) if ring_energy is None else ring_concentration(ring_energy)
    loss = (1 - config.ring_weight) * missed + config.ring_weight * (1 - concentration)
    return RotationResult(loss, slope * 2 * math.pi / frames, concentration)


def ring_concentration(ring_energy: Tensor) -> Tensor:
    """C_ring = 1 - mean_t H(ring shares) / log N_r, (N,) in [0, 1] (paper, "Rotational Motion Loss")."""
    # ring_energy: (N, T, R)
    total = ring_energy.sum(dim=2, keepdim=True)
    share = ring_energy / torch.where(total > 0, total, torch.ones_like(total))
    entropy = -(share * torch.log(share + 1e-8)).sum(dim=2)
    return 1 - entropy.mean(dim=1) / math.log(ring_energy.shape[2])
