"""`anchored`: the error spectrum of x0-hat, weighted by the distance to the clean clip's own motion (ours; docs/method.md).

A positive definite form of the error: its only minimum is x0-hat = x0.
"""

from __future__ import annotations

from torch import Tensor

from phys_pipeline.spectral import AnchoredMotionLoss


class Anchored:
    """Relative squared error of x0-hat, less on the motion of x0 than off it."""

    needs_reference = True

    def __init__(self, loss: AnchoredMotionLoss) -> None:
        self.loss = loss

    def __call__(self, video: Tensor, reference: Tensor | None) -> Tensor:  # (K, C, T, H, W) twice -> (K,)
        assert reference is not None
        return self.loss(video, reference, "none")
