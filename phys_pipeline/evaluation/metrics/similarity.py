"""The SIM(2) suite: one similarity fitted to the flow of each pair of frames, and how evenly it goes on from pair to pair.

A rubber sheet is no similarity (residual), jitter changes it at every frame (jerk), a clip that stalls moves in few pairs (active
share), an oscillating one turns around (reversals). Needs no weights: with DIS flow the values are no stand-ins. One similarity
describes one thing that moves: before a moving camera or with several movers, compare clips of the same prompt only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import ClassVar, NamedTuple

import numpy as np

from phys_pipeline.evaluation.clip import DecodedClip, FramePair
from phys_pipeline.evaluation.flow import FlowMetric, opencv, squared_length
from phys_pipeline.evaluation.metric import MetricInfo, MetricResult, skipped

STILL = "nothing moves"
_LEAST_MOTION = 0.5 / 256  # of the longer side: slower pixels don't count as moving
_SHARE_OF_FASTEST = 0.3  # of the 99th percentile of the speeds
_LEAST_POINTS = 10  # moving pixels; a pair of frames with fewer counts as motionless
_MOST_POINTS = 2000
_INLIER = 1.0  # pixels; of 0.25, 0.5, 1 and 3 the best for the jerk on ten clips of the tuning part


class SimilarityFit(NamedTuple):
    """``motion`` (4,): x, y of the frame's centre, rotation and log scale times the frame's root mean square radius: all pixels.

    ``residual`` is the median distance of the moving pixels from the fit over their median displacement.
    """

    motion: np.ndarray
    residual: float


def fit_similarity(flow: np.ndarray, visible: np.ndarray) -> SimilarityFit | None:
    """RANSAC similarity of the visible moving pixels; None where under ten pixels move, or none fits.

    Moving is what is faster than 0.3 of the 99th percentile and than 1/512 of the longer side.

    Args:
        flow: (H, W, 2) in pixels.
        visible: boolean (H, W).
    """
    speed = np.sqrt(squared_length(flow))
    least = max(_LEAST_MOTION * max(visible.shape), _SHARE_OF_FASTEST * float(np.percentile(speed, 99)))
    return _fit(flow, np.flatnonzero(visible & (speed > least)))


def fit_whole_frame(flow: np.ndarray, visible: np.ndarray) -> SimilarityFit | None:
    """RANSAC similarity of all visible pixels, still ones too: what the camera does. Arguments as :func:`fit_similarity`."""
    return _fit(flow, np.flatnonzero(visible))


def _fit(flow: np.ndarray, chosen: np.ndarray) -> SimilarityFit | None:
    """RANSAC similarity of at most 2000 of the ``chosen`` pixels (numbers of the flattened frame)."""
    height, width = flow.shape[:2]
    chosen = chosen[:: max(1, math.ceil(len(chosen) / _MOST_POINTS))]
    if len(chosen) < _LEAST_POINTS:
        return None
    cv2 = opencv()
    rows, columns = np.divmod(chosen, width)
    source = np.stack([columns, rows], axis=1).astype(np.float32)
    shift = flow.reshape(-1, 2)[chosen]
    target = source + shift
    fit, _ = cv2.estimateAffinePartial2D(source, target, method=cv2.RANSAC, ransacReprojThreshold=_INLIER)
    if fit is None:
        return None
    matrix, offset = fit[:, :2], fit[:, 2]
    error = np.linalg.norm(source @ matrix.T + offset - target, axis=1)
    centre = np.array([(width - 1) / 2, (height - 1) / 2])
    radius = _radius(height, width)
    turn, scale = math.atan2(matrix[1, 0], matrix[0, 0]), math.hypot(matrix[0, 0], matrix[1, 0])
    motion = np.array([*(matrix @ centre + offset - centre), radius * turn, radius * math.log(max(scale, 1e-6))])
    displacement = float(np.median(np.sqrt(squared_length(shift))))
    return SimilarityFit(motion, float(np.median(error)) / displacement if displacement else 0.0)


def _radius(height: int, width: int) -> float:
    """Root mean square distance of a frame's pixels from its centre."""
    return math.sqrt((height**2 + width**2) / 12)


def similarity_flow(motion: np.ndarray, height: int, width: int) -> np.ndarray:
    """Flow (H, W, 2) of all pixels under a ``motion`` (4,) of :class:`SimilarityFit`, float32."""
    radius = _radius(height, width)
    angle, scale = motion[2] / radius, math.exp(motion[3] / radius)
    cosine, sine = scale * math.cos(angle), scale * math.sin(angle)
    x = np.arange(width, dtype=np.float32) - (width - 1) / 2
    y = np.arange(height, dtype=np.float32)[:, None] - (height - 1) / 2
    return np.stack([cosine * x - sine * y - x + motion[0], sine * x + cosine * y - y + motion[1]], axis=-1).astype(np.float32)


def motions(fits: Sequence[SimilarityFit | None]) -> np.ndarray:
    """Motion of every pair (P, 4), zeros where nothing moves."""
    return np.array([np.zeros(4) if fit is None else fit.motion for fit in fits]).reshape(-1, 4)


def mean_residual(fits: Sequence[SimilarityFit | None]) -> float | None:
    """Mean over the pairs that move; None where none does."""
    residuals = [fit.residual for fit in fits if fit is not None]
    return float(np.mean(residuals)) if residuals else None


def jerk(moved: np.ndarray) -> float | None:
    """Mean absolute change of the motion from pair to pair over its mean absolute size; None where nothing moves.

    ``moved`` (P, 4), P >= 2. Even motion has 0, independent random motion about sqrt(2).
    """
    size = float(np.abs(moved).mean()) if len(moved) else 0.0
    return float(np.abs(np.diff(moved, axis=0)).mean()) / size if size > 0 and len(moved) > 1 else None


def turning_points(moved: np.ndarray) -> tuple[int, list[int]]:
    """Number of the dominant of the four parameters, and the pairs in which its sign differs from the last pair that moves."""
    # moved: (P, 4)
    dominant = int(np.abs(moved).mean(axis=0).argmax())
    signs = [(index, float(np.sign(value))) for index, value in enumerate(moved[:, dominant]) if value]
    turned = [index for (_, before), (index, sign) in pairwise(signs) if sign != before]
    return dominant, turned


class TemporalEnergy:
    """Share of a clip's variance that lies in time: mean variance of a pixel over time over the variance of all pixels."""

    def __init__(self) -> None:
        self._count = 0
        self._sum: np.ndarray | float = 0.0  # (H, W, 3)
        self._squares = 0.0

    def add(self, frame: np.ndarray) -> None:
        # frame: uint8 (H, W, 3)
        pixels = frame.astype(np.float64) / 255
        self._count += 1
        self._sum = self._sum + pixels
        self._squares += float((pixels**2).sum())

    @property
    def share(self) -> float | None:
        """In [0, 1]; None for a clip of one colour."""
        mean = np.asarray(self._sum) / self._count  # (H, W, 3)
        of_time = self._squares / self._count / mean.size - float((mean**2).mean())
        of_space = float(mean.var(axis=(0, 1)).mean())
        total = max(of_time, 0.0) + of_space
        return max(of_time, 0.0) / total if total > 1e-12 else None


class SimilarityTrack:
    """The fits of one clip, shared by every metric that asks (:func:`similarity_track`, :func:`whole_frame_track`)."""

    def __init__(self, fit: Callable[[np.ndarray, np.ndarray], SimilarityFit | None]) -> None:
        self.fits: list[SimilarityFit | None] = []
        self._fit = fit

    def add(self, pair: FramePair) -> None:
        """Fit a pair, once."""
        if pair.index == len(self.fits):
            self.fits.append(self._fit(pair.forward, pair.visible))


def similarity_track(clip: DecodedClip) -> SimilarityTrack:
    """Fits of what moves."""
    return clip.shared("similarity track", partial(SimilarityTrack, fit_similarity))


def whole_frame_track(clip: DecodedClip) -> SimilarityTrack:
    """Fits of the whole frame."""
    return clip.shared("whole frame track", partial(SimilarityTrack, fit_whole_frame))


_info = partial(MetricInfo, groups=("noweights", "motion"), low=0.0, packages=("opencv-python-headless",))


class SimilaritySuite(FlowMetric):
    """The five numbers of the suite."""

    infos: ClassVar[tuple[MetricInfo, ...]] = (
        _info(
            "sim2_residual", "SIM(2) residual", "ratio", "down", decimals=3,
            about="Median distance of moving pixels from the best similarity over their median displacement.",
        ),
        _info(
            "sim2_jerk", "SIM(2) jerk", "ratio", "down", decimals=3, min_frames=3,
            about="Mean change of the similarity (x, y, rotation, log scale) from pair to pair over its mean size.",
        ),
        _info(
            "active_share", "Active share", "%", "up", decimals=1, high=100.0,
            about="Pairs of frames in which something moves.",
        ),
        _info(
            "reversals", "Reversals", "count", "down", decimals=1, min_frames=3,
            about="Sign changes of the dominant parameter of the motion.",
        ),
        _info(
            "temporal_energy", "Temporal energy", "share", "neutral", decimals=4, high=1.0,
            about="Variance of pixels over time over all variance of the clip: how much changes, broken or not.",
        ),
    )  # fmt: skip

    def start(self, clip: DecodedClip) -> _SimilarityState:
        return _SimilarityState(clip)


class _SimilarityState:
    def __init__(self, clip: DecodedClip) -> None:
        self._track = similarity_track(clip)
        self._energy = TemporalEnergy()
        self._backend = clip.estimator.name if clip.estimator else ""

    def add(self, pair: FramePair) -> None:
        self._track.add(pair)
        if pair.index == 0:
            self._energy.add(pair.first)
        self._energy.add(pair.second)

    def results(self) -> Mapping[str, MetricResult]:
        fits = self._track.fits
        moving = [fit is not None for fit in fits]
        found = {
            "active_share": self._result(100.0 * sum(moving) / len(fits), [float(moves) for moves in moving]),
            "temporal_energy": self._energy_result(),
        }
        residual = mean_residual(fits)
        if residual is None:
            return found | dict.fromkeys(("sim2_residual", "sim2_jerk", "reversals"), skipped(STILL))
        found["sim2_residual"] = self._result(residual, [None if fit is None else fit.residual for fit in fits])
        moved = motions(fits)
        if len(moved) < 2:
            return found | dict.fromkeys(("sim2_jerk", "reversals"), skipped("2 frames show no change of motion"))
        steps = np.abs(np.diff(moved, axis=0)).mean(axis=1) / np.abs(moved).mean()
        found["sim2_jerk"] = self._result(float(steps.mean()), [None, *steps.tolist()])
        dominant, turned = turning_points(moved)
        found["reversals"] = self._result(
            float(len(turned)),
            [float(index in turned) for index in range(len(fits))],
            {"dominant": ("x", "y", "rotation", "scale")[dominant]},
        )
        return found

    def _energy_result(self) -> MetricResult:
        share = self._energy.share
        return skipped("the clip has one colour") if share is None else MetricResult(share)

    def _result(
        self, value: float, series: list[float | None] | list[float], details: dict[str, str] | None = None
    ) -> MetricResult:
        return MetricResult(value, per_frame=series, details=details or {}, backend=self._backend)
