"""Descent on pixels or latents under one form of the loss: clips with known motion, the forms, the optimiser, what is measured.

The protocol, the same for every form:

* ``x`` starts at a corrupted copy ``s`` of a clean clip ``c``. With ``D = |s - c|`` and ``G`` the norm of the form's gradient at
  ``s``, Adam minimises ``L(x) / G + PROXIMITY |x - s|^2 / (2 D)``. So every form pulls with norm 1 at the start, and the
  proximity term with ``PROXIMITY`` once ``x`` is as far from ``s`` as the clean clip is.
* Pixels are clamped to [0, 1] after every step. The learning rate falls to zero along a cosine.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from phys_pipeline.media.synthetic import COLOURS, object_clip, textured_clip
from phys_pipeline.media.warping import pixel_grid, similarity_warp
from phys_pipeline.spectral import AnchoredMotionLoss, SpectralConfig, SpectralMotionLoss

FRAMES, SIDE = 16, 48
MOTIONS = ("translation", "rotation", "zoom")
FOLD = {"square": 4, "bar": 2, "triangle": 3, "star": 5}  # a turn by 1 / fold looks the same
BORDER = 4  # pixels at the frame's border that registration ignores
RADIUS = 8.0  # of the shapes, halfway through the clip
PAINT = ("white", "yellow", "green", "red")
PROXIMITY, STRONGER = 0.1, 0.5
RATE, STEPS = 0.03, 30

FORMS = (
    "paper", "absolute", "absolute, full gradient", "translation", "rotation", "scaling", "pace", "coherence", "excess",
    "anchored", "squared error",
)  # fmt: skip

Loss = Callable[[Tensor], Tensor]  # (B, C, T, H, W) -> (B,)


class Case(NamedTuple):
    """A clean clip (3, T, H, W) and how to track it: shapes by their colour mask, everything else by registration."""

    clean: Tensor
    steps: np.ndarray  # (T - 1, 4) of the clean clip; not used for shapes
    shape: str = ""
    colour: str = ""


def synthetic_case(motion: str, seed: int) -> Case:
    """16x48x48 pixels of pure translation, rotation or zoom: a shape before a still texture (even seeds) or a texture (odd)."""
    rng = np.random.default_rng([seed, 505])
    sign, angle = rng.choice([-1.0, 1.0]), rng.uniform(0, 2 * math.pi)
    speed = rng.uniform(0.6, 1.4) * (motion == "translation")
    rotation = sign * rng.uniform(0.04, 0.11) * (motion == "rotation")
    zoom = sign * rng.uniform(0.02, 0.04) * (motion == "zoom")
    velocity = (speed * math.cos(angle), speed * math.sin(angle))
    if seed % 2:
        step = [*velocity, 0.25 * SIDE * rotation, 0.25 * SIDE * zoom]
        return Case(textured_clip(FRAMES, SIDE, SIDE, velocity, rotation, zoom, seed=seed).video, np.tile(step, (FRAMES - 1, 1)))
    shape, colour = (str(rng.choice(names)) for names in (tuple(FOLD), PAINT))
    middle, span = (SIDE - 1) / 2, (FRAMES - 1) / 2
    clip = object_clip(
        shape, colour, frames=FRAMES, height=SIDE, width=SIDE, radius=RADIUS * math.exp(-span * zoom), angle=rng.uniform(0, 6),
        centre=(middle - span * velocity[0], middle - span * velocity[1]),
        velocity=velocity, rotation=rotation, zoom=zoom, texture=0.05, seed=seed,
    )  # fmt: skip
    return Case(clip.video, np.zeros((FRAMES - 1, 4)), shape, colour)


class Measures(NamedTuple):
    """What is read off one clip beside its clean one; ``jerk`` and ``path`` in pixels at the rim of what moves."""

    jerk: float
    path: float
    distance: float
    sharpness: float
    dynamic: float


def tracked_steps(video: Tensor, case: Case) -> np.ndarray:
    """Motion between neighbouring frames, (T - 1, 4): x, y, rotation and log size, the last two times a radius, in pixels.

    Shapes are tracked by their colour. Elsewhere the steps are the clean clip's known or measured ones plus the change of each
    frame's deviation from the clean frame of its time, see :func:`deviation`.
    """
    # video: (C, T, H, W)
    if case.shape:
        return shape_steps(video, case.shape, case.colour)
    return case.steps + np.diff(deviation(video, case.clean), axis=0)


def deviation(video: Tensor, clean: Tensor) -> np.ndarray:
    """Similarity (T, 4) that carries each clean frame to the frame of ``video``, from blurred to sharp; in pixels."""
    # video, clean: (C, T, H, W)
    height, width = clean.shape[2:]
    unit = torch.tensor([width, width, 1.0, 1.0])  # similarity_warp takes shifts in widths
    y, x = pixel_grid(height, width, clean)
    inside = torch.zeros_like(x)
    inside[BORDER:-BORDER, BORDER:-BORDER] = 1.0
    parameters = torch.zeros(clean.shape[1], 4)
    for radius in (6, 3, 1):
        source, target = blur(clean, radius), blur(video, radius)
        for _ in range(6):
            warped = similarity_warp(source[None], (parameters / unit)[None])[0]
            slope_y, slope_x = torch.gradient(warped, dim=(2, 3))
            jacobian = -torch.stack([slope_x, slope_y, slope_y * x - slope_x * y, slope_x * x + slope_y * y]) * inside
            flat = jacobian.permute(2, 0, 1, 3, 4).flatten(2)  # (T, 4, pixels)
            error = ((target - warped) * inside).transpose(0, 1).flatten(1)
            normal = flat @ flat.mT
            ridge = 1e-4 * normal.diagonal(dim1=1, dim2=2).mean(dim=1).clamp_min(1e-12).view(-1, 1, 1) * torch.eye(4)
            parameters = parameters + torch.linalg.solve(normal + ridge, flat @ error[..., None])[..., 0]
    return (parameters * torch.tensor([1.0, 1.0, 0.25 * height, 0.25 * height])).double().numpy()


def blur(video: Tensor, radius: int) -> Tensor:
    """Two box filters of ``2 radius + 1`` pixels over each frame of (C, T, H, W)."""
    for _ in range(2):
        video = functional.avg_pool2d(video, 2 * radius + 1, 1, radius, count_include_pad=False)
    return video


def shape_steps(video: Tensor, shape: str, colour: str) -> np.ndarray:
    """The same for one coloured shape, from its mask: centroid, angle of its moment of the shape's symmetry, root of its area."""
    # video: (3, T, H, W)
    frames = video.double().numpy()
    background = np.median(frames, axis=(1, 2, 3))
    axis = np.array(COLOURS[colour]) - background
    share = np.einsum("cthw,c->thw", frames - background[:, None, None, None], axis) / (axis @ axis)
    mask = np.clip((share - 0.2) / 0.6, 0, 1)
    y, x = np.mgrid[: mask.shape[1], : mask.shape[2]].astype(float)
    area = np.maximum(mask.sum((1, 2)), 1e-3)
    centre_x, centre_y = (mask * x).sum((1, 2)) / area, (mask * y).sum((1, 2)) / area
    offset = (x - centre_x[:, None, None]) + 1j * (y - centre_y[:, None, None])
    distance = np.maximum(np.abs(offset), 1e-9)
    moment = (mask * distance**2 * (offset / distance) ** FOLD[shape]).sum((1, 2))
    turns = np.angle(moment[1:] * moment[:-1].conj()) / FOLD[shape]
    return np.stack([np.diff(centre_x), np.diff(centre_y), RADIUS * turns, RADIUS * np.diff(0.5 * np.log(area))], axis=1)


def measure(video: Tensor, case: Case) -> Measures:
    # video: (C, T, H, W)
    clean = case.clean
    steps = tracked_steps(video, case)
    return Measures(
        jerk=float(np.linalg.norm(np.diff(steps, axis=0), axis=1).mean()),
        path=float(np.linalg.norm(steps, axis=1).sum()),
        distance=float((video - clean).square().mean().sqrt()),
        sharpness=edge_energy(video) / edge_energy(clean),
        dynamic=motion_energy(video) / motion_energy(clean),
    )


def edge_energy(video: Tensor) -> float:
    """Mean squared difference of neighbouring pixels."""
    return float(video.diff(dim=-1).square().mean() + video.diff(dim=-2).square().mean())


def motion_energy(video: Tensor) -> float:
    """Mean squared difference from the temporal mean."""
    return float((video - video.mean(dim=1, keepdim=True)).square().mean())


def forms(clean: Tensor) -> dict[str, Loss]:
    """Every form of the loss as a function of a batch of videos (B, C, T, H, W); the last three know the clean clips."""
    # clean: (B, C, T, H, W)
    calibrated, paper = SpectralMotionLoss(), SpectralMotionLoss(SpectralConfig.paper())
    full = SpectralMotionLoss(SpectralConfig.calibrated(gradient="full"))
    slices = SpectralMotionLoss(SpectralConfig.calibrated(pace_weight=0.0, coherence_weight=0.0))
    few = {"rings": 2, "angles": 8, "radii": 4, "scaling_harmonics": 1}  # polar slices that are not looked at, made cheap
    plane = SpectralMotionLoss(SpectralConfig.calibrated(pace_weight=0.0, coherence_weight=0.0, **few))
    pace = SpectralMotionLoss(SpectralConfig.calibrated(pace_weight=1.0, coherence_weight=0.0, **few))
    coherence = SpectralMotionLoss(SpectralConfig.calibrated(pace_weight=0.0, coherence_weight=1.0, **few))
    anchored = AnchoredMotionLoss()
    anchor = anchored.anchor(clean)
    energy = (clean - clean.mean(dim=2, keepdim=True)).square().mean(dim=(1, 2, 3, 4))
    with torch.no_grad():
        own = calibrated(clean, "none").loss
    return {
        "paper": lambda x: paper(x, "none").loss,
        "absolute": lambda x: calibrated(x, "none").loss,
        "absolute, full gradient": lambda x: full(x, "none").loss,
        "translation": lambda x: plane(x, "none").translation,
        "rotation": lambda x: slices(x, "none").rotation,
        "scaling": lambda x: slices(x, "none").scaling,
        "pace": lambda x: pace(x, "none").loss - plane(x, "none").loss,
        "coherence": lambda x: coherence(x, "none").loss - plane(x, "none").loss,
        "excess": lambda x: torch.relu(calibrated(x, "none").loss - own),
        "anchored": lambda x: anchored.measure(x - clean, anchor),
        "squared error": lambda x: (x - clean).square().mean(dim=(1, 2, 3, 4)) / energy,
    }


def gradient(loss: Loss, x: Tensor) -> Tensor:
    """Gradient (B, C, T, H, W) of each clip's own loss."""
    x = x.detach().clone().requires_grad_(True)
    return torch.autograd.grad(loss(x).sum(), x)[0]


def norm(x: Tensor) -> Tensor:
    """Norm of each clip, shaped to multiply the batch."""
    return x.flatten(1).norm(dim=1).view(-1, *[1] * (x.dim() - 1))


def descend(
    loss: Loss, start: Tensor, distance: Tensor, scale: Tensor, *, proximity: float = PROXIMITY, pixels: bool = True,
    steps: int = STEPS, rate: float = RATE,
) -> Tensor:  # fmt: skip
    """The batch (B, C, T, H, W) after ``steps`` of Adam.

    Args:
        start: pixels, or latents with ``pixels=False``: then nothing is clamped.
        distance: D of each clip; scale: G of each clip, both (B, 1, 1, 1, 1).
    """
    weight = 1 / torch.where(scale > 0, scale, torch.ones_like(scale)).flatten()
    pull = proximity / (2 * distance.flatten())
    x = start.detach().clone().requires_grad_(True)
    optimiser = torch.optim.Adam([x], lr=rate)
    for step in range(steps):
        optimiser.param_groups[0]["lr"] = rate * 0.5 * (1 + math.cos(math.pi * step / steps))
        optimiser.zero_grad()
        (loss(x) * weight + pull * (x - start).square().flatten(1).sum(dim=1)).sum().backward()
        optimiser.step()
        if pixels:
            with torch.no_grad():
                x.clamp_(0, 1)
    return x.detach()
