"""A random piece of a clip's latents, so that a large clip's motion loss need not decode all of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Crop:
    """`frames` latent frames of `size` x `size` latent cells; None keeps the whole axis, and so does a shorter axis.

    Decoded by a causal autoencoder, the piece's first latent frame gives one picture, as a clip's does: frames 1 + s (n - 1) at
    time stride s. The clean clip is cut at the same place, so both are decoded alike.
    """

    frames: int | None = None
    size: int | None = None

    def __call__(self, latents: Tensor, seeds: Sequence[int]) -> Tensor:
        """Cut each sample of (B, C, T, H, W) at the place that its seed draws, every place equally likely."""
        # latents: (B, C, T, H, W)
        wanted = (self.frames, self.size, self.size)
        lengths = [length if want is None else min(want, length) for want, length in zip(wanted, latents.shape[2:], strict=True)]
        pieces = []
        for sample, seed in zip(latents, seeds, strict=True):
            draws = torch.rand(3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).tolist()
            piece = sample
            for axis, (draw, length) in enumerate(zip(draws, lengths, strict=True), start=1):
                piece = piece.narrow(axis, int(draw * (piece.shape[axis] - length + 1)), length)
            pieces.append(piece)
        return torch.stack(pieces)
