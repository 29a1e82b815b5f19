"""Moments at which a clip does something that no motion explains: a flash, a cut, a stand-still."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from phys_pipeline.media.cuts import cut_positions, thumbnails
from phys_pipeline.media.video import Video

_FLASH = 0.02  # of the brightness range: a smaller jump there and back is not seen
_UNUSUAL = 6.0  # times the clip's usual change of brightness
_MOVING = 5e-3  # mean change of the range per frame: a clip that changes less has no stand-still to tell
_STILL_SHARE = 0.05  # of the usual change: a pair of frames below it stands still


@dataclass(frozen=True)
class Event:
    """What happens at ``seconds``, and how long it lasts (0: one frame)."""

    kind: Literal["flash", "cut", "standstill"]
    seconds: float
    length: float = 0.0


def find_events(video: Video) -> list[Event]:
    """Events in order. A flash is a frame that is brighter or darker than both neighbours, far more than usual in this clip."""
    if len(video) < 4:
        return []
    small = thumbnails(video.frames)
    levels = small.reshape(len(small), -1).mean(axis=1) / 255.0
    steps = np.abs(np.diff(small.astype(np.float32), axis=0)).mean(axis=(1, 2, 3)) / 255.0
    bump = levels[1:-1] - (levels[:-2] + levels[2:]) / 2
    least = max(_FLASH, _UNUSUAL * float(np.median(np.abs(bump))))
    flashes = [index + 1 for index, value in enumerate(bump) if _is_peak(levels, index + 1) and abs(value) > least]
    found = [Event("flash", float(video.timestamps[frame])) for frame in flashes]
    beside = {frame + offset for frame in flashes for offset in (0, 1)}
    still = _standstills(video, steps)
    ends = {round(event.seconds + event.length, 6) for event in still}  # the frame after those is a jump, but no cut
    cuts = [
        frame
        for frame in cut_positions(small)
        if frame not in beside and round(float(video.timestamps[frame - 1]), 6) not in ends
    ]
    found += [Event("cut", float(video.timestamps[frame])) for frame in cuts]
    return sorted([*found, *still], key=lambda event: event.seconds)


def _is_peak(levels: np.ndarray, index: int) -> bool:
    """Whether a frame's brightness lies outside of its neighbours' by nearly as much on either side."""
    before, after = levels[index] - levels[index - 1], levels[index] - levels[index + 1]
    return bool(before * after > 0 and min(abs(before), abs(after)) > 0.5 * max(abs(before), abs(after)))


def _standstills(video: Video, steps: np.ndarray) -> list[Event]:
    """Runs of at least two equal steps in a clip that otherwise moves; ``steps`` (T - 1,) mean changes."""
    usual = float(np.median(steps))
    if usual < _MOVING:
        return []
    found, start = [], None
    for index, still in enumerate([*(steps < _STILL_SHARE * usual), False]):
        if still and start is None:
            start = index
        elif not still and start is not None:
            if index - start >= 2:
                begin, end = float(video.timestamps[start]), float(video.timestamps[index])
                found.append(Event("standstill", begin, end - begin))  # until the last of the equal frames
            start = None
    return found
