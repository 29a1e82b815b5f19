"""Anchored motion loss: the error against a clean clip, weighted by how far from that clip's own motion it lies. For training.

A loss of the clip alone can be lowered by fading, blurring or painting. Here the clean clip is known, and the loss is a positive
definite quadratic form of the error, so its only minimum is the clean clip. Evidence: ``docs/results/gradient_test.md``.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from .blocks import block_power, faded_blocks, half_plane, sum_over_blocks
from .config import SpectralConfig
from .translation import correlation_velocity

_PRIOR = 0.1  # say of the block's displacement in the phase rate of a frequency, as a share of the mean cross-spectrum
_STILL = 0.1  # share of the still part's energy in the denominator: a nearly still clip has a bounded loss


class Anchor(NamedTuple):
    """What the reference decides: weights (B, P, t, h, w // 2 + 1) of P blocks' errors, and the energy (B,) of the reference."""

    weight: Tensor
    energy: Tensor


class AnchoredMotionLoss(nn.Module):
    """Relative squared error of a clip, errors on the reference's motion counted by ``manifold_weight``, all others in full.

    Blocks are the windows and half-overlapping patches of ``config``, each faded so that the squares of their weights sum to one
    at every sample, borders and ends too. In a block, frequency k of the reference turns by ``phi_k`` per frame: the phase of its
    cross-spectrum between neighbouring frames (weak frequencies follow the block's displacement d: ``phi_k = -k . d``). The
    manifold is ``omega_t = phi_k``: a plane where the block translates, bent where it turns, zooms or deforms. With
    ``b = exp(-(omega_t - phi_k)^2 / 2 sigma^2)``, modulo one temporal period, sigma = ``config.band_sigma`` temporal bins, and
    ``w = 1 - (1 - manifold_weight) b``::

        L = sum w |V(video) - V(reference)|^2 / (energy of the reference's moving part + a tenth of its still part's)

    so ``manifold_weight * e <= L <= e`` for the relative squared error e; with ``manifold_weight=1`` it is e. Every frequency
    counts.

    Args:
        config: ``window``, ``stride``, ``patches``, ``minimum_patch_side`` and ``band_sigma`` are used.
        manifold_weight: in (0, 1]; ValueError otherwise.
    """

    def __init__(self, config: SpectralConfig | None = None, manifold_weight: float = 0.3) -> None:
        super().__init__()
        if not 0 < manifold_weight <= 1:
            raise ValueError(f"manifold_weight must lie in (0, 1], not {manifold_weight}")
        self.config = config if config is not None else SpectralConfig.calibrated()
        self.manifold_weight = manifold_weight

    def forward(self, video: Tensor, reference: Tensor, reduction: Literal["mean", "none"] = "mean") -> Tensor:
        """Loss of ``video`` against ``reference``, both (B, C, T, H, W); a scalar, or (B,) with reduction "none".

        Half precision is computed in float32 with autocast off. No gradient reaches the reference. ValueError for shapes that
        differ, and for NaN or infinite values.
        """
        # video, reference: (B, C, T, H, W)
        if reduction not in ("mean", "none"):
            raise ValueError(f"reduction must be 'mean' or 'none', not {reduction!r}")
        if video.dim() != 5 or 0 in video.shape or reference.shape != video.shape:
            raise ValueError(f"expected two videos (B, C, T, H, W), got {tuple(video.shape)} and {tuple(reference.shape)}")
        with torch.autocast(device_type=video.device.type, enabled=False):
            dtype = torch.float64 if video.dtype == torch.float64 else torch.float32
            video, reference = video.to(dtype), reference.detach().to(dtype)
            if not bool(torch.isfinite(video).all() & torch.isfinite(reference).all()):
                raise ValueError("the videos have NaN or infinite values: compare only finite pixels or latents")
            loss = self.measure(video - reference, self.anchor(reference))
        return loss.mean() if reduction == "mean" else loss

    @torch.no_grad()
    def anchor(self, reference: Tensor) -> Anchor:
        """Fit the motion of every block of a float32 or float64 reference; for many errors against one reference."""
        # reference: (B, C, T, H, W)
        mean = reference.mean(dim=2, keepdim=True)
        weights = []
        for place, fade in faded_blocks(reference.shape, self.config, reference.device, reference.dtype):
            block = (reference[place] - mean[:, :, :, place[3], place[4]]) * fade
            weights.append(1 - (1 - self.manifold_weight) * motion_band(block, self.config.band_sigma))
        twice = half_plane(*block.shape[3:], reference.device, reference.dtype)[2]
        return Anchor(torch.stack(weights, dim=1) * twice, clip_energy(reference))

    def measure(self, error: Tensor, anchor: Anchor) -> Tensor:
        """Loss (B,) of an error (B, C, T, H, W) against the reference of ``anchor``."""
        # error: (B, C, T, H, W)
        blocks = list(faded_blocks(error.shape, self.config, error.device, error.dtype))

        def of_block(index: int, part: Tensor) -> Tensor:  # (B, C, t, h, w)
            return (block_power(part * blocks[index][1]) * anchor.weight[:, index]).sum(dim=(1, 2, 3))

        places = [place for place, _ in blocks]
        return sum_over_blocks(error, places, of_block) / anchor.energy


@torch.no_grad()
def clip_energy(reference: Tensor) -> Tensor:
    """Energy (B,) of a clip's moving part and a tenth of its still part's; 1 for a clip without either."""
    # reference: (B, C, T, H, W)
    mean = reference.mean(dim=2)
    contrast = (mean - mean.mean(dim=(2, 3), keepdim=True)).square()
    energy = reference.shape[2] * (reference.var(dim=2, correction=0) + _STILL * contrast).sum(dim=(1, 2, 3))
    return torch.where(energy > 0, energy, torch.ones_like(energy))


@torch.no_grad()
def motion_band(block: Tensor, sigma: float) -> Tensor:
    """b (B, t, h, w // 2 + 1): 1 on the manifold of a block's own motion, falling off over ``sigma`` temporal bins."""
    # block: (B, C, t, h, w)
    frames, height, width = block.shape[2:]
    omega_y, omega_x, twice = half_plane(height, width, block.device, block.dtype)
    spectrum = torch.fft.rfft2(block)  # (B, C, t, Ky, Kx)
    cross = (spectrum[:, :, 1:] * spectrum[:, :, :-1].conj()).sum(dim=(1, 2))  # (B, Ky, Kx)
    whitening = (omega_y[:, None] ** 2 + omega_x**2) * twice
    shift = correlation_velocity(cross * whitening, (height, width), (omega_y, omega_x))  # (B, 2)
    plane = -(shift[:, 0, None, None] * omega_x + shift[:, 1, None, None] * omega_y[:, None])
    prior = _PRIOR * cross.abs().mean(dim=(1, 2), keepdim=True)
    turn = torch.angle(cross + prior * torch.exp(1j * plane)) * frames / (2 * math.pi)  # temporal bins per frame
    bins = torch.fft.fftfreq(frames, 1 / frames, device=turn.device, dtype=turn.dtype)
    distance = torch.remainder(bins[:, None, None] - turn[:, None] + frames / 2, frames) - frames / 2
    return torch.exp(-0.5 * (distance / sigma) ** 2)
