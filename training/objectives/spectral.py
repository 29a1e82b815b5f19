"""`spectral`: the paper's spectral motion loss on x0-hat (arXiv:2506.02244v2), as it is or beyond the clean clip's own."""

from __future__ import annotations

from torch import Tensor

from phys_pipeline.spectral import SpectralMotionLoss


class Spectral:
    """L(x0-hat); with `excess` relu(L(x0-hat) - L(x0) - margin), which is 0 at the clean clip and never below."""

    def __init__(self, loss: SpectralMotionLoss, *, excess: bool = False) -> None:
        self.loss, self.needs_reference = loss, excess

    def __call__(self, video: Tensor, reference: Tensor | None) -> Tensor:  # (K, C, T, H, W) twice -> (K,)
        return self.loss(video, "none", reference if self.needs_reference else None).loss
