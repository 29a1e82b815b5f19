"""Bodies with two tones, and the poses that move them: drawn analytically, so that sub-pixel motion is exact.

Coordinates are pixels of the picture, x right, y down; angles in radians, clockwise on screen; sizes are logarithms.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional

from phys_pipeline.media.synthetic import COLOURS, SHAPES, signed_distance

ASYMMETRIC = ("arrow", "hook")
BODY_SHAPES: tuple[str, ...] = (*SHAPES, *ASYMMETRIC)
WIDEST = 1.35  # radii: no body reaches further from its centre
_LIGHTER = 0.55  # share of white in the lighter half; a white body's other half is grey instead
_GREY = 0.5

Pose = np.ndarray  # (T, 4): x, y in px, angle in radians, log size


@dataclass(frozen=True)
class Body:
    """A shape of ``radius`` px in one colour, its left half lighter so that every turn shows; or a square photograph."""

    shape: str
    colour: str
    radius: float
    two_tone: bool = True
    picture: np.ndarray | None = None  # (3, S, S) in [0, 1]; then ``shape`` and ``colour`` are not used


def steady(frames: int, middle: tuple[float, float], angle: float = 0.0, *, velocity: tuple[float, float] = (0.0, 0.0),
           rotation: float = 0.0, zoom: float = 0.0) -> Pose:  # fmt: skip
    """Poses at constant speed per frame; ``middle`` (x, y) and ``angle`` hold half way, so a clip and its reverse are alike."""
    t = np.arange(frames) - (frames - 1) / 2
    return np.stack([middle[0] + velocity[0] * t, middle[1] + velocity[1] * t, angle + rotation * t, zoom * t], 1)


def body_coordinates(pose: Pose, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """``x``, ``y`` (T or 1, H, W) in the moving body's own axes, in its unscaled size, and its size (T, 1, 1)."""
    left, top, angle, log_size = (pose[:, k, None, None].astype(np.float32) for k in range(4))
    size = np.exp(log_size)
    x, y = x - left, y - top
    cosine, sine = np.cos(angle) / size, np.sin(angle) / size
    return cosine * x + sine * y, cosine * y - sine * x, size


def _distance(shape: str, x: np.ndarray, y: np.ndarray, radius: float) -> np.ndarray:
    """Pixels to the outline, negative inside."""
    if shape in SHAPES:
        return signed_distance(shape, x, y, radius)
    if shape == "hook":  # an L
        upright = np.maximum(np.abs(x + np.float32(0.5 * radius)) - np.float32(0.33 * radius), np.abs(y) - np.float32(radius))
        foot = np.maximum(
            np.abs(x) - np.float32(0.83 * radius), np.abs(y - np.float32(0.67 * radius)) - np.float32(0.33 * radius)
        )
        return np.minimum(upright, foot)
    shaft = np.maximum(np.abs(x + np.float32(0.5 * radius)) - np.float32(0.7 * radius), np.abs(y) - np.float32(0.32 * radius))
    head = np.maximum(np.float32(0.15 * radius) - x, np.float32(0.7071) * (np.abs(y) + x - np.float32(1.2 * radius)))
    return np.minimum(shaft, head)


def sample_picture(picture: np.ndarray, x: np.ndarray, y: np.ndarray, reach: float) -> np.ndarray:
    """Bilinear (3, T, H, W) of ``picture`` (3, S, S), which spans -``reach`` to ``reach``; mirrored beyond."""
    grid = torch.from_numpy(np.stack([x, y], -1).astype(np.float32) / np.float32(reach))  # (T, H, W, 2)
    source = torch.from_numpy(picture)[None].expand(len(grid), -1, -1, -1)
    found = functional.grid_sample(source, grid, mode="bilinear", padding_mode="reflection", align_corners=False)
    return found.transpose(0, 1).numpy()


def tones(colour: str) -> tuple[np.ndarray, np.ndarray]:
    """The colour itself and its lighter form (3,); white has grey."""
    base = np.asarray(COLOURS[colour], np.float32)
    lighter = base * (1 - _LIGHTER) + _LIGHTER if colour != "white" else np.full(3, _GREY, np.float32)
    return base, lighter.astype(np.float32)


def paint_body(video: np.ndarray, body: Body, pose: Pose, x: np.ndarray, y: np.ndarray) -> None:
    """Draw ``body`` over ``video`` (3, T, H, W) in place; ``x``, ``y`` (T or 1, H, W) are the scene's coordinates."""
    own_x, own_y, size = body_coordinates(pose, x, y)
    shape = body.shape if body.picture is None else "square"
    cover = np.clip(np.float32(0.5) - _distance(shape, own_x, own_y, body.radius) * size, 0, 1)[None]
    if body.picture is not None:
        paint = sample_picture(body.picture, own_x, own_y, 0.85 * body.radius)  # a square's half side
    else:
        base, lighter = (tone[:, None, None, None] for tone in tones(body.colour))
        half = np.clip(np.float32(0.5) - own_x * size, 0, 1)[None] if body.two_tone else np.float32(0)
        paint = base * (1 - half) + lighter * half
    video += cover * (paint - video)
