"""Motion masks against a real take of the same scene, as Physics-IQ compares them (Motamed et al. 2025, arXiv:2501.09038).

A pixel moves where its blurred grey value differs by more than 10 levels from a running average of the frames up to it (weight
0.3); specks and holes under 5 pixels go. Both clips are brought to the working size of the take, to the lower of the two frame
rates and to the shorter duration; the suite itself uses exactly 5 s.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import ClassVar

import numpy as np

from phys_pipeline.evaluation.clip import DecodedClip
from phys_pipeline.evaluation.flow import opencv, opencv_available, working_size
from phys_pipeline.evaluation.metric import Availability, LightMetric, MetricInfo, MetricResult, skipped
from phys_pipeline.evaluation.metrics.spectral import at_rate_of_sample
from phys_pipeline.media import Video, probe, read_video, resample
from phys_pipeline.media.scaling import scaled_while_reading

_THRESHOLD, _MEMORY, _KERNEL = 10, 0.3, 5  # grey levels, weight of the newest frame, pixels


def motion_masks(frames: np.ndarray) -> np.ndarray:
    """Boolean (T, H, W): where a pixel moves; nothing moves in the first frame. frames: uint8 (T, H, W, 3)."""
    cv2 = opencv()
    kernel = np.ones((_KERNEL, _KERNEL), np.uint8)
    masks = np.zeros(frames.shape[:3], bool)
    average: np.ndarray | None = None
    for index, frame in enumerate(frames):
        grey = cv2.GaussianBlur(cv2.cvtColor(np.ascontiguousarray(frame), cv2.COLOR_RGB2GRAY), (_KERNEL, _KERNEL), 0)
        grey = grey.astype(np.float32)
        average = grey if average is None else (1 - _MEMORY) * average + _MEMORY * grey
        moves = (np.abs(grey - average) > _THRESHOLD).astype(np.uint8)
        opened = cv2.morphologyEx(moves, cv2.MORPH_OPEN, kernel)
        masks[index] = cv2.morphologyEx(opened, cv2.MORPH_CLOSE, kernel) > 0
    return masks


def overlap(first: np.ndarray, second: np.ndarray) -> float:
    """Sum of the smaller over the sum of the larger values: the intersection over union of masks; 1 where both are empty."""
    larger = float(np.maximum(first, second).sum())
    return float(np.minimum(first, second).sum()) / larger if larger else 1.0


_info = partial(MetricInfo, groups=("noweights", "physics"), decimals=3, low=0.0, high=1.0, packages=("opencv-python-headless",))


class Masks(LightMetric):
    """The four numbers of Physics-IQ for one clip and its reference."""

    infos: ClassVar[tuple[MetricInfo, ...]] = (
        _info(
            "mask_mse", "Physics-IQ MSE", "MSE", "down", decimals=4,
            about="Mean squared error of pixels in [0, 1] against the reference (how it moves).",
        ),
        _info(
            "spatial_iou", "Spatial IoU", "IoU", "up",
            about="Overlap of the places where anything ever moves with the reference's (where).",
        ),
        _info(
            "spatiotemporal_iou", "Spatiotemporal IoU", "IoU", "up",
            about="Overlap of each frame's moving pixels with the reference's, mean over frames (where and when).",
        ),
        _info(
            "weighted_spatial_iou", "Weighted spatial IoU", "IoU", "up",
            about="Overlap of how long each pixel moves with the reference's (where and how much).",
        ),
    )  # fmt: skip

    def available(self) -> Availability:
        return opencv_available()

    def compute(self, clip: DecodedClip) -> Mapping[str, MetricResult]:
        reference = clip.sample.reference
        if reference is None:
            return self._all("the sample has no reference")
        if clip.fps is None:
            return self._all("the frame rate is unknown: give the sample's fps")
        info = probe(reference)
        size = working_size(info.height, info.width)
        take = read_video(reference, size=size)
        rate = min(take.fps, clip.fps)
        theirs, ours = (_prepared(video, rate, size) for video in (take, at_rate_of_sample(clip)))
        count = min(len(theirs), len(ours))
        if count < 2:
            return self._all("the clip and its reference share less than two frames")
        theirs, ours = theirs[:count], ours[:count]
        errors = [float(((a.astype(np.float32) - b) ** 2).mean()) / 255**2 for a, b in zip(theirs, ours, strict=True)]
        real, made = motion_masks(theirs), motion_masks(ours)
        by_frame = [overlap(a, b) for a, b in zip(real[1:], made[1:], strict=True)]  # in the first nothing moves
        details = {"frames": count, "fps": rate, "pixels_that_disagree": float((real != made).mean())}
        return {
            "mask_mse": MetricResult(float(np.mean(errors)), per_frame=errors, details=details),
            "spatial_iou": MetricResult(overlap(real.max(axis=0), made.max(axis=0))),
            "spatiotemporal_iou": MetricResult(float(np.mean(by_frame)), per_frame=by_frame),
            "weighted_spatial_iou": MetricResult(overlap(real.mean(axis=0), made.mean(axis=0))),
        }

    def _all(self, reason: str) -> dict[str, MetricResult]:
        return {info.key: skipped(reason) for info in self.infos}


def _prepared(video: Video, rate: float, size: tuple[int, int]) -> np.ndarray:
    """Frames at a constant ``rate``, reduced or enlarged to (height, width)."""
    return np.stack([scaled_while_reading(frame, *size) for frame in resample(video, rate).frames])
