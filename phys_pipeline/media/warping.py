"""Similarity and free warps of every frame of a clip: bilinear, mirrored at the borders."""

from __future__ import annotations

import torch
from torch.nn import functional

_FRAMES_AT_ONCE = 32  # bounds the memory of the sampling grids


def pixel_grid(height: int, width: int, like: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Coordinates ``(H, W)`` of the pixel centres, rows then columns, in pixels from the frame's centre (x right, y down)."""
    rows = torch.arange(height, device=like.device, dtype=like.dtype) - (height - 1) / 2
    columns = torch.arange(width, device=like.device, dtype=like.dtype) - (width - 1) / 2
    y, x = torch.meshgrid(rows, columns, indexing="ij")
    return y, x


def sample_at(frames: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Values of ``frames`` ``(N, C, H, W)`` at ``x``, ``y`` ``(N, H, W)``, pixels from the centre."""
    height, width = frames.shape[-2:]
    grid = torch.stack([x * (2.0 / width), y * (2.0 / height)], -1)
    return functional.grid_sample(frames, grid, mode="bilinear", padding_mode="reflection", align_corners=False)


def similarity_warp(video: torch.Tensor, parameters: torch.Tensor) -> torch.Tensor:
    """Move the content of each frame by its own similarity about the frame's centre.

    Args:
        video: ``(B, C, T, H, W)``, float32 or float64.
        parameters: ``(B, T, 4)``: shift right and down in widths, rotation in radians (clockwise on screen), log scale.
    """
    batch, channels, count, height, width = video.shape
    frames = video.transpose(1, 2).reshape(batch * count, channels, height, width)
    moves = parameters.to(video).reshape(-1, 4)
    y, x = pixel_grid(height, width, video)
    pieces = []
    for begin in range(0, len(frames), _FRAMES_AT_ONCE):
        part = moves[begin : begin + _FRAMES_AT_ONCE]
        right, down, angle, scale = (part[:, k, None, None] for k in range(4))
        shifted_x, shifted_y = x - right * width, y - down * width
        cosine, sine, shrink = torch.cos(angle), torch.sin(angle), torch.exp(-scale)
        source_x = (cosine * shifted_x + sine * shifted_y) * shrink
        source_y = (cosine * shifted_y - sine * shifted_x) * shrink
        pieces.append(sample_at(frames[begin : begin + _FRAMES_AT_ONCE], source_x, source_y))
    return torch.cat(pieces).reshape(batch, count, channels, height, width).transpose(1, 2).contiguous()


def rubber_warp(video: torch.Tensor, amplitude: float, phase: torch.Tensor) -> torch.Tensor:
    """Bend each frame by a sine of one half to one wavelength across that moves on from frame to frame.

    Args:
        video: ``(B, C, T, H, W)``.
        amplitude: largest shift, in widths.
        phase: ``(B,)`` radians.
    """
    batch, channels, count, height, width = video.shape
    frames = video.transpose(1, 2).reshape(batch * count, channels, height, width)
    start = phase.to(video).repeat_interleave(count)[:, None, None]
    step = torch.arange(count, device=video.device, dtype=video.dtype).repeat(batch)[:, None, None]
    y, x = pixel_grid(height, width, video)
    to_halves = 2.0 / width
    pieces = []
    for begin in range(0, len(frames), _FRAMES_AT_ONCE):
        piece = slice(begin, begin + _FRAMES_AT_ONCE)
        bend_x = torch.sin(3.0 * to_halves * y + start[piece] + 1.3 * step[piece])
        bend_y = torch.sin(3.0 * to_halves * x - start[piece] + 1.7 * step[piece])
        pieces.append(sample_at(frames[piece], x + amplitude * width * bend_x, y + amplitude * width * bend_y))
    return torch.cat(pieces).reshape(batch, count, channels, height, width).transpose(1, 2).contiguous()
