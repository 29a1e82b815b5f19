"""Simple measures of broken motion that a spectral loss has to beat: differences, optical flow, similarity fits, spatial spectra.

All take a clip of 8-bit pixels (T, H, W, 3) and give a number that grows as the motion gets worse, or None where there is nothing
to compute it from. Optical flow is OpenCV's DIS with the medium preset on grey pictures; it needs opencv-python-headless.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.scores import ROOT, Score, code_digest, function_digest
from phys_pipeline.evaluation.flow import DisFlow, is_visible, warp_back
from phys_pipeline.evaluation.metrics.similarity import fit_similarity, jerk, mean_residual, motions

_FLOW_CODE = ("phys_pipeline/evaluation/flow.py", "phys_pipeline/evaluation/metrics/similarity.py")


class Flow(NamedTuple):
    """``shift`` (H, W, 2): where each pixel went, in pixels, x right, y down; ``visible`` (H, W): whether it is still seen."""

    shift: np.ndarray
    visible: np.ndarray


class RememberedFlow:
    """DIS flow, each ordered pair of pictures computed once: half of the corruptions only put frames in another order."""

    def __init__(self) -> None:
        self._known: dict[tuple[bytes, bytes], np.ndarray] = {}
        self._estimate = DisFlow()
        self.name = self._estimate.name

    def __call__(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        # first, second: uint8 (H, W, 3)
        names = first.tobytes(), second.tobytes()
        if names not in self._known:
            self._known[names] = self._estimate(first, second)
        return self._known[names]

    def __len__(self) -> int:
        return len(self._known)


class FlowCache:
    """Flow and visibility between frames, kept."""

    def __init__(self) -> None:
        self.estimate = RememberedFlow()
        self._flows: dict[tuple[bytes, bytes], Flow] = {}

    def between(self, first: np.ndarray, second: np.ndarray) -> Flow:
        """Flow from one frame to another, both uint8 (H, W, 3)."""
        names = first.tobytes(), second.tobytes()
        if names not in self._flows:
            shift, back = self.estimate(first, second), self.estimate(second, first)
            self._flows[names] = Flow(shift, is_visible(shift, back))
        return self._flows[names]


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
        squares = (warp_back(pictures[index + 1], flow.shift) - pictures[index]) ** 2
        error = (squares[..., 0] + squares[..., 1] + squares[..., 2]) / 3  # (H, W)
        whole.append(float(error.mean()))
        if flow.visible.any():
            seen.append(float(error[flow.visible].mean()))
    return float(np.mean(whole)), float(np.mean(seen)) if seen else None


def similarity_fit(frames: np.ndarray, flows: FlowCache) -> tuple[Score, Score]:
    """Residual and jerk of a similarity fitted to each pair's flow: :mod:`phys_pipeline.evaluation.metrics.similarity`."""
    fits = [fit_similarity(*flows.between(first, second)) for first, second in pairwise(frames)]
    return mean_residual(fits), jerk(motions(fits))


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
        flow = " ".join([*(code_digest(ROOT / path) for path in _FLOW_CODE), RememberedFlow().name])
        for names, function in PEERS.items():
            version = f"{function_digest(Path(__file__), function.__name__)} {flow}"
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
