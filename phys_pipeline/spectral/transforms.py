"""From a clip to the spectra of its blocks: pruned DFTs of all patches at once, then one real matrix per window over time.

Real pictures have point-symmetric spectra, so only ``kx >= 0`` is computed; sums over the full lattice count each bin with
``kx > 0`` twice (:func:`multiplicity`). Each frame and patch is transformed once, however many windows share it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from .lattice import complex_dtype, constant, hann, patch_starts

_TOGETHER = 2**16  # pixels (256 kB) whose energies are summed at once: small clips share the calls, large ones stay in the cache


@constant
def patch_dft(
    samples: int, patches: int, limit: int, signed: bool, fade: bool, device: torch.device, dtype: torch.dtype
) -> Tensor:
    """Rows exp(-i 2 pi k n / N) of each patch along one axis, zero outside it: complex (patches, K, samples).

    N is the side of the patch, n counts from its centre; bins ``-limit .. limit`` if ``signed``, else ``0 .. limit``. ``fade``
    multiplies by the raised cosine.
    """
    side, starts = patch_starts(samples, patches)
    position = torch.arange(side, dtype=torch.float64) - (side - 1) / 2
    bins = torch.arange(-limit if signed else 0, limit + 1, dtype=torch.float64)
    angle = -2 * math.pi / side * bins[:, None] * position
    wave = torch.polar(torch.ones_like(angle), angle)
    if fade:
        wave = wave * hann(side, torch.device("cpu"), torch.float64)
    rows = torch.zeros(patches, len(bins), samples, dtype=torch.complex128)
    for patch, start in enumerate(starts):
        rows[patch, :, start : start + side] = wave
    return rows.to(complex_dtype(dtype)).to(device)  # not every device has float64


@constant
def _interleaved(samples: int, patches: int, limit: int, fade: bool, device: torch.device, dtype: torch.dtype) -> Tensor:
    """The horizontal transform as a real matrix (samples, patches * K * 2): real and imaginary parts side by side."""
    rows = patch_dft(samples, patches, limit, False, fade, device, dtype)  # (P, K, W)
    return torch.view_as_real(rows).permute(2, 0, 1, 3).reshape(samples, -1).contiguous()


def patch_spectra(video: Tensor, patches: int, limits: tuple[int, int], fade: bool) -> Tensor:
    """Spectra of all patches of all frames, phase origin at each patch's centre.

    Args:
        video: (B, C, T, H, W), real.
        limits: largest kept bins (Ly, Lx).
        fade: raised-cosine apodisation.

    Returns:
        (B, P, C, T, 2 Ly + 1, Lx + 1), complex, ``P = patches^2`` row by row.
    """
    # video: (B, C, T, H, W)
    batch, channels, frames, height, width = video.shape
    limit_y, limit_x = limits
    across = video.reshape(-1, width) @ _interleaved(width, patches, limit_x, fade, video.device, video.dtype)
    across = torch.view_as_complex(across.view(batch * channels * frames, height, -1, 2))  # (BCT, H, P Kx)
    rows = patch_dft(height, patches, limit_y, True, fade, video.device, video.dtype).flatten(0, 1)  # (P Ky, H)
    spectra = (rows @ across).view(batch, channels, frames, patches, 2 * limit_y + 1, patches, limit_x + 1)
    return spectra.permute(0, 3, 5, 1, 2, 4, 6).reshape(batch, patches**2, channels, frames, 2 * limit_y + 1, limit_x + 1)


@constant
def fade_spectrum(
    height: int, width: int, limit_y: int, limit_x: int, fade: bool, device: torch.device, dtype: torch.dtype
) -> Tensor:
    """Spectrum of the apodisation itself, (2 Ly + 1, Lx + 1), complex: that of a patch of ones."""
    down = patch_dft(height, 1, limit_y, True, fade, device, dtype).sum(dim=2)[0]
    across = patch_dft(width, 1, limit_x, False, fade, device, dtype).sum(dim=2)[0]
    return down[:, None] * across


@constant
def multiplicity(limit_y: int, limit_x: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """How often a bin of the half lattice stands for one of the full lattice: 1 for kx = 0, else 2; (2 Ly + 1, Lx + 1)."""
    counts = torch.full((2 * limit_y + 1, limit_x + 1), 2.0, dtype=dtype, device=device)
    counts[:, 0] = 1
    return counts


@constant
def window_matrix(starts: tuple[int, ...], length: int, remove_mean: bool, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Cuts frames into windows and removes each window's Hann-weighted mean: (windows * length, frames), real."""
    weights = hann(length, torch.device("cpu"), torch.float64)
    projection = torch.eye(length, dtype=torch.float64)
    if remove_mean:
        projection = projection - weights / weights.sum()
    return _placed(projection, starts).to(dtype).to(device)


@constant
def mean_matrix(starts: tuple[int, ...], length: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Hann-weighted means of windows: (windows, frames), real."""
    weights = hann(length, torch.device("cpu"), torch.float64)
    return _placed((weights / weights.sum())[None], starts).to(dtype).to(device)


def _placed(rows: Tensor, starts: tuple[int, ...]) -> Tensor:
    """Copies of ``rows`` (R, length) at each start: (len(starts) * R, last start + length)."""
    placed = rows.new_zeros(len(starts), rows.shape[0], starts[-1] + rows.shape[1])
    for index, start in enumerate(starts):
        placed[index, :, start : start + rows.shape[1]] = rows
    return placed.flatten(0, 1)


def over_time(matrix: Tensor, spectra: Tensor) -> Tensor:
    """Apply a real matrix (R, T) to the frames of complex spectra (..., T, Ky, Kx): (..., R, Ky, Kx)."""
    # spectra: (..., T, Ky, Kx)
    shape = spectra.shape
    values = torch.view_as_real(spectra).flatten(-3)  # (..., T, 2 Ky Kx)
    return torch.view_as_complex((matrix @ values).view(*shape[:-3], matrix.shape[0], *shape[-2:], 2))


@torch.no_grad()
def pixel_energies(
    video: Tensor, starts: tuple[int, ...], length: int, patches: int, fade: bool, scale: Tensor
) -> tuple[Tensor, Tensor]:
    """Energy of the moving part and of moving and still part together, per window and patch, in pixels.

    ``sum_t h ||(x_t - xbar) a||^2`` and the same plus ``||(xbar - mean) a||^2``, where h sums to one. Computed frame by frame
    relative to the first frame; differences below 1e-3 of what has changed since then count as rounding.

    Args:
        video: (B, C, T, H, W); scale: (B,) powers of two that multiply it.

    Returns:
        moving and total energy, each (B, P, windows).
    """
    # video: (B, C, T, H, W)
    batch, channels, frames, height, width = video.shape
    sums = _patch_sums(height, width, patches, fade, video.device, video.dtype)
    means = mean_matrix(starts, length, video.device, video.dtype)  # (windows, T)
    scale = scale.view(-1, 1, 1, 1)
    reference = video[:, :, 0]
    energy = video.new_zeros(batch, frames, patches**2)
    window_mean = video.new_zeros(batch, len(starts), channels, height, width)
    together = max(1, min(frames - 1, _TOGETHER // reference.numel()))
    buffers = video.new_empty(2, *reference.shape[:2], together, height, width)  # reused: fresh memory costs more than the sums
    for first in range(1, frames, together):
        part = video[:, :, first : first + together]
        change, square = buffers[:, :, :, : part.shape[2]]
        torch.sub(part, reference[:, :, None], out=change).mul_(scale[..., None])
        energy[:, first : first + together] = sums.squared(torch.mul(change, change, out=square).sum(dim=1))
        for window, start in enumerate(starts):
            begin, end = max(first, start), min(first + part.shape[2], start + length)
            if end - begin == 1:
                window_mean[:, window].addcmul_(change[:, :, begin - first], means[window, begin])
            elif end > begin:
                weighted = means[window, begin:end] @ change[:, :, begin - first : end - first].flatten(3)
                window_mean[:, window] += weighted.view_as(window_mean[:, window])
    second_moment = means @ energy  # (B, windows, P)
    moving = second_moment - sums.squared(window_mean.square().sum(dim=2))
    moving = moving.masked_fill(moving <= 1e-6 * second_moment, 0)
    mean = window_mean.add_(((reference - reference.mean(dim=(2, 3), keepdim=True)) * scale)[:, None])
    # ||(xbar - level) a||^2, where the mean brightness, which is level, is weighted by a alone
    level = sums.plain(mean) / sums.plain_area  # (B, windows, C, P)
    still = sums.squared(mean.square()) - 2 * level * sums.squared(mean) + level.square() * sums.area
    total = moving + still.clamp_min(0).sum(dim=2)
    return moving.transpose(1, 2), total.transpose(1, 2)


class _PatchSums(NamedTuple):
    """Sums over each patch, weighted by the apodisation a or its square: factors (P, H) and (W, P), and the sums of ones (P,)."""

    rows: Tensor
    columns: Tensor
    root_rows: Tensor
    root_columns: Tensor
    area: Tensor
    plain_area: Tensor

    def squared(self, picture: Tensor) -> Tensor:
        """Sums weighted by a^2: (..., H, W) -> (..., P)."""
        return (self.rows @ (picture @ self.columns)).flatten(-2)

    def plain(self, picture: Tensor) -> Tensor:
        """Sums weighted by a: (..., H, W) -> (..., P)."""
        return (self.root_rows @ (picture @ self.root_columns)).flatten(-2)


@constant
def _patch_sums(height: int, width: int, patches: int, fade: bool, device: torch.device, dtype: torch.dtype) -> _PatchSums:
    rows, columns = (patch_weights(side, patches, fade, device, dtype) for side in (height, width))
    areas = [
        (down.sum(dim=1)[:, None] * across.sum(dim=1)).flatten()
        for down, across in ((rows, columns), (rows.sqrt(), columns.sqrt()))
    ]
    return _PatchSums(rows, columns.T.contiguous(), rows.sqrt(), columns.sqrt().T.contiguous(), *areas)


@constant
def patch_weights(samples: int, patches: int, fade: bool, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Squared apodisation of each patch along one axis, zero outside: (patches, samples)."""
    side, starts = patch_starts(samples, patches)
    weights = hann(side, torch.device("cpu"), torch.float64) ** 2 if fade else torch.ones(side, dtype=torch.float64)
    placed = torch.zeros(patches, samples, dtype=torch.float64)
    for patch, start in enumerate(starts):
        placed[patch, start : start + side] = weights
    return placed.to(dtype).to(device)
