"""Clips of the evaluation's tests, and how to measure one with some metrics."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from phys_pipeline.evaluation import MetricResult, Settings, VideoSample
from phys_pipeline.evaluation.clip import DecodedClip
from phys_pipeline.evaluation.flow import flow_estimator
from phys_pipeline.media.synthetic import textured_clip

SIDE, FRAMES, FPS = 256, 16, 8.0
Coordinates = tuple[np.ndarray, np.ndarray]


def measure(frames: np.ndarray, *classes: Any, fps: float | None = FPS, settings: Settings | None = None, **sample: Any):
    """Results by key of metrics of either kind on uint8 (T, H, W, 3)."""
    settings = settings or Settings()
    made = VideoSample("x", "m", frames=frames, fps=fps, **sample)
    clip = DecodedClip(made, made.decode(), flow_estimator(settings))
    results: dict[str, MetricResult] = {}
    metrics = [kind(settings) for kind in classes]
    for metric in metrics:
        if not hasattr(metric, "start"):
            metric.setup()
            results |= metric.compute(clip)
            metric.close()
    states = [metric.start(clip) for metric in metrics if hasattr(metric, "start")]
    for pair in clip.pairs() if states else ():
        for state in states:
            state.add(pair)
    for state in states:
        results |= state.results()
    assert set(results) == {info.key for kind in classes for info in kind.infos}
    return results


def values(results: Mapping[str, MetricResult]) -> dict[str, float | None]:
    return {key: result.value for key, result in results.items()}


def texture(side: int = 64, frames: int = 8, **motion: Any) -> np.ndarray:
    """A texture that fills the frame and moves: uint8 (T, side, side, 3)."""
    video = textured_clip(frames, side, side, seed=3, **motion).video
    return (video.permute(1, 2, 3, 0).numpy() * 255).round().astype(np.uint8)


def _waves(x: np.ndarray, y: np.ndarray, seed: int, longest: float) -> np.ndarray:
    """A sum of 14 random plane waves (*x.shape, 3) of about unit variance, 6 pixels to ``longest`` long."""
    rng = np.random.default_rng(seed)
    total = np.zeros((*x.shape, 3), np.float32)
    for length in np.geomspace(6.0, longest, 14):
        angle, phases = rng.uniform(0, 2 * math.pi), rng.uniform(0, 2 * math.pi, 3)
        wave = 2 * math.pi / length * (math.cos(angle) * x + math.sin(angle) * y)
        total += np.sin(wave[..., None] + phases).astype(np.float32)
    return total / math.sqrt(7)


def scene(place: Callable[[int, np.ndarray, np.ndarray], Coordinates], half: float = 32.0, noise: float = 1.0) -> np.ndarray:
    """A textured square of 2 ``half`` pixels on a still textured ground, 16 frames of 256x256, with noise in grey levels.

    ``place`` gives frame, columns and rows as the square's own coordinates.
    """
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:SIDE, :SIDE].astype(np.float32)
    ground = 0.5 + 0.1 * _waves(x, y, 1, 256.0)
    frames = []
    for index in range(FRAMES):
        u, v = place(index, x, y)
        cover = np.clip(half + 0.5 - np.maximum(abs(u), abs(v)), 0, 1)[..., None]
        inside = cover[..., 0] > 0
        paint = np.zeros_like(ground)
        paint[inside] = 0.5 + 0.18 * _waves(u[inside], v[inside], 2, 64.0)
        picture = ground * (1 - cover) + paint * cover
        frames.append(picture * 255 + noise * rng.standard_normal(picture.shape))
    return np.clip(frames, 0, 255).round().astype(np.uint8)


def moving(path: Callable[[int], tuple[float, float]], turn: Callable[[int], float] = lambda index: 0.0):
    """``place`` of a square whose centre follows ``path`` and which is turned by ``turn`` radians."""

    def place(index: int, x: np.ndarray, y: np.ndarray) -> Coordinates:
        u, v, angle = x - path(index)[0], y - path(index)[1], turn(index)
        return math.cos(angle) * u + math.sin(angle) * v, math.cos(angle) * v - math.sin(angle) * u

    return place


def rubber(index: int, x: np.ndarray, y: np.ndarray) -> Coordinates:
    """``place`` of a square that moves by 8 px per frame and bends differently in every frame."""
    u, v = x - 60 - 8 * index, y - 128
    return u + 5 * np.sin(v / 14 + 1.9 * index), v + 5 * np.sin(u / 14 + 2.6 * index)


SHAKES = np.random.default_rng(5).normal(0, 5, (FRAMES, 2))
PLACES = {
    "moving": moving(lambda t: (60 + 8 * t, 128)),
    "frozen": moving(lambda t: (120, 128)),
    "slowed": moving(lambda t: (60 + 2 * t, 128)),
    "jitter": moving(lambda t: (60 + 8 * t + SHAKES[t, 0], 128 + SHAKES[t, 1])),
    "rubber": rubber,
    "rotating": moving(lambda t: (128, 128), lambda t: math.radians(4) * t),
    "reversing": moving(lambda t: (128, 128), lambda t: math.radians(4) * min(t, 15 - t)),
    "stalling": moving(lambda t: (60 + 32 * (t // 4), 128)),
}
