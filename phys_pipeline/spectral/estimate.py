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
_ITERATIONS = 6  # Gauss-Newton steps per level and robust scale


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
    # a moving camera is seen best in the frames themselves, an object before a still scene without the still part
    candidates = [_coarse_to_fine(images), _coarse_to_fine(images - images.mean(dim=0))]
    return max(candidates, key=lambda motion: float(motion.confidence))


def _principal_channel(change: Tensor) -> Tensor:
    """Unit mixture of channels (C,) in which the frames change most: an object as bright as its background still shows."""
    # change: (C, T-1, H, W)
    flat = change.flatten(1)
    covariance = (flat @ flat.T).cpu().double()  # small; not every device has float64 or eigenvectors
    return torch.linalg.eigh(covariance)[1][:, -1].to(change)


def _coarse_to_fine(images: Tensor) -> SimilarityMotion:
    """Register (T, H, W) from the coarsest pyramid level to the finest."""
    pyramid = [images]
    while min(pyramid[-1].shape[1:]) >= 2 * _SMALLEST_SIDE:
        pyramid.append(_halve(pyramid[-1]))
    parameters = images.new_zeros(4)  # vx, vy, rotation, zoom in units of the finest level
    for level in reversed(range(len(pyramid))):
        parameters, confidence, radius = _register(pyramid[level], parameters, float(2**level))
    return SimilarityMotion(parameters[:2], parameters[2], parameters[3], confidence, radius)


def _halve(images: Tensor) -> Tensor:
    """Binomial smoothing and decimation by two: (T, H, W) -> (T, H // 2, W // 2)."""
    return functional.avg_pool2d(_smooth(images), 2)


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


def _register(images: Tensor, start: Tensor, factor: float) -> tuple[Tensor, Tensor, Tensor]:
    """Gauss-Newton on one pyramid level; parameters (4,) are in full-resolution pixels, ``factor`` is the level's pixel size."""
    # images: (T, H, W)
    images = _smooth(images)
    first, second = images[:-1], images[1:]  # (T-1, H, W)
    height, width = first.shape[1:]
    y, x = torch.meshgrid(
        torch.arange(height, device=images.device, dtype=images.dtype),
        torch.arange(width, device=images.device, dtype=images.dtype),
        indexing="ij",
    )
    change = _smooth(_smooth((second - first).square()))
    weight = change / (change + 0.1 * change.mean() + torch.finfo(images.dtype).tiny)
    centre, radius = _moving_centre(weight * change.sqrt(), x, y)
    relative_x, relative_y = x - centre[:, 0, None, None], y - centre[:, 1, None, None]
    first_x, first_y = _gradient(first)
    parameters = start.clone()
    parameters[:2] /= factor
    for _ in range(_ITERATIONS):
        warped, inside = _warp(second, parameters, relative_x, relative_y, x, y)
        residual = (warped - first) * inside
        scale = 1.48 * residual.abs()[inside > 0].median() + 0.1 * change.mean().sqrt()
        robust = weight * inside / (1 + (residual / scale) ** 2)
        warped_x, warped_y = _gradient(warped)
        gradient_x, gradient_y = (first_x + warped_x) / 2, (first_y + warped_y) / 2
        jacobian = torch.stack(
            [
                gradient_x,
                gradient_y,
                gradient_y * relative_x - gradient_x * relative_y,
                gradient_x * relative_x + gradient_y * relative_y,
            ]
        ).flatten(1)  # (4, P)
        weighted = jacobian * robust.flatten()
        normal = weighted @ jacobian.T
        scale_of_axes = normal.diagonal().clamp_min(1e-20).sqrt()
        normal = normal / (scale_of_axes[:, None] * scale_of_axes) + 1e-4 * torch.eye(4, device=images.device)
        step = -torch.linalg.solve(normal, (weighted @ residual.flatten()) / scale_of_axes) / scale_of_axes
        limit = 2.0 / torch.stack([torch.ones_like(radius), torch.ones_like(radius), radius.clamp_min(1), radius.clamp_min(1)])
        parameters = parameters + torch.minimum(torch.maximum(step, -limit), limit)
    warped, inside = _warp(second, parameters, relative_x, relative_y, x, y)
    unexplained = (weight * inside * (warped - first).square()).sum()
    initial = (weight * inside * (second - first).square()).sum()
    confidence = (1 - unexplained / initial.clamp_min(torch.finfo(images.dtype).tiny)).clamp(0, 1)
    parameters[:2] *= factor
    return parameters, confidence, radius * factor


def _moving_centre(weight: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Centre of the moving pixels per pair, smoothed to a straight path over the window (T-1, 2), and their radius ()."""
    # weight: (T-1, H, W)
    mass = weight.sum(dim=(1, 2)).clamp_min(torch.finfo(weight.dtype).tiny)
    centre = torch.stack([(weight * x).sum(dim=(1, 2)) / mass, (weight * y).sum(dim=(1, 2)) / mass], dim=1)
    time = torch.arange(len(mass), device=weight.device, dtype=weight.dtype)
    share = mass / mass.sum()
    time = time - (share * time).sum()
    middle = (share[:, None] * centre).sum(dim=0)
    speed = (share[:, None] * time[:, None] * centre).sum(dim=0) / (share * time**2).sum().clamp_min(1e-12)
    path = middle + time[:, None] * speed
    distance = (x - path[:, 0, None, None]) ** 2 + (y - path[:, 1, None, None]) ** 2
    return path, ((weight * distance).sum() / weight.sum().clamp_min(torch.finfo(weight.dtype).tiny)).sqrt()


def _warp(
    images: Tensor, parameters: Tensor, relative_x: Tensor, relative_y: Tensor, x: Tensor, y: Tensor
) -> tuple[Tensor, Tensor]:
    """Pull ``images`` (P, H, W) back by the motion: sample at where each pixel went; also a mask of samples inside the frame."""
    height, width = images.shape[1:]
    grow = torch.exp(parameters[3])
    cosine, sine = grow * torch.cos(parameters[2]), grow * torch.sin(parameters[2])
    target_x = x + parameters[0] + (cosine - 1) * relative_x - sine * relative_y
    target_y = y + parameters[1] + sine * relative_x + (cosine - 1) * relative_y
    grid = torch.stack([(2 * target_x + 1) / width - 1, (2 * target_y + 1) / height - 1], dim=-1)  # (P, H, W, 2)
    warped = functional.grid_sample(images[:, None], grid, mode="bilinear", padding_mode="border", align_corners=False)[:, 0]
    inside = ((target_x >= 0) & (target_x <= width - 1) & (target_y >= 0) & (target_y <= height - 1)).to(images.dtype)
    return warped, inside
