"""Motion estimates in latents against known motion, and how both estimate and loss depend on speed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from benchmarks.latents_clips import (
    SPACE_STRIDE,
    TIME_STRIDE,
    Encoder,
    LinearCompression,
    compress,
    long_clip,
    panned_texture,
    to_unit,
)
from benchmarks.latents_conditions import Condition
from benchmarks.latents_scores import losses
from benchmarks.timing import median_interval
from phys_pipeline.media import corrupt
from phys_pipeline.media.synthetic import MotionTruth
from phys_pipeline.spectral.estimate import estimate_similarity

SPEEDS = (0.3, 0.6, 1.1, 1.7, 2.3, 3.1, 4.3, 6.1, 8.7, 12.1)  # px a frame; none moves by whole cells, where latents are exact
KINDS = ("translation", "rotation", "zoom")


@dataclass(frozen=True)
class View:
    """A way to look at a clip: ``space`` "pixels" or a stand-in, pixels per sample and pictures per step."""

    label: str
    space: str
    cell: int = 1
    step: int = 1
    drop_first: bool = False


VIEWS = (
    View("pixels, every frame", "pixels"),
    View("pixels, every 4th frame", "pixels", step=TIME_STRIDE),
    View("latents, every frame", "every", SPACE_STRIDE),
    View("latents / 4 (linear)", "linear", SPACE_STRIDE, TIME_STRIDE),
    View("latents / 4 (linear), frame 0 dropped", "linear", SPACE_STRIDE, TIME_STRIDE, drop_first=True),
    View("latents / 4 (mean), frame 0 dropped", "mean", SPACE_STRIDE, TIME_STRIDE, drop_first=True),
    View("latents / 4 (every 4th)", "fourth", SPACE_STRIDE, TIME_STRIDE),
)


def seen_through(view: View, video: Tensor, latents: Tensor, linear: LinearCompression) -> Tensor:
    """(C, T', h, w) of one clip: ``video`` (3, T, H, W), its frame-wise ``latents`` (C, T, h, w)."""
    # video: (3, T, H, W); latents: (C, T, h, w)
    if view.space == "pixels":
        return video[:, :: view.step]
    compressed = compress(latents[None], view.space, linear)[0]
    return compressed[:, 1:] if view.drop_first else compressed


def estimated(view: View, frames: Tensor) -> np.ndarray:
    """Velocity x, y in pixels, rotation and zoom, all per picture, estimated from (C, T', h, w)."""
    motion = estimate_similarity(frames)
    x, y = motion.velocity.tolist()
    values = np.array([x * view.cell, y * view.cell, float(motion.rotation), float(motion.zoom)])
    return values / view.step


def truth_of(motion: MotionTruth) -> np.ndarray:
    return np.array([motion.velocity_x, motion.velocity_y, motion.rotation, motion.zoom])


@dataclass(frozen=True)
class EstimateRow:
    """Errors of one view on the clips of one kind of motion."""

    view: str
    kind: str
    clips: int
    median: float
    interval: tuple[float, float]
    correlation: float
    signs: int


def summarise(view: str, kind: str, found: np.ndarray, wanted: np.ndarray) -> EstimateRow:
    """Compare estimates with truths, both (clips, 4), in the parameters that the kind of motion has."""
    columns = {"translation": [0, 1], "rotation": [2], "zoom": [3]}[kind]
    found, wanted = found[:, columns], wanted[:, columns]
    errors = np.linalg.norm(found - wanted, axis=1) / np.linalg.norm(wanted, axis=1)
    correlation = float(np.corrcoef(found.ravel(), wanted.ravel())[0, 1]) if found.std() > 0 else 0.0
    signs = int(((found * wanted).sum(axis=1) > 0).sum())
    middle, low, high = median_interval(errors)
    return EstimateRow(view, kind, len(errors), middle, (low, high), correlation, signs)


def estimates(seeds: Sequence[int], encoder: Encoder, linear: LinearCompression) -> list[EstimateRow]:
    """Every view on the clips of pure motion among the seeds."""
    found: dict[tuple[str, str], list[tuple[np.ndarray, np.ndarray]]] = {}
    for seed in seeds:
        clip, truth, kind = long_clip(seed)
        if kind not in KINDS:
            continue
        latents = encoder([clip.pixels])[0]
        for view in VIEWS:
            frames = seen_through(view, to_unit(clip.pixels), latents, linear)
            found.setdefault((view.label, kind), []).append((estimated(view, frames), truth_of(truth)))
    return [
        summarise(view.label, kind, np.array([pair[0] for pair in pairs]), np.array([pair[1] for pair in pairs]))
        for view in VIEWS
        for kind in KINDS
        if (pairs := found.get((view.label, kind)))
    ]


@dataclass(frozen=True)
class SpeedRow:
    """Pans at one speed (px a picture) through one view: median relative error of the velocity, median loss, and how many of
    the clips score lower than their jittered copies."""

    speed: float
    view: str
    clips: int
    error: float
    loss: float
    right: int


def speed_curve(
    speeds: Sequence[float],
    seeds: Sequence[int],
    conditions: dict[str, Condition | None],
    encoder: Encoder,
    linear: LinearCompression,
) -> list[SpeedRow]:
    """Textures that pan, and copies of them with jitter of half strength. ``conditions`` gives the views by label and
    the loss of each; None: estimates only, loss NaN."""
    rows = []
    views = [view for view in VIEWS if view.label in conditions]
    for speed in speeds:
        errors: dict[str, list[float]] = {view.label: [] for view in views}
        scores: dict[str, list[list[float]]] = {view.label: [] for view in views}
        for seed in seeds:
            video, truth = panned_texture(speed, seed)
            copies = [video, corrupt(video, "jitter", 0.5, seed=seed)]
            latents = encoder([_to_bytes(copy) for copy in copies])
            for view in views:
                seen = torch.stack([seen_through(view, copy, code, linear) for copy, code in zip(copies, latents, strict=True)])
                error = estimated(view, seen[0])[:2] - truth_of(truth)[:2]
                errors[view.label].append(float(np.linalg.norm(error)) / speed)
                condition = conditions[view.label]
                scores[view.label].append(losses(seen, condition) if condition else [math.nan, math.nan])
        for view in views:
            clean = [pair[0] for pair in scores[view.label]]
            right = sum(pair[1] > pair[0] for pair in scores[view.label])
            rows.append(
                SpeedRow(speed, view.label, len(seeds), float(np.median(errors[view.label])), float(np.median(clean)), right)
            )
    return rows


def fastest(rows: Sequence[SpeedRow], view: str, good: Callable[[SpeedRow], bool]) -> float | None:
    """The highest speed up to which every speed of a view is good; None if the lowest isn't."""
    last = None
    for row in sorted((row for row in rows if row.view == view), key=lambda row: row.speed):
        if not good(row):
            break
        last = row.speed
    return last


def _to_bytes(video: Tensor) -> np.ndarray:
    # video: (3, T, H, W)
    return (video.permute(1, 2, 3, 0) * 255).round().byte().numpy()
