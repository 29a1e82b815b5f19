"""Phase coherence: whether each frequency of a patch turns by the same phase from every frame to the next.

Not in the paper, whose losses see energies only. A patch in even motion turns the phase of each spatial frequency at a constant
rate, however fast, aliased or not; jitter, reversal, a walk or flicker don't. Evidence: ``docs/results/ablation.md``.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .config import SpectralConfig
from .products import magnitude


def coherence_loss(cross: Tensor, measure: Tensor, floor: Tensor, config: SpectralConfig) -> Tensor:
    """``1 - sum_k |sum_t R_t(k)| / sum_k sum_t |R_t(k)|`` with the cross-spectra R_t of neighbouring frames; (N,) in [0, 1].

    ``R_t = sum_c S_c(t + 1) conj S_c(t)``. Fewer than three frames have one step and give 0.

    Args:
        cross: (N, T - 1, Ky, Kx), complex; measure: (Ky, Kx), whitening times how often a bin counts.
        floor: (N,) energy of a frame added to each step in the denominator.
    """
    # cross: (N, T - 1, Ky, Kx)
    if cross.shape[1] < 2:
        return floor.new_zeros(cross.shape[0])
    size = magnitude(cross).sum(dim=1).flatten(1) @ measure.flatten()
    total = size + floor * cross.shape[1]
    if config.gradient == "numerator":
        total = total.detach()
    scattered = size - magnitude(cross.sum(dim=1)).flatten(1) @ measure.flatten()
    return scattered / torch.where(total > 0, total, 1.0)
