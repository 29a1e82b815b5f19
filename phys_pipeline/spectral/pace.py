"""Pace: how unevenly a patch changes from frame to frame. Not in the paper: energies over a window don't see *when* it moved.

A motion that goes on changes a patch by about as much as a moment before, however fast it is; stutter, teleports, cuts and
shuffled frames don't. Evidence: ``docs/results/ablation.md``.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .config import SpectralConfig

_SOFTENING = 1e-4  # share of the mean change added under the square root, whose slope at a repeated frame would be infinite


def pace_loss(frame: Tensor, cross: Tensor, floor: Tensor, config: SpectralConfig) -> Tensor:
    """``sum_t (a_t - a_(t-1))^2 / sum_t a_t^2`` with a_t the whitened amplitude of the change from frame t to t + 1; (N,).

    0 for an even pace at any speed, 2 when every other frame is a repeat; fewer than three frames have no pace and give 0.
    ``a_t^2 = |S_(t+1)|^2 + |S_t|^2 - 2 Re <S_(t+1), S_t>``.

    Args:
        frame: (N, T), whitened energy of the moving part; cross: (N, T - 1), real part of the inner product of neighbours.
        floor: (N,) energy of a frame added to each change in the denominator.
    """
    # frame: (N, T); cross: (N, T - 1)
    if frame.shape[1] < 3:
        return floor.new_zeros(frame.shape[0])
    energy = torch.relu(frame[:, 1:] + frame[:, :-1] - 2 * cross)  # (N, T - 1)
    mean = energy.mean(dim=1, keepdim=True)
    total = energy.sum(dim=1) + floor * energy.shape[1]
    if config.gradient == "numerator":
        mean, total = mean.detach(), total.detach()
    soft = torch.where(mean > 0, _SOFTENING * mean, torch.ones_like(mean))
    amplitude = torch.sqrt(energy + soft)
    uneven = (amplitude[:, 1:] - amplitude[:, :-1]).square().sum(dim=1)
    return uneven / torch.where(total > 0, total, torch.ones_like(total))
