"""A clip whose pictures are drawn when they are asked for."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from phys_pipeline.media.limits import check_video_bytes
from phys_pipeline.media.video import Video


class Composed(ABC):
    """A :class:`~phys_pipeline.media.video.Clip` that draws its pictures; it is its own ``frames``."""

    height: int
    width: int
    timestamps: np.ndarray  # (T,)
    fps: float
    source: str
    duration: float

    @abstractmethod
    def draw(self, number: int, frame: np.ndarray) -> None:
        """Fill ``frame``, ``uint8 (height, width, 3)``, with picture ``number``."""

    def __len__(self) -> int:
        return len(self.timestamps)

    @property
    def frames(self) -> Composed:
        return self

    def __getitem__(self, number: int) -> np.ndarray:
        if not 0 <= number < len(self):
            raise IndexError(number)
        frame = np.empty((self.height, self.width, 3), np.uint8)
        self.draw(number, frame)
        return frame

    def whole(self, what: str) -> Video:
        """All pictures in memory; MediaError, which names ``what`` this is, if they are over the memory limit."""
        check_video_bytes(len(self), self.height, self.width, what)
        frames = np.empty((len(self), self.height, self.width, 3), np.uint8)
        for number, frame in enumerate(frames):
            self.draw(number, frame)
        return Video(frames, self.timestamps, self.fps, self.source)
