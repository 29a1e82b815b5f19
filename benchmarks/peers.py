"""Simple measures of broken motion that a spectral loss has to beat: differences, optical flow, similarity fits, spatial spectra.

All take a clip of 8-bit pixels (T, H, W, 3) and give a number that grows as the motion gets worse, or None where there is nothing
to compute it from. Optical flow is OpenCV's DIS with the medium preset on grey pictures; it needs opencv-python-headless.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np

from benchmarks.scores import Score, function_digest

cv2.setNumThreads(1)

_LEAST_MOTION = 0.5 / 256  # of the longer side: slower pixels don't count as moving
_LEAST_POINTS = 10  # moving pixels; a pair of frames with fewer counts as motionless
_MOST_POINTS = 2000
_INLIER = 1.0  # pixels; of 0.25, 0.5, 1 and 3 the best for the jerk on ten clips of the tuning part


class Flow(NamedTuple):
    """``shift`` (H, W, 2): where each pixel went, in pixels, x right, y down; ``visible`` (H, W): whether it is still seen."""

    shift: np.ndarray
    visible: np.ndarray


class FlowCache:
    """DIS flow between frames, each ordered pair of pictures once: half of the corruptions only put frames in another order."""

    def __init__(self) -> None:
        self._grey: dict[bytes, np.ndarray] = {}
        self._shifts: dict[tuple[bytes, bytes], np.ndarray] = {}
        self._flows: dict[tuple[bytes, bytes], Flow] = {}
        self._engine = cv2.DISOpticalFlow.create(cv2.DISOPTICAL_FLOW_PRESET_MEDIUM)

    def between(self, first: np.ndarray, second: np.ndarray) -> Flow:
        """Flow from one frame to another, both uint8 (H, W, 3).

        A pixel is visible if its flow F stays inside the frame and the backward flow B brings it back:
        ``|F + B(x + F)|^2 <= 0.01 (|F|^2 + |B(x + F)|^2) + 0.5`` (Sundaram et al. 2010, Lai et al. 2018).
        """
        names = first.tobytes(), second.tobytes()
        if names not in self._flows:
            for name, frame in zip(names, (first, second), strict=True):
                if name not in self._grey:
                    self._grey[name] = cv2.cvtColor(np.ascontiguousarray(frame), cv2.COLOR_RGB2GRAY)
            shift, back = self._shift(*names), self._shift(names[1], names[0])
            x, y = targets(shift)
            inside = (x >= 0) & (x <= shift.shape[1] - 1) & (y >= 0) & (y <= shift.shape[0] - 1)
            returned = pull(back, shift)
            lengths = squared(shift) + squared(returned)
            self._flows[names] = Flow(shift, inside & (squared(shift + returned) <= 0.01 * lengths + 0.5))
        return self._flows[names]

    def _shift(self, first: bytes, second: bytes) -> np.ndarray:
        if (first, second) not in self._shifts:
            start = np.zeros((*self._grey[first].shape, 2), np.float32)
            self._shifts[first, second] = self._engine.calc(self._grey[first], self._grey[second], start)
        return self._shifts[first, second]


def frame_difference(frames: np.ndarray, flows: FlowCache) -> tuple[Score]:
    """Mean absolute change between neighbouring frames, pixels in [0, 1] (one minus it is VBench's temporal flickering)."""
    return (float(np.abs(_differences(frames)).mean()),)


def difference_ratio(frames: np.ndarray, flows: FlowCache) -> tuple[Score]:
    """Mean absolute second temporal difference over that of the first."""
    first = _differences(frames)
    speed = float(np.abs(first).mean())
    return (float(np.abs(np.diff(first, axis=0)).mean()) / speed if speed > 0 else None,)


def warping_error(frames: np.ndarray, flows: FlowCache) -> tuple[Score, Score]:
    """Mean squared error between a frame and the next one warped back onto it, over all pixels and over the visible ones.

    Averages over pairs, pairs without a visible pixel left out.
    """
    pictures = frames.astype(np.float32) / 255
    whole, seen = [], []
    for index, (first, second) in enumerate(pairwise(frames)):
        flow = flows.between(first, second)
        squares = (pull(pictures[index + 1], flow.shift) - pictures[index]) ** 2
        error = (squares[..., 0] + squares[..., 1] + squares[..., 2]) / 3  # (H, W)
        whole.append(float(error.mean()))
        if flow.visible.any():
            seen.append(float(error[flow.visible].mean()))
    return float(np.mean(whole)), float(np.mean(seen)) if seen else None


def similarity_fit(frames: np.ndarray, flows: FlowCache) -> tuple[Score, Score]:
    """Residual and jerk of a similarity fitted (RANSAC) to the flow of each pair's visible moving pixels.

    Moving is what is faster than 0.3 of the pair's 99th percentile and than 1/512 of the longer side. Residual: median distance
    to the fit over median displacement, averaged over the pairs with motion. Jerk: mean absolute change of (x, y, rotation, log
    scale) from pair to pair over their mean absolute size, angles and scales times the frame's root mean square radius, so that
    all are pixels; a pair without motion has four zeros.
    """
    height, width = frames.shape[1:3]
    centre = np.array([(width - 1) / 2, (height - 1) / 2])
    radius = math.sqrt((height**2 + width**2) / 12)
    columns, rows = np.meshgrid(np.arange(width, dtype=np.float32), np.arange(height, dtype=np.float32))
    residuals, motions = [], []
    for first, second in pairwise(frames):
        shift, visible = flows.between(first, second)
        speed = np.sqrt(squared(shift))
        least = max(_LEAST_MOTION * max(height, width), 0.3 * float(np.percentile(speed, 99)))
        moving = np.flatnonzero(visible & (speed > least))
        moving = moving[:: max(1, math.ceil(len(moving) / _MOST_POINTS))]
        fit = None
        if len(moving) >= _LEAST_POINTS:
            source = np.stack([columns.ravel()[moving], rows.ravel()[moving]], axis=1)
            target = source + shift.reshape(-1, 2)[moving]
            fit, _ = cv2.estimateAffinePartial2D(source, target, method=cv2.RANSAC, ransacReprojThreshold=_INLIER)
        if fit is None:
            motions.append(np.zeros(4))
            continue
        matrix, offset = fit[:, :2], fit[:, 2]
        error = np.linalg.norm(source @ matrix.T + offset - target, axis=1)
        residuals.append(float(np.median(error) / np.median(speed.ravel()[moving])))
        turn, scale = math.atan2(matrix[1, 0], matrix[0, 0]), math.hypot(matrix[0, 0], matrix[1, 0])
        motions.append(np.array([*(matrix @ centre + offset - centre), radius * turn, radius * math.log(max(scale, 1e-6))]))
    size = float(np.abs(motions).mean())
    jerk = float(np.abs(np.diff(motions, axis=0)).mean()) / size if size > 0 and len(motions) > 1 else None
    return float(np.mean(residuals)) if residuals else None, jerk


def focal_frequency_distance(frames: np.ndarray, flows: FlowCache) -> tuple[Score]:
    """Focal frequency loss (Jiang et al. 2021, alpha 1) between the spatial spectra of each frame and of the frame before it.

    That loss compares a picture with a reference; without one, the previous frame takes its place. Orthonormal DFT per channel;
    squared distance of each coefficient times its own distance over the largest in the spectrum; mean over coefficients, channels
    and pairs.
    """
    spectra = np.fft.fft2(frames.astype(np.float32) / 255, axes=(1, 2), norm="ortho")  # (T, H, W, 3)
    squared = np.abs(np.diff(spectra, axis=0)) ** 2
    distance = np.sqrt(squared)
    largest = distance.max(axis=(1, 2), keepdims=True)
    weight = np.divide(distance, largest, out=np.zeros_like(distance), where=largest > 0)
    return (float((weight * squared).mean()),)


def _differences(frames: np.ndarray) -> np.ndarray:
    return np.diff(frames.astype(np.float32) / 255, axis=0)


def squared(flow: np.ndarray) -> np.ndarray:
    """Squared lengths (H, W) of a flow (H, W, 2)."""
    return flow[..., 0] ** 2 + flow[..., 1] ** 2


def targets(flow: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Columns and rows, each (H, W), at which a flow (H, W, 2) arrives."""
    height, width = flow.shape[:2]
    columns, rows = np.arange(width, dtype=np.float32), np.arange(height, dtype=np.float32)
    return columns + flow[..., 0], rows[:, None] + flow[..., 1]


def pull(picture: np.ndarray, flow: np.ndarray) -> np.ndarray:
    """Values of ``picture`` (H, W, C) where ``flow`` (H, W, 2) arrives, bilinear, borders repeated."""
    return cv2.remap(picture, *targets(flow), cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)


PEERS: dict[tuple[str, ...], Callable[[np.ndarray, FlowCache], tuple[Score, ...]]] = {
    ("second / first difference",): difference_ratio,
    ("frame difference",): frame_difference,
    ("warping error, all pixels", "warping error, visible"): warping_error,
    ("similarity residual", "similarity jerk"): similarity_fit,
    ("focal frequency distance",): focal_frequency_distance,
}


class PeerMeasures:
    """All of them as :class:`benchmarks.scores.Measures`; flows are shared by the copies of a clip."""

    def versions(self) -> dict[str, str]:
        found = {}
        for names, function in PEERS.items():
            version = f"{function_digest(Path(__file__), function.__name__)} opencv {cv2.__version__}"
            found.update(dict.fromkeys(names, version))
        return found

    def scores(self, clips: Sequence[np.ndarray], wanted: Collection[str]) -> dict[str, list[Score]]:
        flows = FlowCache()
        found: dict[str, list[Score]] = {}
        for names, function in PEERS.items():
            if not any(name in wanted for name in names):
                continue
            columns = zip(*(function(clip, flows) for clip in clips), strict=True)
            found.update({name: list(column) for name, column in zip(names, columns, strict=True) if name in wanted})
        return found
