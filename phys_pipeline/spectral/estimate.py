"""Velocity, rotation and zoom rate of a window for reports: one similarity motion registered over all neighbouring frames.

The spectral slopes make good losses but coarse estimates: bins are 2 pi / T wide, and removing the temporal mean biases rotation
and zoom. Reports therefore use a direct registration: coarse to fine, robust Gauss-Newton on the four parameters, pixels
weighted by how much they change so that a still background has no say, and cuts left out. Evidence: ``benchmarks/estimates.py``.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as functional
from torch import Tensor

_SMALLEST_SIDE = 12  # pixels of the coarsest pyramid level
_ITERATIONS = 6  # Gauss-Newton steps per level at most
_SETTLED = (0.003, 0.005)  # pixels: steps below end the iteration, at the finest level and at the others
_ALL_SAMPLES = (64 * 64, 32 * 32)  # pixels of such levels up to which each is a sample; of larger every second row and column
_MEDIAN_SAMPLES = 2048  # residuals, about, from which their median is taken
_LONGEST_STEP = 2.0  # pixels of a level
_UNUSUAL = 4.0  # a pair that changes so many times more than the third largest change of its window is a cut or a flash


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
    """One pyramid level of P pairs of frames; what does not depend on the motion, at h x w samples of each pair."""

    images: Tensor  # (P + 1, H, W), smoothed
    stride: int  # samples are every stride-th row and column
    x: Tensor  # (w,) of the samples
    y: Tensor  # (h,)
    weight: Tensor  # (P, h, w) how much a pixel changes
    centre: Tensor  # (P, 2) of the moving region
    radius: Tensor  # ()
    noise: Tensor  # () root mean square change


@torch.no_grad()
def estimate_similarity(frames: Tensor) -> SimilarityMotion:
    """Register all neighbouring pairs of one window with a single similarity motion.

    One or two pairs of six or more that change far more than the others (cuts, flashes) count little.

    Args:
        frames: (C, T, H, W), any real dtype; T < 2 or a still window gives zeros.
    """
    # frames: (C, T, H, W)
    frames = frames.to(torch.float32)
    zero = frames.new_zeros(())
    still = SimilarityMotion(frames.new_zeros(2), zero, zero, zero, zero)
    if frames.shape[1] < 2:
        return still
    change = (frames[:, 1:] - frames[:, :-1]).transpose(0, 1).flatten(2)  # (P, C, H W)
    covariance = change @ change.transpose(1, 2)  # (P, C, C)
    usual = _usual(covariance.diagonal(dim1=1, dim2=2).sum(dim=1))
    covariance = (usual.view(-1, 1, 1) * covariance).sum(dim=0)
    contrast = (frames - frames.mean(dim=(1, 2, 3), keepdim=True)).flatten().norm() ** 2
    if float(covariance.trace()) <= 1e-10 * float(contrast):
        return still
    images = torch.einsum("cthw,c->thw", frames, _principal_channel(covariance))
    return _coarse_to_fine(_pyramid(images, usual))


def _usual(energy: Tensor) -> Tensor:
    """Weights (P,) in [0, 1] of pairs whose frames differ by ``energy`` (P,): what is far above the third largest is capped."""
    # energy: (P,)
    if len(energy) < 6:
        return torch.ones_like(energy)
    most = _UNUSUAL * energy.topk(3)[0][2]
    return torch.where(energy > most, most / energy.clamp_min(torch.finfo(energy.dtype).tiny), 1.0)


def _principal_channel(covariance: Tensor) -> Tensor:
    """Unit mixture of channels (C,) in which the frames change most: an object as bright as its background still shows."""
    # covariance: (C, C); small, and not every device has float64 or eigenvectors
    return torch.linalg.eigh(covariance.cpu().double())[1][:, -1].to(covariance)


def _pyramid(images: Tensor, usual: Tensor) -> list[_Level]:
    """Levels of (T, H, W), the finest first; usual: (P,) weights of the pairs."""
    smooth = [_smooth(images)]
    while min(smooth[-1].shape[1:]) >= 2 * _SMALLEST_SIDE:
        smooth.append(_smooth(functional.avg_pool2d(smooth[-1], 2)))
    return [_level(images, usual, _ALL_SAMPLES[min(index, 1)]) for index, images in enumerate(smooth)]


def _level(images: Tensor, usual: Tensor, all_samples: int) -> _Level:
    # images: (T, H, W); usual: (P,)
    height, width = images.shape[1:]
    x, y = (torch.arange(side, device=images.device, dtype=images.dtype) for side in (width, height))
    difference = images[1:] - images[:-1]
    change = _smooth(_smooth(difference * difference * usual.view(-1, 1, 1)))
    mean = change.mean()
    weight = change / (change + 0.1 * mean + torch.finfo(images.dtype).tiny) * usual.view(-1, 1, 1)
    centre, radius = _moving_centre(weight * change.sqrt(), x, y)
    stride = 1 if height * width <= all_samples else 2
    weight = weight[:, ::stride, ::stride].contiguous()
    return _Level(images, stride, x[::stride], y[::stride], weight, centre, radius, mean.sqrt())


def _coarse_to_fine(levels: list[_Level]) -> SimilarityMotion:
    """Register from the coarsest pyramid level to the finest, where only the better of two candidates goes on.

    A moving camera is seen best in the frames themselves, an object before a still scene without the still part.
    """
    parameters = levels[0].images.new_zeros(2, 4)  # vx, vy, rotation, zoom of both
    chosen = slice(None)
    for index in reversed(range(len(levels))):
        images = levels[index].images
        candidates = torch.stack([images, images - images.mean(dim=0)])[chosen]
        parameters, confidence = _register(levels[index], candidates, parameters, _SETTLED[min(index, 1)])
        if index <= 1 and len(confidence) > 1:
            better = int(confidence.argmax())
            chosen = slice(better, better + 1)
            parameters, confidence = parameters[chosen], confidence[chosen]
        if index:
            parameters[:, :2] *= 2  # to pixels of the next level
    velocity, rotation, zoom = parameters[0].split([2, 1, 1])
    return SimilarityMotion(velocity, rotation[0], zoom[0], confidence[0], levels[0].radius)


def _smooth(images: Tensor) -> Tensor:
    """Separable binomial (1, 2, 1) / 4 with replicated borders, (T, H, W)."""
    padded = functional.pad(images[:, None], (1, 1, 1, 1), mode="replicate")[:, 0]
    rows = (padded[:, :-2] + padded[:, 2:]).add_(padded[:, 1:-1], alpha=2)
    return (rows[:, :, :-2] + rows[:, :, 2:]).add_(rows[:, :, 1:-1], alpha=2).div_(16)


def _with_gradient(images: Tensor) -> Tensor:
    """Images (K, T, H, W) and their central differences d/dx, d/dy, zero at the borders: (K, T, 3, H, W)."""
    # images: (K, T, H, W)
    maps = images.new_zeros(*images.shape[:2], 3, *images.shape[2:])
    maps[:, :, 0] = images
    torch.sub(images[..., 2:], images[..., :-2], out=maps[:, :, 1, :, 1:-1]).div_(2)
    torch.sub(images[..., 2:, :], images[..., :-2, :], out=maps[:, :, 2, 1:-1]).div_(2)
    return maps


def _register(level: _Level, images: Tensor, start: Tensor, settled: float) -> tuple[Tensor, Tensor]:
    """Robust Gauss-Newton on one pyramid level; gradients are those at the start.

    Args:
        images: (K, P + 1, H, W) of K candidates.
        start: (K, 4) velocity, rotation, zoom in pixels of the level.
        settled: pixels; steps below end the iteration.

    Returns the parameters (K, 4) and the share of the change that they explain (K,).
    """
    maps = _with_gradient(images)
    first, x_first, y_first = maps[:, :-1, :, :: level.stride, :: level.stride].unbind(2)  # (K, P, h, w)
    (warped, x_later, y_later), inside = _warp(maps[:, 1:], level, start)
    later = images[:, 1:, None]
    cosine, sine = _turn(start)
    rows = first.new_empty(len(images), 5, *first.shape[1:])  # Jacobian of the four parameters, residual
    relative_x, relative_y = level.x - level.centre[:, :1, None], level.y[:, None] - level.centre[:, 1:, None]
    torch.add(x_first, cosine * x_later + sine * y_later, out=rows[:, 0]).div_(2)
    torch.add(y_first, cosine * y_later - sine * x_later, out=rows[:, 1]).div_(2)
    torch.mul(rows[:, 1], relative_x, out=rows[:, 2]).addcmul_(rows[:, 0], relative_y, value=-1)
    torch.mul(rows[:, 0], relative_x, out=rows[:, 3]).addcmul_(rows[:, 1], relative_y)
    first, flat = first.contiguous(), rows.flatten(2)
    reach = level.radius.clamp_min(1)
    unit = torch.stack([torch.ones_like(reach), torch.ones_like(reach), 1 / reach, 1 / reach])  # moves the region by a pixel
    parameters, step, move = start, torch.zeros_like(start), torch.zeros_like(start)
    for _ in range(_ITERATIONS):
        residual = torch.sub(warped, first, out=rows[:, 4])
        scale = 1.48 * _median(residual, inside) + 0.1 * level.noise
        robust = (residual / scale).square_().add_(1).reciprocal_().mul_(level.weight).mul_(inside)
        system = (flat[:, :4] * robust.flatten(1)[:, None]) @ flat.transpose(1, 2)  # (K, 4, 5)
        before, step = step, -_solve(system[:, :, :4], system[:, :, 4]) / unit  # in pixels of the level
        move = _accelerated(step, before, move).clamp(-_LONGEST_STEP, _LONGEST_STEP)
        parameters = parameters + move * unit
        (warped,), inside = _warp(later, level, parameters)
        if float(step.abs().max()) < settled:
            break
    trusted = level.weight * inside
    difference, residual = images[:, 1:] - images[:, :-1], warped - first
    difference = difference[:, :, :: level.stride, :: level.stride]
    initial = (trusted * difference * difference).sum(dim=(1, 2, 3)).clamp_min(torch.finfo(first.dtype).tiny)
    return parameters, (1 - (trusted * residual * residual).sum(dim=(1, 2, 3)) / initial).clamp(0, 1)


def _median(residual: Tensor, inside: Tensor) -> Tensor:
    """Median of the absolute residual (K, P, h, w) over samples inside the frame, from some of them: (K, 1, 1, 1)."""
    every = max(1, residual[0].numel() // _MEDIAN_SAMPLES) | 1  # odd: rows and columns are left out alike
    some, seen = residual.flatten(1)[:, ::every].abs(), inside.flatten(1)[:, ::every]
    return torch.where(seen, some, torch.nan).nanmedian(dim=1)[0].nan_to_num().view(-1, 1, 1, 1)


def _solve(normal: Tensor, right: Tensor) -> Tensor:
    """Solution (K, 4) of slightly damped normal equations (K, 4, 4), (K, 4), each parameter in units of its own size."""
    size = normal.diagonal(dim1=1, dim2=2).clamp_min(1e-20).sqrt()
    damped = normal / (size[:, :, None] * size[:, None]) + 1e-4 * torch.eye(4, device=normal.device)
    return torch.linalg.solve(damped, right / size) / size


def _accelerated(step: Tensor, before: Tensor, move: Tensor) -> Tensor:
    """Anderson acceleration of depth one: the move (K, 4) from this step, the one before and the move made after that.

    Reweighting makes steps shrink slowly and evenly; the difference of two tells how far they would lead.
    """
    # step, before, move: (K, 4)
    turn = step - before
    share = (turn * step).sum(dim=1, keepdim=True) / (turn * turn).sum(dim=1, keepdim=True).clamp_min(1e-20)
    first = (before == 0).all(dim=1, keepdim=True)
    return torch.where(first, step, step - share.clamp(-1, 0.5) * (move + turn))


def _moving_centre(weight: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Centre of the moving pixels per pair, smoothed to a straight path over the window (P, 2), and their radius ()."""
    # weight: (P, H, W); x: (W,); y: (H,)
    columns, rows = weight.sum(dim=1), weight.sum(dim=2)  # (P, W), (P, H)
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


def _turn(parameters: Tensor) -> tuple[Tensor, Tensor]:
    """Scaled cosine and sine of motions (K, 4), each (K, 1, 1, 1)."""
    grow, angle = parameters[:, 3].exp(), parameters[:, 2]
    return (grow * angle.cos()).view(-1, 1, 1, 1), (grow * angle.sin()).view(-1, 1, 1, 1)


def _warp(maps: Tensor, level: _Level, parameters: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
    """Pull the later frames (K, P, M, H, W) back by the motions (K, 4): look up where each sample went.

    Returns M sampled maps (K, P, h, w) and a mask of samples inside the frame (K, P, h, w).
    """
    height, width = maps.shape[3:]
    cosine, sine = _turn(parameters)
    x, y = level.x - level.centre[:, :1, None], level.y[:, None] - level.centre[:, 1:, None]  # (P, 1, w), (P, h, 1)
    to_x, to_y = (level.centre + parameters[:, None, :2])[..., None, None].unbind(2)  # (K, P, 1, 1)
    # the frame spans -1 to 1; a sum of a row and a column is the only operation on whole planes
    grid = maps.new_empty(*maps.shape[:2], len(level.y), len(level.x), 2)
    grid_x, grid_y = grid.unbind(-1)
    torch.sub((2 * (cosine * x + to_x) + 1 - width) / width, sine * (2 / width) * y, out=grid_x)
    torch.add((2 * (cosine * y + to_y) + 1 - height) / height, sine * (2 / height) * x, out=grid_y)
    inside = (grid_x.abs() <= 1 - 1 / width).logical_and_(grid_y.abs() <= 1 - 1 / height)
    grid = grid.flatten(0, 1)
    sampled = functional.grid_sample(maps.flatten(0, 1), grid, mode="bilinear", padding_mode="border", align_corners=False)
    return sampled.unflatten(0, maps.shape[:2]).unbind(2), inside
