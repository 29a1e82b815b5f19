"""`spectral`: the paper's spectral motion loss on x0-hat (arXiv:2506.02244v2), as it is or beyond the clean clip's own."""

from __future__ import annotations

from torch import Tensor

from phys_pipeline.spectral import SpectralMotionLoss


class Spectral:
    """L(x0-hat); with `excess` relu(L(x0-hat) - L(x0) - margin), which is 0 at the clean clip and never below."""

    one_number = True

    def __init__(self, loss: SpectralMotionLoss, *, excess: bool = False) -> None:
        self.loss, self.needs_reference = loss, excess

    def of_clean(self, reference: Tensor, sigma: Tensor) -> Tensor:  # (K, C, T, H, W) -> (K,)
        return self.loss.losses(reference)

    def __call__(self, video: Tensor, clean: Tensor | None) -> Tensor:  # (K, C, T, H, W), (K,) -> (K,)
        return self.loss.losses(video, clean)
