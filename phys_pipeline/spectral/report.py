"""The motion report: losses, motion estimates and a timeline of one clip, as shown by the command line, the nodes and the app."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as functional
from torch import Tensor

from .composite import SpectralMotionLoss
from .config import SpectralConfig
from .estimate import SimilarityMotion, estimate_similarity

SCHEMA = "phys-pipeline/motion-report"
VERSION = 1
ANALYSIS_SIDE = 160  # pixels of the longer side: where the calibration was measured (docs/method.md)
ANALYSIS_FPS = 12.0  # frames per second: the same
_STATIC_PERCENT = 1.0  # % of the width per second: slower motion is called static
_STATIC_DYNAMIC_DEGREE = 0.1  # below it, motion that no similarity explains (water, signing hands) does not make a clip moving
_COMPONENTS = ("translation", "rotation", "scaling")


@dataclass(frozen=True)
class WindowReport:
    """One window: seconds, losses, dynamic degree and motion per second (percent of the width, degrees, percent)."""

    start_s: float
    end_s: float
    composite: float
    translation: float
    rotation: float
    scaling: float
    dynamic_degree: float
    velocity_percent_per_s: tuple[float, float]
    rotation_deg_per_s: float
    zoom_percent_per_s: float
    confidence: float


@dataclass(frozen=True)
class MotionReport:
    """Scores of one clip. Losses lie in [0, 1], 0 is coherent motion; velocity in pixels of the original clip per second."""

    preset: str
    source: str
    frames: int
    fps: float
    width: int
    height: int
    loss: dict[str, float]
    weights: dict[str, float]
    velocity_px_per_s: tuple[float, float]
    rotation_deg_per_s: float
    zoom_percent_per_s: float
    confidence: float
    dominant: str
    dynamic_degree: float
    is_static: bool
    timeline: tuple[WindowReport, ...]

    def to_dict(self) -> dict[str, Any]:
        """The JSON form (schema "phys-pipeline/motion-report", version 1)."""
        x, y = self.velocity_px_per_s
        return {
            "schema": SCHEMA,
            "version": VERSION,
            "preset": self.preset,
            "source": self.source,
            "frames": self.frames,
            "fps": self.fps,
            "width": self.width,
            "height": self.height,
            "duration_s": self.frames / self.fps,
            "loss": dict(self.loss),
            "weights": dict(self.weights),
            "velocity": {
                "x_px_per_s": x,
                "y_px_per_s": y,
                "x_percent_per_s": 100 * x / self.width,
                "y_percent_per_s": 100 * y / self.width,
            },
            "rotation_deg_per_s": self.rotation_deg_per_s,
            "zoom_percent_per_s": self.zoom_percent_per_s,
            "confidence": self.confidence,
            "dominant": self.dominant,
            "dynamic_degree": self.dynamic_degree,
            "is_static": self.is_static,
            "timeline": [
                {
                    "start_s": window.start_s,
                    "end_s": window.end_s,
                    "composite": window.composite,
                    "translation": window.translation,
                    "rotation": window.rotation,
                    "scaling": window.scaling,
                    "dynamic_degree": window.dynamic_degree,
                    "velocity": {
                        "x_percent_per_s": window.velocity_percent_per_s[0],
                        "y_percent_per_s": window.velocity_percent_per_s[1],
                    },
                    "rotation_deg_per_s": window.rotation_deg_per_s,
                    "zoom_percent_per_s": window.zoom_percent_per_s,
                    "confidence": window.confidence,
                }
                for window in self.timeline
            ],
        }


def analysis_size(height: int, width: int) -> tuple[int, int]:
    """Size (height, width) at which a clip is scored: the longer side at most ``ANALYSIS_SIDE`` pixels, never enlarged."""
    factor = min(1.0, ANALYSIS_SIDE / max(height, width))
    return max(1, round(height * factor)), max(1, round(width * factor))


@torch.no_grad()
def analyze(
    video: Tensor,
    fps: float,
    *,
    config: SpectralConfig | None = None,
    source: str = "",
    original_size: tuple[int, int] | None = None,
) -> MotionReport:
    """Score one clip and estimate its motion.

    Args:
        video: (C, T, H, W) or (1, C, T, H, W), floating point, pixels in [0, 1].
        fps: frames per second of ``video``.
        original_size: (height, width) of the clip when ``video`` has been reduced before; pixel velocities refer to it.

    The clip is reduced to ``ANALYSIS_SIDE`` pixels and thinned to about ``ANALYSIS_FPS`` by keeping every n-th frame, so that
    scores of clips of different size and rate compare.

    Raises ``ValueError`` for a wrong shape, a non-positive fps, NaN or integer pixels.
    """
    # video: (C, T, H, W) or (1, C, T, H, W)
    if video.dim() == 5 and video.shape[0] == 1:
        video = video[0]
    if video.dim() != 4 or 0 in video.shape:
        raise ValueError(f"expected one clip of shape (C, T, H, W) with no empty axis, got {tuple(video.shape)}")
    if not (math.isfinite(fps) and fps > 0):
        raise ValueError(f"fps must be a positive number, not {fps}")
    if not video.is_floating_point():
        raise ValueError(f"expected floating-point pixels in [0, 1], got {video.dtype}: divide by 255")
    config = config if config is not None else SpectralConfig.calibrated()
    _, total_frames, height, width = video.shape
    step = max(1, min(round(fps / ANALYSIS_FPS), total_frames // config.window))  # a short clip keeps a window of frames
    small = _reduce(video[:, ::step].float())  # (C, T', h, w)
    rate = fps / step
    output = SpectralMotionLoss(config)(small[None], reduction="none")
    starts = output.windows["start"].tolist()
    length = min(config.window, small.shape[1])
    motions = [estimate_similarity(small[:, start : start + length]) for start in starts]

    still = bool(output.diagnostics["is_static"][0])
    timeline = _timeline(output.windows, motions, starts, length, rate, step, fps, total_frames, small.shape[3])
    trust = torch.tensor([window.confidence + 1e-6 for window in timeline], dtype=torch.float64)
    trust = trust / trust.sum()

    def mean(values: list[float]) -> float:
        return float((trust * torch.tensor(values, dtype=torch.float64)).sum())

    original_height, original_width = original_size if original_size is not None else (height, width)
    velocity = tuple(mean([window.velocity_percent_per_s[axis] for window in timeline]) for axis in (0, 1))
    rotation = mean([window.rotation_deg_per_s for window in timeline])
    zoom = mean([window.zoom_percent_per_s for window in timeline])
    radius = 100 / small.shape[3] * mean([float(motion.radius) for motion in motions])
    speeds = {
        "translation": math.hypot(*velocity),
        "rotation": abs(math.radians(rotation)) * radius,
        "scaling": abs(zoom) / 100 * radius,
    }
    dominant = max(speeds, key=lambda name: speeds[name])
    confidence = 0.0 if still else mean([window.confidence for window in timeline])
    dynamic_degree = float(output.diagnostics["dynamic_degree"][0])
    unexplained = dynamic_degree < _STATIC_DYNAMIC_DEGREE and confidence * speeds[dominant] < _STATIC_PERCENT
    if still or unexplained or speeds[dominant] < _STATIC_PERCENT:
        dominant = "static"
    return MotionReport(
        preset=config.preset,
        source=source,
        frames=total_frames,
        fps=float(fps),
        width=original_width,
        height=original_height,
        loss={
            "composite": float(output.loss[0]),
            "translation": float(output.translation[0]),
            "rotation": float(output.rotation[0]),
            "scaling": float(output.scaling[0]),
        },
        weights=dict(zip(_COMPONENTS, output.weights[0].tolist(), strict=True)),
        velocity_px_per_s=(velocity[0] * original_width / 100, velocity[1] * original_width / 100),
        rotation_deg_per_s=rotation,
        zoom_percent_per_s=zoom,
        confidence=confidence,
        dominant=dominant,
        dynamic_degree=dynamic_degree,
        is_static=still,
        timeline=tuple(timeline),
    )


def _reduce(video: Tensor) -> Tensor:
    """Area-filtered reduction of (C, T, H, W) to :func:`analysis_size`."""
    # video: (C, T, H, W)
    size = analysis_size(*video.shape[2:])
    if size == tuple(video.shape[2:]):
        return video
    return functional.interpolate(video.transpose(0, 1), size=size, mode="bilinear", antialias=True).transpose(0, 1)


def _timeline(
    windows: dict[str, Tensor],
    motions: list[SimilarityMotion],
    starts: list[int],
    length: int,
    rate: float,
    step: int,
    fps: float,
    total_frames: int,
    width: int,
) -> list[WindowReport]:
    """One report per window, in seconds of the original clip; ``width`` is the analysed width in pixels."""
    rows = []
    for index, (start, motion) in enumerate(zip(starts, motions, strict=True)):
        translation, rotation, scaling = windows["losses"][0, index].tolist()
        rows.append(
            WindowReport(
                start_s=start * step / fps,
                end_s=min((start + length) * step, total_frames) / fps,
                composite=float(windows["composite"][0, index]),
                translation=translation,
                rotation=rotation,
                scaling=scaling,
                dynamic_degree=float(windows["dynamic_degree"][0, index]),
                velocity_percent_per_s=(
                    float(motion.velocity[0]) * rate * 100 / width,
                    float(motion.velocity[1]) * rate * 100 / width,
                ),
                rotation_deg_per_s=math.degrees(float(motion.rotation)) * rate,
                zoom_percent_per_s=float(motion.zoom) * rate * 100,
                confidence=float(motion.confidence),
            )
        )
    return rows
