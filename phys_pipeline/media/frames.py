"""Which frames of a file are read, and what every kind of file gives one by one."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol

import numpy as np

from phys_pipeline.errors import MediaError

TOLERANCE = 1e-6  # seconds by which times that mean the same moment may differ


@dataclass(frozen=True)
class Choice:
    """The frames to read: see :func:`phys_pipeline.media.read_video` for the meaning.

    Raises:
        MediaError: a value is out of range.
    """

    start: float = 0.0
    duration: float | None = None
    max_frames: int | None = None
    size: tuple[int, int] | None = None  # height, width
    stream: int = 0

    def __post_init__(self) -> None:
        if self.max_frames is not None and self.max_frames < 1:
            raise MediaError(f"max_frames={self.max_frames} must be 1 or more")
        if not math.isfinite(self.start) or self.start < 0:
            raise MediaError(f"start={self.start} must be 0 or more seconds")
        if self.duration is not None and (not math.isfinite(self.duration) or self.duration <= 0):
            raise MediaError(f"duration={self.duration} must be more than 0 seconds")
        if self.size is not None and (len(self.size) != 2 or min(self.size) < 1):
            raise MediaError(f"size={self.size} must be (height, width), both 1 or more")
        if self.stream < 0:
            raise MediaError(f"stream={self.stream} must be 0 or more")

    def begins_by(self, seconds: float) -> bool:
        """True if a frame shown at ``seconds`` is not too early."""
        return seconds >= self.start - TOLERANCE

    def ends_by(self, seconds: float) -> bool:
        """True if a frame shown at ``seconds`` is too late."""
        return self.duration is not None and seconds >= self.start + self.duration - TOLERANCE


@dataclass(frozen=True, eq=False)
class Outline:
    """What is known of the chosen frames before their pictures are: upright size, times in seconds (T,), the file's own rate.

    ``last_shown`` is how long the last frame is shown, 0 if unknown or not needed.
    """

    height: int
    width: int
    seconds: np.ndarray  # (T,)
    nominal_fps: float
    last_shown: float


class FrameSource(Protocol):
    """The chosen frames of one open file, in display order: a context manager, iterated once.

    Iterating gives the time in seconds and something that :meth:`picture` turns into pixels as long as the next is not asked
    for; the attributes are final afterwards. It raises MediaError if there is no frame.
    """

    expected: int  # frames to reserve memory for; 0 if the file gives no hint
    stored_size: tuple[int, int]  # height, width of the decoded pictures
    nominal_fps: float  # 0 if unknown
    last_shown: float
    damage: str  # what is missing of a damaged file, "" if nothing

    def __iter__(self) -> Iterator[tuple[float, Any]]: ...

    def upright_size(self, item: Any) -> tuple[int, int]:
        """Height and width at which an item is shown."""

    def picture(self, item: Any) -> np.ndarray:
        """``uint8 (H, W, 3)``, upright, of the chosen size."""

    def __enter__(self) -> FrameSource: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...


def outline_of(frames: FrameSource) -> Outline:
    """Decode every chosen frame for its time; no picture is kept."""
    seconds: list[float] = []
    size = (0, 0)
    for moment, item in frames:
        if not seconds:
            size = frames.upright_size(item)
        seconds.append(moment)
    return Outline(*size, np.array(seconds, np.float64), frames.nominal_fps, frames.last_shown)
