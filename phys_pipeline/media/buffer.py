"""Collect decoded frames into one array without holding them twice, and turn raw times into clean ones."""

from __future__ import annotations

import numpy as np

from phys_pipeline.media.limits import check_video_bytes
from phys_pipeline.media.video import Video

_SMALLEST_STEP = 1e-3  # seconds; repairs a timestamp that doesn't increase


class FrameBuffer:
    """A growing ``uint8 (T, H, W, 3)`` array with the shown time of each frame.

    ``expected`` frames are reserved at once; the system backs the pages only when they are written. Every growth
    checks the memory limit, since a file's own frame count may be wrong.
    """

    def __init__(self, expected: int, name: str) -> None:
        self._expected, self._name = max(1, expected), name
        self._frames: np.ndarray | None = None
        self._times: list[float] = []

    def __len__(self) -> int:
        return len(self._times)

    def append(self, picture: np.ndarray, seconds: float) -> None:
        """Add one ``uint8 (H, W, 3)`` picture; the first fixes the size."""
        height, width = picture.shape[:2]
        if self._frames is None:
            check_video_bytes(self._expected, height, width, self._name)
            self._frames = np.empty((self._expected, height, width, 3), np.uint8)
        if len(self) == len(self._frames):
            capacity = len(self) + max(8, len(self) // 2)
            check_video_bytes(len(self) + 1, height, width, self._name)
            grown = np.empty((capacity, height, width, 3), np.uint8)
            grown[: len(self)] = self._frames
            self._frames = grown
        self._frames[len(self)] = picture
        self._times.append(seconds)

    def video(self, nominal_fps: float, source: str, last_duration: float = 0.0) -> Video:
        """The collected frames as a :class:`Video`, see :func:`clean_clock`; ``len(self)`` must be positive."""
        assert self._frames is not None
        times, fps = clean_clock(np.asarray(self._times, np.float64), nominal_fps, last_duration)
        return Video(self._frames[: len(self)], times, fps, source)


def clean_clock(times: np.ndarray, nominal_fps: float, last_duration: float) -> tuple[np.ndarray, float]:
    """Timestamps that start at 0 and increase, and the average frames per second, of raw ``times`` (T,); T must be positive.

    ``nominal_fps`` is used for a single frame, and where the measured average agrees with it within half a
    percent (containers round times to milliseconds). ``last_duration`` is how long the last frame is shown, 0 if unknown.
    """
    times = increasing(times, nominal_fps)
    if len(times) > 1:
        measured = (len(times) - 1) / float(times[-1])
        if last_duration > 0:
            measured = len(times) / (float(times[-1]) + last_duration)
        fps = nominal_fps if nominal_fps > 0 and abs(measured / nominal_fps - 1) < 0.005 else measured
    else:
        fps = nominal_fps if nominal_fps > 0 else (1.0 / last_duration if last_duration > 0 else 1.0)
    return times, float(fps)


def increasing(times: np.ndarray, nominal_fps: float) -> np.ndarray:
    """Shift to start at 0 and make strictly increasing: single faults move by a millisecond, a broken clock is replaced."""
    times = times - times[0]
    faults = int((np.diff(times) <= 0).sum())
    if faults == 0:
        return times
    if faults > 0.1 * len(times):
        return np.arange(len(times), dtype=np.float64) / (nominal_fps if nominal_fps > 0 else 25.0)
    for index in range(1, len(times)):
        times[index] = max(times[index], times[index - 1] + _SMALLEST_STEP)
    return times
