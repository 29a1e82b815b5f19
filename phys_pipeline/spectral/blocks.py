"""Faded space-time blocks whose squared weights sum to one at every sample, and sums over them in little memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from .config import SpectralConfig
from .lattice import constant, hann, patch_starts, window_starts

Place = tuple[slice, slice, slice, slice, slice]  # of a block in a video (B, C, T, H, W)


def faded_blocks(
    shape: Sequence[int], config: SpectralConfig, device: torch.device, dtype: torch.dtype
) -> Iterator[tuple[Place, Tensor]]:
    """Where each block of a video of ``shape`` (B, C, T, H, W) lies, and its fade (t, h, w)."""
    frames, sides = shape[2], shape[3:]
    patches = config.patches if min(sides) >= config.minimum_patch_side else 1
    axes = [(frames, min(config.window, frames), window_starts(frames, config.window, config.stride))]
    axes += [(side, *patch_starts(side, patches)) for side in sides]
    parts = []
    for length, size, starts in axes:
        weights = fades(length, size, tuple(starts), device, dtype)
        parts.append([(slice(start, start + size), weight) for start, weight in zip(starts, weights, strict=True)])
    for (time, of_time), (rows, of_rows), (columns, of_columns) in product(*parts):
        yield (slice(None), slice(None), time, rows, columns), of_time[:, None, None] * of_rows[:, None] * of_columns


def block_power(block: Tensor) -> Tensor:
    """Energy (B, t, h, w // 2 + 1) of a block's half spectrum, summed over channels; a column stands for one or two bins."""
    # block: (B, C, t, h, w)
    spectrum = torch.fft.rfftn(block, dim=(-3, -2, -1), norm="ortho")
    return torch.view_as_real(spectrum).square().sum(dim=(1, -1))


def sum_over_blocks(video: Tensor, places: Sequence[Place], of_block: Callable[[int, Tensor], Tensor]) -> Tensor:
    """``sum_i of_block(i, video[places[i]])`` (B,), with one block in memory at a time and the gradient made on the way.

    ``of_block`` maps an index and a block (B, C, t, h, w) to (B,); gradients reach the video alone, once.
    """
    return _BlockSum.apply(video, places, of_block)  # type: ignore[no-untyped-call]


class _BlockSum(Function):
    @staticmethod
    def forward(context: Any, video: Tensor, places: Sequence[Place], of_block: Callable[[int, Tensor], Tensor]) -> Tensor:
        wanted = context.needs_input_grad[0]
        gradient = torch.zeros_like(video) if wanted else None
        total = video.new_zeros(len(video))
        for index, place in enumerate(places):
            with torch.set_grad_enabled(wanted):
                block = video[place].detach().requires_grad_(wanted)
                value = of_block(index, block)
                total += value.detach()
                if gradient is not None:
                    gradient[place] += torch.autograd.grad(value.sum(), block)[0]
        context.save_for_backward(gradient)
        return total

    @staticmethod
    @once_differentiable
    def backward(context: Any, outer: Tensor) -> tuple[Tensor, None, None]:
        (gradient,) = context.saved_tensors
        return gradient * outer.view(-1, 1, 1, 1, 1), None, None


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
