"""Velocity, rotation and zoom rate of a window for reports: one similarity motion registered over all neighbouring frames.

The spectral slopes make good losses but coarse estimates: bins are 2 pi / T wide, and removing the temporal mean biases rotation
and zoom. Reports therefore use a direct registration: coarse to fine, robust Gauss-Newton on the four parameters, pixels
weighted by how much they change so that a still background has no say. Evidence: ``benchmarks/estimates.py``.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as functional
from torch import Tensor

_SMALLEST_SIDE = 12  # pixels of the coarsest pyramid level
_ITERATIONS = 6  # Gauss-Newton steps per level
_ALL_SAMPLES = 32 * 32  # pixels of a level up to which every one is a sample; of a larger level every second in each direction
_MEDIAN_SAMPLES = 4096  # residuals, about, from which their median is taken


class SimilarityMotion(NamedTuple):
    """Motion per frame of one window.

    ``velocity`` (2,) in pixels (x right, y down) at the centre of the moving region, ``rotation`` in radians (clockwise is
    positive), ``zoom`` in log-scale (growing positive), ``confidence`` in [0, 1]: share of the change between frames that it
    explains, ``radius``: root mean square distance of the moving pixels from their centre, in pixels.
    """

    velocity: Tensor
    rotation: Tensor
    zoom: Tensor
    confidence: Tensor
    radius: Tensor


class _Level(NamedTuple):
    """One pyramid level: smoothed frames, their gradients and, at the samples (T-1, S), what does not depend on the motion."""

    maps: Tensor  # (T, 3, H, W): brightness, d/dx, d/dy
    stride: int  # samples are every stride-th pixel
    weight: Tensor  # (T-1, S) how much a pixel changes
    relative: tuple[Tensor, Tensor]  # x, y of the samples from the centre of the moving region, (T-1, S)
    centre: Tensor  # (T-1, 2)
    radius: Tensor  # ()
    noise: Tensor  # () root mean square change


@torch.no_grad()
def estimate_similarity(frames: Tensor) -> SimilarityMotion:
    """Register all neighbouring pairs of one window with a single similarity motion.

    Args:
        frames: (C, T, H, W), any real dtype; T < 2 or a still window gives zeros.
    """
    # frames: (C, T, H, W)
    frames = frames.to(torch.float32)
    zero = frames.new_zeros(())
    change = frames[:, 1:] - frames[:, :-1]
    contrast = (frames - frames.mean(dim=(1, 2, 3), keepdim=True)).square().mean()
    if frames.shape[1] < 2 or float(change.square().mean()) <= 1e-10 * float(contrast + 1e-12):
        return SimilarityMotion(frames.new_zeros(2), zero, zero, zero, zero)
    images = torch.einsum("cthw,c->thw", frames, _principal_channel(change))
    levels = _pyramid(images)
    # a moving camera is seen best in the frames themselves, an object before a still scene without the still part
    candidates = [_coarse_to_fine(levels), _coarse_to_fine([_without_still_part(level) for level in levels])]
    return max(candidates, key=lambda motion: float(motion.confidence))


def _principal_channel(change: Tensor) -> Tensor:
    """Unit mixture of channels (C,) in which the frames change most: an object as bright as its background still shows."""
    # change: (C, T-1, H, W)
    flat = change.flatten(1)
    covariance = (flat @ flat.T).cpu().double()  # small; not every device has float64 or eigenvectors
    return torch.linalg.eigh(covariance)[1][:, -1].to(change)


def _pyramid(images: Tensor) -> list[_Level]:
    """Levels of (T, H, W), the finest first."""
    smooth = [_smooth(images)]
    while min(smooth[-1].shape[1:]) >= 2 * _SMALLEST_SIDE:
        smooth.append(_smooth(functional.avg_pool2d(smooth[-1], 2)))
    return [_level(images) for images in smooth]


def _without_still_part(level: _Level) -> _Level:
    return level._replace(maps=level.maps - level.maps.mean(dim=0))


def _level(images: Tensor) -> _Level:
    # images: (T, H, W)
    height, width = images.shape[1:]
    x, y = (torch.arange(side, device=images.device, dtype=images.dtype) for side in (width, height))
    change = _smooth(_smooth((images[1:] - images[:-1]).square()))
    mean = change.mean()
    weight = change / (change + 0.1 * mean + torch.finfo(images.dtype).tiny)
    centre, radius = _moving_centre(weight * change.sqrt(), x, y)
    stride = 1 if height * width <= _ALL_SAMPLES else 2
    relative_x = x[::stride].repeat(len(y[::stride])) - centre[:, :1]
    relative_y = y[::stride].repeat_interleave(len(x[::stride])) - centre[:, 1:]
    maps = torch.stack([images, *_gradient(images)], dim=1)
    return _Level(maps, stride, weight[:, ::stride, ::stride].flatten(1), (relative_x, relative_y), centre, radius, mean.sqrt())


def _coarse_to_fine(levels: list[_Level]) -> SimilarityMotion:
    """Register from the coarsest pyramid level to the finest."""
    parameters = levels[0].maps.new_zeros(4)  # vx, vy, rotation, zoom in units of the finest level
    for index in reversed(range(len(levels))):
        parameters, confidence, radius = _register(levels[index], parameters, float(2**index))
    return SimilarityMotion(parameters[:2], parameters[2], parameters[3], confidence, radius)


def _smooth(images: Tensor) -> Tensor:
    """Separable binomial (1, 2, 1) / 4 with replicated borders, (T, H, W)."""
    padded = functional.pad(images[:, None], (1, 1, 1, 1), mode="replicate")[:, 0]
    rows = (padded[:, :-2] + 2 * padded[:, 1:-1] + padded[:, 2:]) / 4
    return (rows[:, :, :-2] + 2 * rows[:, :, 1:-1] + rows[:, :, 2:]) / 4


def _gradient(images: Tensor) -> tuple[Tensor, Tensor]:
    """Central differences (d/dx, d/dy), zero at the borders, each (T, H, W)."""
    x, y = torch.zeros_like(images), torch.zeros_like(images)
    x[:, :, 1:-1] = (images[:, :, 2:] - images[:, :, :-2]) / 2
    y[:, 1:-1] = (images[:, 2:] - images[:, :-2]) / 2
    return x, y


def _register(level: _Level, start: Tensor, factor: float) -> tuple[Tensor, Tensor, Tensor]:
    """Gauss-Newton on one pyramid level; parameters (4,) are in full-resolution pixels, ``factor`` is the level's pixel size."""
    first = level.maps[:-1, :, :: level.stride, :: level.stride].flatten(2)  # (T-1, 3, S)
    first_brightness, half_x, half_y = first[:, 0], first[:, 1] / 2, first[:, 2] / 2
    relative_x, relative_y = level.relative
    weight, radius = level.weight, level.radius
    parameters = start.clone()
    parameters[:2] /= factor
    reach = radius.clamp_min(1)
    limit = 2.0 / torch.stack([torch.ones_like(reach), torch.ones_like(reach), reach, reach])
    rows = first.new_empty(5, *weight.shape)  # Jacobian of the four parameters, residual
    pick = max(1, weight.numel() // _MEDIAN_SAMPLES) | 1
    for _ in range(_ITERATIONS):
        (warped, warped_x, warped_y), inside, cosine, sine = _warp(level, parameters)
        residual = torch.sub(warped, first_brightness, out=rows[4])
        some, seen = residual.flatten()[::pick], inside.flatten()[::pick]
        scale = 1.48 * some[seen].abs().median().nan_to_num() + 0.1 * level.noise
        robust = weight * inside / (1 + (residual / scale).square_())
        torch.add(half_x, warped_x * (cosine / 2) + warped_y * (sine / 2), out=rows[0])
        torch.add(half_y, warped_y * (cosine / 2) - warped_x * (sine / 2), out=rows[1])
        torch.mul(rows[1], relative_x, out=rows[2]).addcmul_(rows[0], relative_y, value=-1)
        torch.mul(rows[0], relative_x, out=rows[3]).addcmul_(rows[1], relative_y)
        flat = rows.flatten(1)
        system = (flat[:4] * robust.flatten()) @ flat.T  # (4, 5)
        scale_of_axes = system.diagonal().clamp_min(1e-20).sqrt()
        normal = system[:, :4] / (scale_of_axes[:, None] * scale_of_axes) + 1e-4 * torch.eye(4, device=flat.device)
        step = -torch.linalg.solve(normal, system[:, 4] / scale_of_axes) / scale_of_axes
        parameters = parameters + torch.minimum(torch.maximum(step, -limit), limit)
    (warped, _, _), inside, _, _ = _warp(level, parameters)
    trusted = weight * inside
    unexplained = (trusted * (warped - first_brightness).square_()).sum()
    second = level.maps[1:, 0, :: level.stride, :: level.stride].flatten(1)
    initial = (trusted * (second - first_brightness).square_()).sum()
    confidence = (1 - unexplained / initial.clamp_min(torch.finfo(first.dtype).tiny)).clamp(0, 1)
    parameters[:2] *= factor
    return parameters, confidence, radius * factor


def _moving_centre(weight: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Centre of the moving pixels per pair, smoothed to a straight path over the window (T-1, 2), and their radius ()."""
    # weight: (T-1, H, W); x: (W,); y: (H,)
    columns, rows = weight.sum(dim=1), weight.sum(dim=2)  # (T-1, W), (T-1, H)
    mass = rows.sum(dim=1).clamp_min(torch.finfo(weight.dtype).tiny)
    centre = torch.stack([columns @ x / mass, rows @ y / mass], dim=1)
    time = torch.arange(len(mass), device=weight.device, dtype=weight.dtype)
    share = mass / mass.sum()
    time = time - (share * time).sum()
    middle = (share[:, None] * centre).sum(dim=0)
    speed = (share[:, None] * time[:, None] * centre).sum(dim=0) / (share * time**2).sum().clamp_min(1e-12)
    path = middle + time[:, None] * speed
    squares = (columns * (x - path[:, :1]) ** 2).sum() + (rows * (y - path[:, 1:]) ** 2).sum()
    return path, (squares / mass.sum()).sqrt()


def _warp(level: _Level, parameters: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Pull the later frame of each pair back by the motion: sample it where each pixel went.

    Returns the sampled maps (3, T-1, S), a mask of samples inside the frame (T-1, S), and the motion's scaled cosine and sine.
    """
    height, width = level.maps.shape[2:]
    relative_x, relative_y = level.relative
    grow = torch.exp(parameters[3])
    cosine, sine = grow * torch.cos(parameters[2]), grow * torch.sin(parameters[2])
    moved = level.centre + parameters[:2]
    x = relative_x * cosine - relative_y * sine + moved[:, :1]
    y = relative_x * sine + relative_y * cosine + moved[:, 1:]
    inside = (x >= 0) & (x <= width - 1) & (y >= 0) & (y <= height - 1)
    grid = torch.stack([(2 * x + 1) / width - 1, (2 * y + 1) / height - 1], dim=-1)[:, None]  # (T-1, 1, S, 2)
    warped = functional.grid_sample(level.maps[1:], grid, mode="bilinear", padding_mode="border", align_corners=False)
    return warped[:, :, 0].transpose(0, 1), inside, cosine, sine
