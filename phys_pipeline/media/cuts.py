"""Where one shot ends and another begins, found on pictures of 32x32 pixels."""

from __future__ import annotations

import os

import numpy as np

from phys_pipeline.media.reading import UnexpectedTimes, VideoStream
from phys_pipeline.media.scaling import scaled_while_reading

SIDE = 32
_STEP, _RATIO = 0.08, 4.0


def has_cut(path: str | os.PathLike[str]) -> bool:
    """True if two consecutive frames of a file differ like two shots: see :func:`cut_positions`. Raises MediaError."""
    stream = VideoStream(path)
    size = SIDE, SIDE
    try:
        small = list(stream.pictures(np.arange(len(stream)), size))
    except UnexpectedTimes:
        stream.read_exact_times()
        small = list(stream.pictures(np.arange(len(stream)), size))
    return bool(cut_positions(np.stack(small)))


def thumbnails(frames: np.ndarray) -> np.ndarray:  # uint8 (T, H, W, 3)
    """The pictures that cuts are found on: uint8 (T, 32, 32, 3)."""
    return np.stack([scaled_while_reading(frame, SIDE, SIDE) for frame in frames])


def cut_positions(frames: np.ndarray) -> list[int]:  # uint8 (T, H, W, 3), small
    """Frames that begin a new shot.

    There, the mean absolute change of pixels exceeds 0.08 of the range and four times the median change of the eight steps
    around it: fast motion changes much at every step, a cut at one.
    """
    if len(frames) < 3:
        return []
    steps = np.abs(np.diff(frames.astype(np.float32), axis=0)).mean(axis=(1, 2, 3)) / 255.0
    found = []
    for i, step in enumerate(steps):
        around = np.concatenate([steps[max(0, i - 4) : i], steps[i + 1 : i + 5]])
        if step > _STEP and step > _RATIO * np.median(around):
            found.append(i + 1)
    return found
