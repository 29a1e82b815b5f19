"""What the metrics of one clip share: decoded once, one pass over pairs of frames with their optical flow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np

from phys_pipeline.evaluation.flow import FlowEstimator, is_visible, working_size
from phys_pipeline.evaluation.sample import VideoSample
from phys_pipeline.media import Video
from phys_pipeline.media.scaling import scaled_while_reading

T = TypeVar("T")


@dataclass(eq=False)
class FramePair:
    """Two neighbouring frames, reduced to :func:`working_size`. Flows are computed on first use and shared by every metric.

    Args:
        first, second: uint8 (H, W, 3); ``index`` is the number of ``first``.
        scale: pixels of the clip per pixel of the pair.
    """

    index: int
    first: np.ndarray
    second: np.ndarray
    estimator: FlowEstimator
    scale: float = 1.0

    @cached_property
    def forward(self) -> np.ndarray:
        """Flow (H, W, 2) from first to second in pixels, x right, y down."""
        return self._still if self.is_repeated else self.estimator(self.first, self.second)

    @cached_property
    def backward(self) -> np.ndarray:
        """Flow (H, W, 2) from second to first."""
        return self._still if self.is_repeated else self.estimator(self.second, self.first)

    @cached_property
    def is_repeated(self) -> bool:
        """Whether both frames are the same, so that nothing needs an estimate."""
        return np.array_equal(self.first, self.second)

    @property
    def _still(self) -> np.ndarray:
        return np.zeros((*self.first.shape[:2], 2), np.float32)

    @cached_property
    def visible(self) -> np.ndarray:
        """Boolean (H, W): pixels of first that are still seen in second (forward-backward check)."""
        return is_visible(self.forward, self.backward)


@dataclass(eq=False)
class DecodedClip:
    """One sample, decoded. ``fps`` is None where nobody knows it; metrics that need it skip the clip.

    ``features`` holds what metrics share, by name (:meth:`shared`).
    """

    sample: VideoSample
    video: Video
    estimator: FlowEstimator | None = None  # needed by pairs() alone
    features: dict[str, Any] = field(default_factory=dict)

    @property
    def frames(self) -> np.ndarray:
        """uint8 (T, H, W, 3)."""
        return self.video.frames

    @property
    def fps(self) -> float | None:
        """Frames per second: the sample's, else the file's."""
        return self.sample.fps if self.sample.fps is not None or self.sample.path is None else self.video.fps

    def pairs(self) -> Iterator[FramePair]:
        """Neighbouring frames in order; only one pair's flow is alive at a time."""
        if self.estimator is None:
            raise ValueError("a clip without a flow estimator has no pairs")
        height, width = working_size(self.video.height, self.video.width)
        frames = (scaled_while_reading(frame, height, width) for frame in self.frames)
        for index, (first, second) in enumerate(pairwise(frames)):
            yield FramePair(index, first, second, self.estimator, self.video.width / width)

    def shared(self, name: str, make: Callable[[], T]) -> T:
        """``make()`` of the first metric that asks for ``name``; for example CLIP features of the frames."""
        if name not in self.features:
            self.features[name] = make()
        return self.features[name]
