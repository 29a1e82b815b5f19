"""The motion report: losses, motion estimates and a timeline of one clip, as shown by the command line, the nodes and the app."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as functional
from torch import Tensor

from .composite import SpectralMotionLoss
from .config import SpectralConfig
from .estimate import SimilarityMotion, estimate_similarity
from .lattice import window_starts
from .threads import one_torch_thread

SCHEMA = "phys-pipeline/motion-report"
VERSION = 1
ANALYSIS_SIDE = 160  # pixels of the longer side: where the calibration was measured (docs/method.md)
ANALYSIS_FPS = 12.0  # frames per second: the same
_STATIC_PERCENT = 1.0  # % of the width per second: slower motion is called static
_STATIC_DYNAMIC_DEGREE = 0.1  # below it, motion that no similarity explains (water, signing hands) does not make a clip moving
_COMPONENTS = ("translation", "rotation", "scaling")
_TERMS = ("pace", "coherence")
_BATCH = 2  # windows scored at once: one alone takes nearly twice as long, more gain little and come late
_CHUNK = 32  # frames of a whole clip reduced at once


@dataclass(frozen=True)
class WindowReport:
    """One window: seconds, losses, dynamic degree and motion per second (percent of the width, degrees, percent).

    ``pace`` and ``coherence`` are the unweighted terms of the composite, 0 where the preset leaves them out.
    """

    start_s: float
    end_s: float
    composite: float
    translation: float
    rotation: float
    scaling: float
    pace: float
    coherence: float
    dynamic_degree: float
    velocity_percent_per_s: tuple[float, float]
    rotation_deg_per_s: float
    zoom_percent_per_s: float
    confidence: float


@dataclass(frozen=True)
class MotionReport:
    """Scores of one clip; velocity in pixels of the original clip per second.

    ``loss`` has "composite", the slices "translation" (about 1 at most), "rotation" and "scaling" (both in [0, 1]), and the
    unweighted terms "pace" and "coherence" of the composite, 0 where the preset leaves them out. 0 is coherent motion.
    """

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
        """The JSON form (schema "phys-pipeline/motion-report", version 1).

        Keys are only ever added within a version; "pace" and "coherence" of ``loss`` and of each window came later.
        """
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
                    "pace": window.pace,
                    "coherence": window.coherence,
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


class _Window(NamedTuple):
    """What the report needs of a scored window besides its entry in the timeline."""

    report: WindowReport
    weights: list[float]  # of the three slices
    radius_percent: float  # of the moving region, in percent of the width
    still: bool


class MotionAnalyser:
    """Scores a clip whose frames arrive one after another; only the frames of the few windows being filled are kept.

    Args:
        frames: frames of the whole clip, known beforehand.
        fps: frames per second of the clip.
        size: (height, width) of the clip; pixel velocities refer to it.

    Every :attr:`step`-th frame is analysed, about ``ANALYSIS_FPS`` a second: give those, and only those, to :meth:`push`. Each
    window is standardised by itself. Losses don't depend on brightness and contrast, so this equals the loss of the whole clip
    but for rounding; a window counts as still where its motion is under 1e-6 of its own contrast.
    """

    def __init__(
        self, frames: int, fps: float, size: tuple[int, int], *, config: SpectralConfig | None = None, source: str = ""
    ) -> None:
        if frames < 1:
            raise ValueError(f"a clip needs at least one frame, not {frames}")
        if not (math.isfinite(fps) and fps > 0):
            raise ValueError(f"fps must be a positive number, not {fps}")
        self._config = config if config is not None else SpectralConfig.calibrated()
        self._loss = SpectralMotionLoss(self._config)
        self._frames, self._fps, self._size, self._source = frames, fps, size, source
        self.step = max(1, min(round(fps / ANALYSIS_FPS), frames // self._config.window))  # a short clip keeps a window of frames
        self._expected = -(-frames // self.step)
        self._length = min(self._config.window, self._expected)
        self._starts = window_starts(self._expected, self._config.window, self._config.stride)
        self._held: Tensor | None = None  # (C, n, h, w), frames from self._first on
        self._first = 0
        self._windows: list[_Window] = []

    def push(self, frames: Tensor) -> None:
        """Take the next analysed frames (C, n, H, W), floating point in [0, 1], of any n; windows are scored in pairs.

        Raises ``ValueError`` for NaN, integer pixels, another size or channel count than before, or more frames than announced.
        """
        # frames: (C, n, H, W)
        if frames.dim() != 4 or 0 in frames.shape:
            raise ValueError(f"expected frames of shape (C, n, H, W) with no empty axis, got {tuple(frames.shape)}")
        if not frames.is_floating_point():
            raise ValueError(f"expected floating-point pixels in [0, 1], got {frames.dtype}: divide by 255")
        small = _reduce(frames.detach().float())
        held = small.clone() if self._held is None else torch.cat([self._held, small], dim=1)
        end = self._first + held.shape[1]
        if end > self._expected:
            raise ValueError(f"{end} frames were given, but {self._expected} announced ({self._frames} with step {self.step})")
        self._held = held
        done = len(self._windows)
        full = sum(start + self._length <= end for start in self._starts[done:])
        if full >= _BATCH:
            self._score_next(full - full % _BATCH)

    def _score_next(self, count: int) -> None:
        """Score the next ``count`` windows, whose frames are held, and let go of what no other needs."""
        assert self._held is not None
        done = len(self._windows)
        places = [start - self._first for start in self._starts[done : done + count]]
        for index in range(0, count, _BATCH):
            self._score(torch.stack([self._held[:, start : start + self._length] for start in places[index : index + _BATCH]]))
        done += count
        following = self._starts[done] if done < len(self._starts) else self._first + self._held.shape[1]
        self._held = self._held[:, following - self._first :].clone()  # a view would keep what is done with
        self._first = following

    @torch.no_grad()
    def _score(self, clips: Tensor) -> None:
        """Losses and motion of full windows (N, C, T, h, w)."""
        with one_torch_thread():  # decoding has the other cores
            motions = [estimate_similarity(clip) for clip in clips]
            output = self._loss(clips, reduction="none")
        values = {
            name: output.windows[name][:, 0].tolist() for name in ("losses", "weights", "composite", "dynamic_degree", *_TERMS)
        }
        energies = output.windows["motion_energy"][:, 0].tolist()
        for index, motion in enumerate(motions):
            report = self._window_report(motion, clips.shape[4], {name: value[index] for name, value in values.items()})
            radius = 100 * float(motion.radius) / clips.shape[4]
            self._windows.append(_Window(report, values["weights"][index], radius, energies[index] == 0))

    def _window_report(self, motion: SimilarityMotion, width: int, values: dict[str, Any]) -> WindowReport:
        """The next window in seconds of the original clip; ``width`` is the analysed width in pixels."""
        start, rate = self._starts[len(self._windows)], self._fps / self.step
        translation, rotation, scaling = values["losses"]
        x, y = motion.velocity.tolist()
        return WindowReport(
            start_s=start * self.step / self._fps,
            end_s=min((start + self._length) * self.step, self._frames) / self._fps,
            composite=values["composite"],
            translation=translation,
            rotation=rotation,
            scaling=scaling,
            pace=values["pace"],
            coherence=values["coherence"],
            dynamic_degree=values["dynamic_degree"],
            velocity_percent_per_s=(x * rate * 100 / width, y * rate * 100 / width),
            rotation_deg_per_s=math.degrees(float(motion.rotation)) * rate,
            zoom_percent_per_s=float(motion.zoom) * rate * 100,
            confidence=float(motion.confidence),
        )

    def finish(self) -> MotionReport:
        """The report of the clip.

        Raises ``ValueError`` if fewer frames were given than announced.
        """
        given = self._first + (self._held.shape[1] if self._held is not None else 0)
        if given < self._expected:
            raise ValueError(f"{given} frames were given, but {self._expected} announced ({self._frames} with step {self.step})")
        if len(self._windows) < len(self._starts):
            self._score_next(len(self._starts) - len(self._windows))
        timeline = [window.report for window in self._windows]
        trust = [entry.confidence + 1e-6 for entry in timeline]
        total = sum(trust)

        def trusted(values: list[float]) -> float:
            """Mean over the windows, weighted by their confidence."""
            return sum(weight * value for weight, value in zip(trust, values, strict=True)) / total

        def mean(values: list[float]) -> float:
            return sum(values) / len(values)

        height, width = self._size
        still = all(window.still for window in self._windows)
        velocity = tuple(trusted([entry.velocity_percent_per_s[axis] for entry in timeline]) for axis in (0, 1))
        rotation = trusted([entry.rotation_deg_per_s for entry in timeline])
        zoom = trusted([entry.zoom_percent_per_s for entry in timeline])
        radius = trusted([window.radius_percent for window in self._windows])
        speeds = {
            "translation": math.hypot(*velocity),
            "rotation": abs(math.radians(rotation)) * radius,
            "scaling": abs(zoom) / 100 * radius,
        }
        dominant = max(speeds, key=lambda name: speeds[name])
        confidence = 0.0 if still else trusted([entry.confidence for entry in timeline])
        dynamic_degree = mean([entry.dynamic_degree for entry in timeline])
        unexplained = dynamic_degree < _STATIC_DYNAMIC_DEGREE and confidence * speeds[dominant] < _STATIC_PERCENT
        if still or unexplained or speeds[dominant] < _STATIC_PERCENT:
            dominant = "static"
        return MotionReport(
            preset=self._config.preset,
            source=self._source,
            frames=self._frames,
            fps=float(self._fps),
            width=width,
            height=height,
            loss={name: mean([getattr(entry, name) for entry in timeline]) for name in ("composite", *_COMPONENTS, *_TERMS)},
            weights={name: mean([window.weights[i] for window in self._windows]) for i, name in enumerate(_COMPONENTS)},
            velocity_px_per_s=(velocity[0] * width / 100, velocity[1] * width / 100),
            rotation_deg_per_s=rotation,
            zoom_percent_per_s=zoom,
            confidence=confidence,
            dominant=dominant,
            dynamic_degree=dynamic_degree,
            is_static=still,
            timeline=tuple(timeline),
        )


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
    scores of clips of different size and rate compare. :class:`MotionAnalyser` does the same for frames that arrive one by one.

    Raises ``ValueError`` for a wrong shape, a non-positive fps, NaN or integer pixels.
    """
    # video: (C, T, H, W) or (1, C, T, H, W)
    if video.dim() == 5 and video.shape[0] == 1:
        video = video[0]
    if video.dim() != 4 or 0 in video.shape:
        raise ValueError(f"expected one clip of shape (C, T, H, W) with no empty axis, got {tuple(video.shape)}")
    _, frames, height, width = video.shape
    analyser = MotionAnalyser(frames, fps, original_size or (height, width), config=config, source=source)
    for some in video[:, :: analyser.step].split(_CHUNK, dim=1):
        analyser.push(some)
    return analyser.finish()


def _reduce(video: Tensor) -> Tensor:
    """Area-filtered reduction of (C, T, H, W) to :func:`analysis_size`."""
    # video: (C, T, H, W)
    size = analysis_size(*video.shape[2:])
    if size == tuple(video.shape[2:]):
        return video
    return functional.interpolate(video.transpose(0, 1), size=size, mode="bilinear", antialias=True).transpose(0, 1)
