"""Follow the one coloured object of a clip of the synthetic world, and say what it does. No learned parts."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from phys_pipeline.media.synthetic import COLOURS

FOLD = {"square": 4, "bar": 2, "triangle": 3, "star": 5}  # a turn by 360 degrees / fold looks the same
_MINIMUM_PIXELS = 12


@dataclass(frozen=True)
class Track:
    """What was seen: fitted motion over the whole clip, and the object's colour.

    ``dx``, ``dy``: displacement in px; ``turn``: radians, clockwise positive; ``growth``: change of log size; ``area``: mean px;
    ``area_spread``: standard deviation over mean of the area, after its trend; ``straightness``: rms distance in px of the
    centroid from the fitted line; ``seen``: share of frames with an object.
    """

    dx: float
    dy: float
    turn: float
    growth: float
    area: float
    area_spread: float
    straightness: float
    seen: float
    colour: str


def _mask(video: torch.Tensor) -> np.ndarray:  # (3, T, H, W) in [0, 1]
    """Soft object mask (T, H, W): distance from the background, which is each pixel's median over the frame's border region."""
    frames = video.detach().float().numpy()
    border = np.concatenate([frames[..., :3, :].reshape(3, -1), frames[..., -3:, :].reshape(3, -1)], 1)
    background = np.median(border, 1)[:, None, None, None]
    distance = np.sqrt(((frames - background) ** 2).sum(0))
    return np.clip((distance - 0.22) / 0.16, 0, 1)


def _slope(values: np.ndarray) -> tuple[float, float]:  # (T,)
    """Fitted change from the first to the last frame, and the rms residual."""
    t = np.arange(len(values))
    line = np.polyfit(t, values, 1)
    return float(line[0] * (len(values) - 1)), float(np.sqrt(np.mean((values - np.polyval(line, t)) ** 2)))


def track(video: torch.Tensor, shape: str) -> Track | None:  # (3, T, H, W) in [0, 1]
    """Track a clip's object; ``shape`` says how its turning repeats. None when under three quarters of the frames show it."""
    mask = _mask(video)
    area = mask.sum((1, 2))
    seen = area >= _MINIMUM_PIXELS
    if seen.mean() < 0.75 or len(area) < 3:
        return None
    mask = mask[seen]
    area = area[seen]
    y, x = np.mgrid[: mask.shape[1], : mask.shape[2]].astype(np.float64)
    cx, cy = (mask * x).sum((1, 2)) / area, (mask * y).sum((1, 2)) / area
    dx, off_x = _slope(cx)
    dy, off_y = _slope(cy)
    growth, _ = _slope(0.5 * np.log(area))
    turn = 0.0
    if shape in FOLD:
        fold = FOLD[shape]
        relative = (x[None] - cx[:, None, None]) + 1j * (y[None] - cy[:, None, None])
        moment = (mask * np.abs(relative) ** 2 * np.exp(1j * fold * np.angle(relative))).sum((1, 2))
        turn, _ = _slope(np.unwrap(np.angle(moment)) / fold)
    trend = np.polyval(np.polyfit(np.arange(len(area)), area, 1), np.arange(len(area)))
    colour = _colour(video.detach().float().numpy()[:, seen], mask)
    return Track(
        dx, dy, turn, growth, float(area.mean()), float((area - trend).std() / area.mean()), math.hypot(off_x, off_y),
        float(seen.mean()), colour,
    )  # fmt: skip


def _colour(frames: np.ndarray, mask: np.ndarray) -> str:  # (3, T, H, W), (T, H, W)
    core = mask > 0.9
    core = core if core.any() else mask > 0.5
    mean = np.median(frames[:, core], axis=1)
    return min(COLOURS, key=lambda name: float(np.linalg.norm(mean - np.asarray(COLOURS[name]))))


def shows_motion(seen: Track, motion: str) -> bool:
    """Whether the track shows the motion asked for. Thresholds are under half of the slowest training clip's motion."""
    along = {"moves left": -seen.dx, "moves right": seen.dx, "moves up": -seen.dy, "moves down": seen.dy}
    if motion in along:
        across = abs(seen.dy) if motion in ("moves left", "moves right") else abs(seen.dx)
        return along[motion] > 6.0 and along[motion] > 2 * across
    if motion == "rotates clockwise":
        return seen.turn > 0.4
    if motion == "rotates counterclockwise":
        return seen.turn < -0.4
    if motion == "grows":
        return seen.growth > 0.2
    if motion == "shrinks":
        return seen.growth < -0.2
    return math.hypot(seen.dx, seen.dy) < 3.0 and abs(seen.growth) < 0.15 and abs(seen.turn) < 0.4
