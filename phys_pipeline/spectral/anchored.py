"""Anchored motion loss: the error against a clean clip, weighted by how far from that clip's own motion it lies. For training.

A loss of the clip alone can be lowered by fading, blurring or painting. Here the clean clip is known, and the loss is a positive
definite quadratic form of the error, so its only minimum is the clean clip. Evidence: ``docs/results/gradient_test.md``.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from .config import SpectralConfig
from .lattice import constant, cut, hann, patch_starts
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
        moving, contrast = reference - mean, mean - mean.mean(dim=(3, 4), keepdim=True)
        energy = moving.square().sum(dim=(1, 2, 3, 4)) + _STILL * reference.shape[2] * contrast.square().sum(dim=(1, 2, 3, 4))
        blocks = self._blocks(moving)
        batch, count, _, frames, height, width = blocks.shape
        omega_y, omega_x, twice = half_plane(height, width, reference.device, reference.dtype)
        spectrum = torch.fft.rfft2(blocks.flatten(0, 1))  # (N, C, t, Ky, Kx)
        cross = (spectrum[:, :, 1:] * spectrum[:, :, :-1].conj()).sum(dim=(1, 2))  # (N, Ky, Kx)
        whitening = (omega_y[:, None] ** 2 + omega_x**2) * twice
        shift = correlation_velocity(cross * whitening, (height, width), (omega_y, omega_x))  # (N, 2)
        plane = -(shift[:, 0, None, None] * omega_x + shift[:, 1, None, None] * omega_y[:, None])
        prior = _PRIOR * cross.abs().mean(dim=(1, 2), keepdim=True)
        turn = torch.angle(cross + prior * torch.exp(1j * plane)) * frames / (2 * math.pi)  # temporal bins per frame
        bins = torch.fft.fftfreq(frames, 1 / frames, device=turn.device, dtype=turn.dtype)
        distance = torch.remainder(bins[:, None, None] - turn[:, None] + frames / 2, frames) - frames / 2
        band = torch.exp(-0.5 * (distance / self.config.band_sigma) ** 2)  # (N, t, Ky, Kx)
        weight = (1 - (1 - self.manifold_weight) * band) * twice
        return Anchor(weight.unflatten(0, (batch, count)), torch.where(energy > 0, energy, torch.ones_like(energy)))

    def measure(self, error: Tensor, anchor: Anchor) -> Tensor:
        """Loss (B,) of an error (B, C, T, H, W) against the reference of ``anchor``."""
        # error: (B, C, T, H, W)
        spectrum = torch.fft.rfftn(self._blocks(error), dim=(-3, -2, -1), norm="ortho")
        energy = torch.view_as_real(spectrum).square().sum(dim=(2, -1))  # (B, P, t, Ky, Kx)
        return (energy * anchor.weight).sum(dim=(1, 2, 3, 4)) / anchor.energy

    def _blocks(self, video: Tensor) -> Tensor:
        """Faded blocks (B, P, C, t, h, w) of a video (B, C, T, H, W)."""
        # video: (B, C, T, H, W)
        config = self.config
        patches = config.patches if min(video.shape[3:]) >= config.minimum_patch_side else 1
        blocks, starts = cut(video, config.window, config.stride, patches)  # (B, windows, patches^2, C, t, h, w)
        begins = (starts, patch_starts(video.shape[3], patches)[1], patch_starts(video.shape[4], patches)[1])
        time, rows, columns = (
            fades(length, size, tuple(begin), video.device, video.dtype)
            for length, size, begin in zip(video.shape[2:], blocks.shape[-3:], begins, strict=True)
        )
        space = (rows[:, None, :, None] * columns[None, :, None, :]).flatten(0, 1)  # (patches^2, h, w)
        return (blocks * time[:, None, None, :, None, None] * space[:, None, None]).flatten(1, 2)


@constant
def fades(length: int, size: int, starts: tuple[int, ...], device: torch.device, dtype: torch.dtype) -> Tensor:
    """Weights (blocks, size) of blocks that cover ``length`` samples; their squares sum to one at every sample, ends too."""
    profiles = hann(size, torch.device("cpu"), torch.float64).repeat(len(starts), 1)
    profiles[0, : size // 2] = 1.0
    profiles[-1, size // 2 :] = 1.0
    total = torch.zeros(length, dtype=torch.float64)
    for start, profile in zip(starts, profiles, strict=True):
        total[start : start + size] += profile
    rows = [(profile / total[start : start + size]).sqrt() for start, profile in zip(starts, profiles, strict=True)]
    return torch.stack(rows).to(dtype).to(device)


@constant
def half_plane(height: int, width: int, device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """omega_y (h,), omega_x (w // 2 + 1,) of a real picture's half spectrum, and the bins that a column stands for (1 or 2)."""
    omega_y = 2 * math.pi * torch.fft.fftfreq(height, dtype=torch.float64)
    omega_x = 2 * math.pi * torch.fft.rfftfreq(width, dtype=torch.float64)
    twice = torch.full_like(omega_x, 2.0)
    twice[0] = 1.0
    if width % 2 == 0:
        twice[-1] = 1.0
    return omega_y.to(dtype).to(device), omega_x.to(dtype).to(device), twice.to(dtype).to(device)
