"""`anchored`: the error spectrum of x0-hat, weighted by the distance to the clean clip's own motion (ours; docs/method.md).

A positive definite form of the error: its only minimum is x0-hat = x0.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from phys_pipeline.spectral import AnchoredMotionLoss
from phys_pipeline.spectral.anchored import Anchor


class Clean(NamedTuple):
    """Clean clips (K, C, T, H, W) and their fitted motion."""

    video: Tensor
    anchor: Anchor


class Anchored:
    """Relative squared error of x0-hat, less on the motion of x0 than off it."""

    needs_reference, one_number = True, False

    def __init__(self, loss: AnchoredMotionLoss) -> None:
        self.loss = loss

    def of_clean(self, reference: Tensor, sigma: Tensor) -> Clean:  # (K, C, T, H, W)
        return Clean(reference, self.loss.anchor(reference))

    def __call__(self, video: Tensor, clean: Clean) -> Tensor:  # (K, C, T, H, W) -> (K,)
        return self.loss.measure(video - clean.video, clean.anchor)
