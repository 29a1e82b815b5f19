"""Windows, patches, kept frequencies, the pruned DFT and polar look-up tables.

Constant tensors are cached per shape, device and dtype, so a training step builds none of them. The DFT's phase origin is the
centre of the patch: coordinates run from ``-(N-1)/2`` to ``(N-1)/2``, so that mirrored clips have mirrored spectra exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any

import torch
from torch import Tensor


def complex_dtype(dtype: torch.dtype) -> torch.dtype:
    """complex64 for float32, complex128 for float64; complex half precision never occurs."""
    return torch.complex128 if dtype == torch.float64 else torch.complex64


def window_starts(frames: int, window: int, stride: int) -> list[int]:
    """First frames of the windows; the last window ends at the last frame, a shorter clip is one window."""
    if frames <= window:
        return [0]
    starts = list(range(0, frames - window + 1, stride))
    if starts[-1] != frames - window:
        starts.append(frames - window)
    return starts


def patch_starts(length: int, patches: int) -> tuple[int, list[int]]:
    """Side and first samples of ``patches`` half-overlapping patches that cover ``length`` samples, laid out symmetrically."""
    side = math.ceil(2 * length / (patches + 1))
    if patches % 2 == 1 and (length - side) % 2 == 1:
        side += 1  # so that the middle patch sits in the middle and a flipped frame has the flipped patches
    gap = length - side
    first_half = [(index * gap) // max(1, patches - 1) for index in range((patches + 1) // 2)]
    starts = first_half + [gap - start for start in reversed(first_half[: patches // 2])]
    return side, starts


def cut(video: Tensor, window: int, stride: int, patches: int) -> tuple[Tensor, list[int]]:
    """Cut into space-time blocks.

    Args:
        video: (B, C, T, H, W).

    Returns:
        blocks (B, windows, patches^2, C, t, h, w) and the first frame of each window.
    """
    # video: (B, C, T, H, W)
    starts = window_starts(video.shape[2], window, stride)
    length = min(window, video.shape[2])
    height, tops = patch_starts(video.shape[3], patches)
    width, lefts = patch_starts(video.shape[4], patches)
    rows = []
    for start in starts:
        frames = video[:, :, start : start + length]
        rows.append(torch.stack([frames[..., y : y + height, x : x + width] for y in tops for x in lefts], dim=1))
    return torch.stack(rows, dim=1), starts


def constant(build: Callable[..., Any]) -> Callable[..., Any]:
    """Cache a function that makes constant tensors.

    They are made outside inference mode, or a loss scored under it would leave constants that no backward pass may save.
    """

    @lru_cache(maxsize=64)
    @wraps(build)
    def cached(*arguments: Any) -> Any:
        with torch.inference_mode(False), torch.no_grad():
            return build(*arguments)

    return cached


@constant
def hann(length: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Half-sample Hann window sin^2(pi (n + 1/2) / N), (N,). Positive everywhere, symmetric."""
    return torch.sin(math.pi * (torch.arange(length, device=device, dtype=dtype) + 0.5) / length) ** 2


@constant
def window_power(length: int, device: torch.device, dtype: torch.dtype) -> float:
    """Energy over all temporal bins of a unit constant under the Hann window: T sum h^2 (Parseval)."""
    return float(length * hann(length, device, dtype).square().sum())


@constant
def apodisation(height: int, width: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Separable raised cosine (H, W) that fades a patch out at its borders."""
    return hann(height, device, dtype)[:, None] * hann(width, device, dtype)[None, :]


def kept_bins(samples: int, keep: float, *, one_sided: bool = False, exclude_nyquist: bool = False) -> list[int]:
    """Kept DFT bins of one axis: ``|k| <= max(1, floor(keep N / 2))``, or the paper's ``0 .. max(1, floor(keep (N - 1)))``.

    ``exclude_nyquist`` drops the bin whose sign is undefined; an axis of one sample keeps bin 0 only.
    """
    if samples == 1:
        return [0]
    if one_sided:
        return list(range(0, max(1, math.floor(keep * (samples - 1))) + 1))
    limit = min(max(1, math.floor(keep * samples / 2)), samples // 2)
    if exclude_nyquist:
        limit = min(limit, (samples - 1) // 2)
    return list(range(-limit, limit + 1))


@constant
def dft_matrix(samples: int, bins: tuple[int, ...], centred: bool, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Pruned DFT as a matrix (K, N), complex: row k is exp(-i 2 pi k n / N). ``centred`` puts the phase origin in the middle."""
    position = torch.arange(samples, dtype=torch.float64) - ((samples - 1) / 2 if centred else 0.0)
    angle = -2 * math.pi / samples * torch.tensor(bins, dtype=torch.float64)[:, None] * position
    return torch.polar(torch.ones_like(angle), angle).to(complex_dtype(dtype)).to(device)  # not every device has float64


def spatial_spectrum(blocks: Tensor, rows: tuple[int, ...], columns: tuple[int, ...]) -> Tensor:
    """Kept spatial frequencies of real blocks.

    Args:
        blocks: (N, C, T, H, W), real.

    Returns:
        (N, C, T, Ky, Kx), complex.
    """
    # blocks: (N, C, T, H, W)
    left = dft_matrix(blocks.shape[-2], rows, True, blocks.device, blocks.dtype)  # (Ky, H)
    right = dft_matrix(blocks.shape[-1], columns, True, blocks.device, blocks.dtype)  # (Kx, W)
    return left @ (blocks.to(left.dtype) @ right.T)


def time_spectrum(signal: Tensor, bins: tuple[int, ...], dim: int) -> Tensor:
    """Hann-windowed temporal DFT of the kept bins along ``dim``; the result has the bins in that place."""
    samples = signal.shape[dim]
    real = torch.float64 if signal.dtype in (torch.float64, torch.complex128) else torch.float32
    matrix = dft_matrix(samples, bins, False, signal.device, real) * hann(samples, signal.device, real)  # (K, T)
    return torch.movedim(torch.movedim(signal, dim, -1).to(matrix.dtype) @ matrix.T, -1, dim)


def remove_time_mean(signal: Tensor, dim: int) -> Tensor:
    """Subtract the Hann-weighted temporal mean along ``dim``."""
    real = torch.float64 if signal.dtype in (torch.float64, torch.complex128) else torch.float32
    window = hann(signal.shape[dim], signal.device, real)
    shape = [1] * signal.dim()
    shape[dim] = -1
    weights = (window / window.sum()).view(shape)
    return signal - (signal * weights).sum(dim=dim, keepdim=True)


@constant
def polar_table(
    height: int,
    width: int,
    limit_y: int,
    limit_x: int,
    radii: tuple[float, ...],
    angles: tuple[float, ...],
    device: torch.device,
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor]:
    """Bilinear look-up from the signed lattice ``|ky| <= limit_y, |kx| <= limit_x`` to rings x angles.

    Radii are in bins of the shorter side, so that rings are circles in frequency even when the patch is not square.

    Returns:
        indices (4, R, A) into the flattened lattice and weights (4, R, A).
    """
    radius = torch.tensor(radii, dtype=torch.float64)[:, None]
    angle = torch.tensor(angles, dtype=torch.float64)[None, :]
    shorter = min(height, width)
    x = (radius * torch.cos(angle) * width / shorter + limit_x).clamp(0, 2 * limit_x)
    y = (radius * torch.sin(angle) * height / shorter + limit_y).clamp(0, 2 * limit_y)
    x0 = x.floor().clamp(max=max(0, 2 * limit_x - 1))
    y0 = y.floor().clamp(max=max(0, 2 * limit_y - 1))
    fraction_x, fraction_y = x - x0, y - y0
    row = 2 * limit_x + 1
    corner = (y0 * row + x0).long()
    indices = torch.stack([corner, corner + 1, corner + row, corner + row + 1])
    indices = indices.clamp(max=row * (2 * limit_y + 1) - 1)  # an axis of one bin has no neighbour; its weight is zero
    weights = torch.stack(
        [
            (1 - fraction_x) * (1 - fraction_y),
            fraction_x * (1 - fraction_y),
            (1 - fraction_x) * fraction_y,
            fraction_x * fraction_y,
        ]
    )
    return indices.to(device), weights.to(dtype).to(device)


def resample_polar(lattice: Tensor, table: tuple[Tensor, Tensor]) -> Tensor:
    """Bilinear resampling of (..., Ky, Kx) to (..., R, A)."""
    indices, weights = table
    flat = lattice.flatten(-2)
    return sum(flat[..., indices[corner]] * weights[corner] for corner in range(4))  # type: ignore[return-value]


def largest_radius(height: int, width: int, limit_y: int, limit_x: int) -> float:
    """Largest ring, in bins of the shorter side, that lies inside the kept lattice; at least 1 for very narrow patches."""
    shorter = min(height, width)
    return max(1.0, min(limit_y * shorter / height, limit_x * shorter / width))
