"""`ltd`: the denoising loss counts more where the latents change from frame to frame.

After "Latent Temporal Discrepancy as Motion Prior" (arXiv:2601.20504): weights grow with the logarithm of the change. The paper
fits constants; here the change is divided by its mean over the clip, and the weights have mean 1 in every clip.
"""

from __future__ import annotations

import torch
from torch import Tensor


class DifferenceWeights:
    """1 + strength * (w - 1), w = log(1 + d / mean d) scaled to mean 1, d = mean over channels of |x0_t - x0_(t-1)|.

    Args:
        strength: 0 leaves the denoising loss as it is, 1 gives static places weight 0.
        drop_first: the first latent frame covers one picture where the others cover several; its change is not counted.
    """

    def __init__(self, strength: float = 1.0, *, drop_first: bool = False) -> None:
        self.strength, self.drop_first = strength, drop_first

    def __call__(self, x0: Tensor, samples: object = None) -> Tensor:
        """Weights (B, 1, T, H, W) with mean 1 in each clip; a still clip has ones."""
        # x0: (B, C, T, H, W)
        if x0.shape[2] < 2:
            return torch.ones_like(x0[:, :1])
        change = x0.float().diff(dim=2).abs().mean(dim=1, keepdim=True)  # (B, 1, T - 1, H, W)
        if self.drop_first and change.shape[2] > 1:
            change = torch.cat([change[:, :, 1:2], change[:, :, 1:]], dim=2)
        change = torch.cat([change[:, :, :1], change], dim=2)
        weight = torch.log1p(change / _mean(change).clamp_min(1e-12))
        weight = torch.where(_mean(change) > 0, weight / _mean(weight).clamp_min(1e-12), torch.ones_like(weight))
        return 1 + self.strength * (weight - 1)


def _mean(values: Tensor) -> Tensor:  # (B, 1, T, H, W) -> (B, 1, 1, 1, 1)
    return values.mean(dim=(1, 2, 3, 4), keepdim=True)
