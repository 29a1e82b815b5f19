"""The paper preset as one would first write it: full FFTs of every window, then what is kept of them. Slow and hungry on purpose.

What ``benchmarks/loss_cost.py`` compares with; ``tests/benchmarks/test_reference_loss.py`` holds it equal to
``SpectralConfig.paper()``. Formulas: paper, "Translational/Rotational/Scaling Motion Loss" and "Adaptive Weighting".
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

RHO, TAU_E, GATE, RIDGE, TAU, EPSILON = 0.3, 0.1, 10.0, 1e-3, 0.1, 1e-8
RINGS, ANGLES, EDGE, DELTA = 20, 24, 20.0, 1.0
WINDOW, STRIDE = 16, 8


def reference_loss(video: Tensor) -> Tensor:
    """Mean composite loss of the windows of a clip (1, C, T, H, W), pixels in [0, 1]."""
    # video: (1, C, T, H, W)
    frames = video.shape[2]
    starts = list(range(0, max(1, frames - WINDOW + 1), STRIDE))
    if frames > WINDOW and starts[-1] != frames - WINDOW:
        starts.append(frames - WINDOW)
    return torch.stack([window_loss(video[0, :, start : start + WINDOW]) for start in starts]).mean()


def window_loss(video: Tensor) -> Tensor:
    """Composite loss of one window (C, T, H, W)."""
    # video: (C, T, H, W)
    _, frames, height, width = video.shape
    taper = torch.sin(math.pi * (torch.arange(frames, dtype=video.dtype, device=video.device) + 0.5) / frames) ** 2
    signal = video - 0.5
    spectrum = torch.fft.fftn(signal * taper[:, None, None], dim=(1, 2, 3))  # (C, T, H, W)
    energy = spectrum.abs().square().sum(dim=0)
    largest = [max(1, math.floor(RHO * (side - 1))) + 1 for side in (frames, height, width)]
    losses = [translation(energy[: largest[0], : largest[1], : largest[2]], (frames, height, width))]

    planes = torch.fft.fftshift(torch.fft.fft2(signal), dim=(2, 3))  # (C, T, H, W)
    y, x = (torch.arange(side, dtype=video.dtype, device=video.device) - side // 2 for side in (height, width))
    turns = y[:, None] * (height - 1) / height + x * (width - 1) / width
    planes = planes * torch.polar(torch.ones_like(turns), math.pi * turns)  # phase origin at the centre
    limit_y, limit_x = (max(1, math.floor(RHO * side / 2)) for side in (height, width))
    middle_y, middle_x = height // 2, width // 2
    kept = planes[:, :, middle_y - limit_y : middle_y + limit_y + 1, middle_x - limit_x : middle_x + limit_x + 1]
    shorter = min(height, width)
    outer = max(1.0, min(limit_y * shorter / height, limit_x * shorter / width))
    shares = ring_shares(kept, (height, width), outer)
    losses += [rotation(kept, (height, width), outer, taper, shares), scaling(shares)]
    stacked = torch.stack(losses)
    return (torch.softmax(-stacked / TAU, dim=0) * stacked).sum()


def translation(energy: Tensor, sizes: tuple[int, int, int]) -> Tensor:
    """Gated residual to the best plane; (Kt, Ky, Kx) of the octant, Nyquist = 1."""
    grid = torch.meshgrid(
        *(
            2 * torch.arange(kept, dtype=energy.dtype, device=energy.device) / size
            for kept, size in zip(energy.shape, sizes, strict=True)
        ),
        indexing="ij",
    )
    design = torch.stack([grid[2], grid[1], torch.ones_like(grid[0])], dim=-1).reshape(-1, 3)
    target = -grid[0].reshape(-1)
    gate = torch.sigmoid(GATE * (energy.flatten() / energy.max() - TAU_E))
    weights = gate / gate.sum()
    normal = design.T @ (weights[:, None] * design) + RIDGE * torch.eye(3, dtype=energy.dtype, device=energy.device)
    plane = torch.linalg.solve(normal, design.T @ (weights * target))
    return (weights * (design @ plane - target) ** 2).sum()


def ring_shares(kept: Tensor, size: tuple[int, int], outer: float) -> Tensor:
    """Share of each soft ring in the energy of a frame, (T, RINGS)."""
    # kept: (C, T, Ky, Kx)
    power = kept.abs().square().sum(dim=0)
    limit_y, limit_x = kept.shape[2] // 2, kept.shape[3] // 2
    y = torch.arange(-limit_y, limit_y + 1, dtype=power.dtype, device=power.device) * min(size) / size[0]
    x = torch.arange(-limit_x, limit_x + 1, dtype=power.dtype, device=power.device) * min(size) / size[1]
    radius = torch.hypot(y[:, None], x) / outer
    edges = torch.linspace(0, 1, RINGS + 1, dtype=power.dtype, device=power.device)[:, None, None]
    masks = torch.sigmoid(EDGE * RINGS * (radius - edges[:-1])) * torch.sigmoid(EDGE * RINGS * (edges[1:] - radius))
    energy = torch.einsum("tyx,ryx->tr", power, masks)
    return energy / energy.sum(dim=1, keepdim=True)


def rotation(kept: Tensor, size: tuple[int, int], outer: float, taper: Tensor, shares: Tensor) -> Tensor:
    """Energy of the angular harmonics outside a soft band around the closed-form line, and the ring entropy, half each."""
    # kept: (C, T, Ky, Kx)
    limit_y, limit_x = kept.shape[2] // 2, kept.shape[3] // 2
    radius = outer * torch.arange(1, RINGS + 1, dtype=taper.dtype, device=taper.device)[:, None] / RINGS
    angle = 2 * math.pi * torch.arange(ANGLES, dtype=taper.dtype, device=taper.device) / ANGLES
    y = (radius * torch.sin(angle) * size[0] / min(size) + limit_y).clamp(0, 2 * limit_y)
    x = (radius * torch.cos(angle) * size[1] / min(size) + limit_x).clamp(0, 2 * limit_x)
    y0, x0 = y.floor().long().clamp(max=2 * limit_y - 1), x.floor().long().clamp(max=2 * limit_x - 1)
    fy, fx = y - y0, x - x0
    polar = (
        (1 - fy) * ((1 - fx) * kept[:, :, y0, x0] + fx * kept[:, :, y0, x0 + 1])
        + fy * ((1 - fx) * kept[:, :, y0 + 1, x0] + fx * kept[:, :, y0 + 1, x0 + 1])
    )  # fmt: skip
    harmonics = torch.fft.fft(polar, dim=3) / ANGLES  # (C, T, R, M)
    energy = torch.fft.fft(harmonics * taper[:, None, None], dim=1).abs().square().sum(dim=(0, 2))  # (T, M)
    frames = len(taper)
    times = torch.fft.fftfreq(frames, 1 / frames, dtype=taper.dtype, device=taper.device)[:, None]
    orders = torch.fft.fftfreq(ANGLES, 1 / ANGLES, dtype=taper.dtype, device=taper.device)
    energy = energy * (orders != 0)
    slope = -(energy * times * orders).sum() / (energy * orders**2).sum()
    inside = torch.sigmoid(EDGE * (DELTA - (times + orders * slope).abs()))
    entropy = -(shares * torch.log(shares + EPSILON)).sum(dim=1).mean() / math.log(RINGS)
    return 0.5 * (1 - (energy * inside).sum() / energy.sum()) + 0.5 * entropy


def scaling(shares: Tensor) -> Tensor:
    """One minus the mean of the flow and the trend proxy of the ring shares (T, RINGS)."""
    if len(shares) < 3:
        return shares.new_tensor(0.5)
    across = shares.diff(dim=1)[:-1].flatten()
    along = shares.diff(dim=0)[:, :-1].flatten()
    flow = (across @ along).abs() / (across.norm() * along.norm() + EPSILON)
    centroid = shares @ torch.arange(1, RINGS + 1, dtype=shares.dtype, device=shares.device)
    centroid = centroid - centroid.mean()
    time = torch.arange(len(shares), dtype=shares.dtype, device=shares.device) - (len(shares) - 1) / 2
    trend = (centroid * time).mean().abs() / (centroid.norm() * time.norm() / len(shares) + EPSILON)
    return 1 - 0.5 * (flow + trend)
