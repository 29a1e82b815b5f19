"""Pace: how unevenly a patch changes from frame to frame. Not in the paper: energies over a window don't see *when* it moved.

A motion that goes on changes a patch by about as much as a moment before, however fast it is; stutter, teleports, cuts and
shuffled frames don't. Evidence: ``docs/results/ablation.md``.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .config import SpectralConfig

_SOFTENING = 1e-4  # share of the mean change added under the square root, whose slope at a repeated frame would be infinite


def pace_loss(spectrum: Tensor, whitening: Tensor, floor: Tensor, config: SpectralConfig) -> Tensor:
    """``sum_t (a_t - a_(t-1))^2 / sum_t a_t^2`` with a_t the whitened amplitude of the change from frame t to t + 1; (N,).

    0 for an even pace at any speed, 2 when every other frame is a repeat; fewer than three frames have no pace and give 0.

    Args:
        spectrum: (N, C, T, Ky, Kx) of the moving part; whitening: (Ky, Kx).
        floor: (N,) energy of a frame added to each change in the denominator.
    """
    # spectrum: (N, C, T, Ky, Kx)
    if spectrum.shape[2] < 3:
        return floor.new_zeros(spectrum.shape[0])
    change = spectrum[:, :, 1:] - spectrum[:, :, :-1]
    energy = (change.abs().square().sum(dim=1) * whitening).sum(dim=(2, 3))  # (N, T - 1)
    mean = energy.mean(dim=1, keepdim=True)
    total = energy.sum(dim=1) + floor * energy.shape[1]
    if config.gradient == "numerator":
        mean, total = mean.detach(), total.detach()
    soft = torch.where(mean > 0, _SOFTENING * mean, torch.ones_like(mean))
    amplitude = torch.sqrt(energy + soft)
    uneven = (amplitude[:, 1:] - amplitude[:, :-1]).square().sum(dim=1)
    return uneven / torch.where(total > 0, total, torch.ones_like(total))
