"""Warping error and amount of motion from optical flow: EvalCrafter's and VBench's definitions, and scale-free ones.

`fixed`: all on pairs reduced to a shorter side of 256 pixels (:func:`phys_pipeline.evaluation.flow.working_size`); flow_score is
given in pixels of the clip. `evalcrafter`: flow_score and motion_accuracy from flow at the clip's own size; warping_error at half
of it, squared error summed over channels, pixels at motion boundaries dropped (Lai et al. 2018). One quirk is left out:
EvalCrafter feeds RAFT pixels in [0, 1] where it expects [0, 255], which makes its flow nearly zero. Here RAFT gets what it
expects.

These metrics were defined with RAFT; with DIS their values are stand-ins.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

import numpy as np

from phys_pipeline.evaluation.clip import DecodedClip, FramePair
from phys_pipeline.evaluation.flow import RAFT, FlowEstimator, FlowMetric, is_standin, is_visible, squared_length, warp_back
from phys_pipeline.evaluation.metric import MetricInfo, MetricResult, skipped
from phys_pipeline.evaluation.metrics.similarity import STILL
from phys_pipeline.media.scaling import scaled_while_reading

NO_RATE = "the frame rate is unknown: give the sample's fps"
LARGE_PIXELS = 5.0  # px per frame: EvalCrafter's threshold between "slow" and "large"
LARGE_PERCENT_PER_S = 100 * LARGE_PIXELS / 256 * 8  # of the shorter side: the same at 256 px and 8 frames per second
_DYNAMIC_RATE = 8.0  # VBench looks at about eight frames per second
_DYNAMIC_PIXELS = 6.0 / 256  # of the shorter side
_DYNAMIC_PAIRS = 4 / 16  # so many pairs per sampled frame must be dynamic
_FASTEST = 0.05  # share of pixels whose speed counts there
_LEAST_VISIBLE = 0.05  # of a pair's pixels; a pair with fewer has no warping error
_LEAST_CHANGE = (0.5 / 255) ** 2  # mean squared change below which a clip counts as still


def warped_squares(first: np.ndarray, second: np.ndarray, forward: np.ndarray) -> np.ndarray:
    """Squared error (H, W, 3) between first and second warped back onto it, pixels in [0, 1]."""
    # first, second: uint8 (H, W, 3); forward: (H, W, 2)
    return (warp_back(second.astype(np.float32) / 255, forward) - first.astype(np.float32) / 255) ** 2


def is_boundary(flow: np.ndarray) -> np.ndarray:
    """Boolean (H, W): squared gradients of the flow (H, W, 2) over ``0.01 |F|^2 + 0.002`` (Lai et al. 2018)."""
    down, right = np.gradient(flow, axis=(0, 1))
    return (down**2 + right**2).sum(axis=-1) > 0.01 * squared_length(flow) + 0.002


def fastest_mean(flow: np.ndarray) -> float:
    """Mean length of the fastest 5 % of a flow (H, W, 2), in pixels."""
    speed = np.sqrt(squared_length(flow)).ravel()
    count = max(1, math.floor(_FASTEST * speed.size))
    return float(np.partition(speed, speed.size - count)[-count:].mean())


_info = partial(MetricInfo, low=0.0, packages=("opencv-python-headless",), standin_for=RAFT)
_OWN, _PAPER = ("noweights", "motion"), ("noweights", "motion", "paper")


class Warping(FlowMetric):
    """Warping error, flow score and what is decided from them, in one pass."""

    infos: ClassVar[tuple[MetricInfo, ...]] = (
        _info(
            "warping_error", "Warping Error", "MSE", "down", _PAPER, decimals=5,
            about="Mean squared error of visible pixels against the next frame warped back, pixels in [0, 1], mean over channels "
            "(evalcrafter: sum over channels, half size). A frozen clip has 0.",
        ),
        _info(
            "warping_ratio", "Warping error / frame difference", "ratio", "down", _OWN, decimals=3,
            about="Warping error over the squared frame difference of the same pixels: what flow does not explain.",
        ),
        _info(
            "flow_score", "Flow Score", "px/frame", "neutral", _PAPER,
            about="Mean length of the flow over all pixels and pairs, in pixels of the clip.",
        ),
        _info(
            "flow_speed", "Flow speed", "% of the short side/s", "neutral", _OWN,
            about="Flow score in units that size and frame rate don't change.",
        ),
        _info(
            "motion_accuracy", "Motion Accuracy Score", "%", "up", _PAPER, high=100.0,
            about="100 where the amount of motion fits the label amplitude (large: over 15.6 % of the shorter side per second; "
            "evalcrafter: over 5 px per frame), else 0.",
        ),
        _info(
            "dynamic_degree", "Dynamic Degree", "share", "neutral", (*_OWN, "physics"), high=1.0,
            about="1 where in a quarter of the pairs, at about 8 per second, the fastest 5 % of pixels move over 6/256 of the "
            "shorter side (VBench), else 0.",
        ),
    )  # fmt: skip

    def start(self, clip: DecodedClip) -> _WarpingState:
        return _WarpingState(clip, self._settings.protocol == "evalcrafter")


class _WarpingState:
    def __init__(self, clip: DecodedClip, as_evalcrafter: bool) -> None:
        self._clip, self._as_evalcrafter = clip, as_evalcrafter
        self._warped: list[float | None] = []  # of the pairs; mean squared error of visible pixels
        self._raw: list[float | None] = []
        self._masked: list[float] = []  # share of pixels left out
        self._speed: list[float] = []  # px of the clip per frame
        self._theirs: list[tuple[float | None, float, float]] = []  # EvalCrafter's error, masked share and speed
        self._dynamic = _DynamicDegree(clip)

    def add(self, pair: FramePair) -> None:
        squares, visible = warped_squares(pair.first, pair.second, pair.forward).mean(axis=-1), pair.visible
        change = ((pair.second.astype(np.float32) - pair.first) / 255) ** 2
        seen = float(visible.mean())
        enough = seen >= _LEAST_VISIBLE
        self._warped.append(float(squares[visible].mean()) if enough else None)
        self._raw.append(float(change.mean(axis=-1)[visible].mean()) if enough else None)
        self._masked.append(1 - seen)
        self._speed.append(float(np.sqrt(squared_length(pair.forward)).mean()) * pair.scale)
        self._dynamic.add(pair)
        if self._as_evalcrafter:
            frames = self._clip.frames[pair.index], self._clip.frames[pair.index + 1]
            self._theirs.append(_evalcrafter_pair(*frames, pair.estimator))

    def results(self) -> Mapping[str, MetricResult]:
        clip = self._clip
        errors, masked, speeds = self._warped, self._masked, self._speed
        if self._as_evalcrafter:
            errors, masked, speeds = (list(column) for column in zip(*self._theirs, strict=True))  # type: ignore[assignment]
        speed, short = float(np.mean(speeds)), min(clip.frames.shape[1:3])
        per_second = None if clip.fps is None else 100 * float(np.mean(self._speed)) * clip.fps / short
        details = {"masked_share": float(np.mean(masked))}
        return {
            "warping_error": self._mean(errors, "no pixel is visible in both frames of a pair", details),
            "warping_ratio": self._ratio(details),
            "flow_score": self._result(speed, speeds, {"percent_of_short_side_per_s": per_second}),
            "flow_speed": skipped(NO_RATE)
            if per_second is None or clip.fps is None
            else self._result(per_second, [100 * value * clip.fps / short for value in self._speed]),
            "motion_accuracy": self._accuracy(speed, per_second),
            "dynamic_degree": self._dynamic_result(),
        }

    def _mean(self, values: list[float | None], empty: str, details: Mapping[str, Any]) -> MetricResult:
        known = [value for value in values if value is not None]
        return self._result(float(np.mean(known)), values, details) if known else skipped(empty)

    def _ratio(self, details: Mapping[str, Any]) -> MetricResult:
        pairs = [(w, r) for w, r in zip(self._warped, self._raw, strict=True) if w is not None and r is not None]
        raw = float(np.mean([r for _, r in pairs])) if pairs else 0.0
        if raw < _LEAST_CHANGE:
            return skipped(STILL if pairs else "no pixel is visible in both frames of a pair")
        warped = float(np.mean([w for w, _ in pairs]))
        series = [w / r if w is not None and r else None for w, r in zip(self._warped, self._raw, strict=True)]
        return self._result(warped / raw, series, {**details, "raw_error": raw, "warped_error": warped})

    def _accuracy(self, speed: float, per_second: float | None) -> MetricResult:
        label = self._clip.sample.labels.get("amplitude")
        if label is None:
            return skipped("no label amplitude (large or slow)")
        if not self._as_evalcrafter and per_second is None:
            return skipped(NO_RATE)
        large = speed > LARGE_PIXELS if self._as_evalcrafter else (per_second or 0.0) > LARGE_PERCENT_PER_S
        found = "large" if large else "slow"
        return self._result(
            100.0 * (found == label), None, {"label": label, "found": found, "percent_of_short_side_per_s": per_second}
        )

    def _dynamic_result(self) -> MetricResult:
        if self._clip.fps is None:
            return skipped(NO_RATE)
        is_dynamic, lengths, rate = self._dynamic.decide()
        per_second = 100 * float(np.mean(lengths)) * rate
        return self._result(float(is_dynamic), None, {"fastest_percent_of_short_side_per_s": per_second, "pairs": len(lengths)})

    def _result(
        self, value: float, series: list[float | None] | list[float] | None = None, details: Mapping[str, Any] | None = None
    ) -> MetricResult:
        name = self._clip.estimator.name if self._clip.estimator else ""
        status = "standin" if is_standin(name) else "ok"
        return MetricResult(value, status, per_frame=series, details=details or {}, backend=name)  # type: ignore[arg-type]


class _DynamicDegree:
    """VBench's rule: frames thinned to about eight a second, speeds of the fastest pixels between them."""

    def __init__(self, clip: DecodedClip) -> None:
        self._fps = clip.fps
        self._step = 1 if clip.fps is None else min(max(1, round(clip.fps / _DYNAMIC_RATE)), max(1, len(clip.frames) - 1))
        self._before: np.ndarray | None = None
        self._lengths: list[float] = []  # in shorter sides

    def add(self, pair: FramePair) -> None:
        if pair.index % self._step == 0:
            self._before = pair.first
        if (pair.index + 1) % self._step == 0 and self._before is not None:
            flow = pair.forward if self._step == 1 else pair.estimator(self._before, pair.second)
            self._lengths.append(fastest_mean(flow) / min(flow.shape[:2]))

    def decide(self) -> tuple[bool, list[float], float]:
        """Whether the clip is dynamic, the speeds (of the shorter side per sampled pair), and sampled pairs per second."""
        needed = max(1, round(_DYNAMIC_PAIRS * (len(self._lengths) + 1)))  # VBench rounds to 0 for two frames: all are dynamic
        dynamic = sum(length > _DYNAMIC_PIXELS for length in self._lengths)
        return dynamic >= needed, self._lengths, (self._fps or 0.0) / self._step


def _evalcrafter_pair(first: np.ndarray, second: np.ndarray, estimator: FlowEstimator) -> tuple[float | None, float, float]:
    """EvalCrafter's error of a pair at half size, the share of pixels left out, and the mean speed at full size in pixels."""
    height, width = (max(1, side // 2) for side in first.shape[:2])
    small, small_second = scaled_while_reading(first, height, width), scaled_while_reading(second, height, width)
    forward, backward = estimator(small, small_second), estimator(small_second, small)
    kept = is_visible(forward, backward) & ~is_boundary(forward)
    squares = warped_squares(small, small_second, forward).sum(axis=-1)
    speed = float(np.sqrt(squared_length(estimator(first, second))).mean())
    return float(squares[kept].mean()) if kept.any() else None, 1 - float(kept.mean()), speed
