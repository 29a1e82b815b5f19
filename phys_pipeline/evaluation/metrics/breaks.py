"""Breaks of time: cuts, repeated frames, and clips that come back to frames they have shown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

import numpy as np

from phys_pipeline.evaluation.clip import DecodedClip
from phys_pipeline.evaluation.metric import LightMetric, MetricInfo, MetricResult
from phys_pipeline.media.cuts import cut_positions, thumbnails

_SAME = 0.05  # grey levels of mean absolute change: a repeated frame
_SAME_RATIO = 0.1  # of the 90th percentile of the changes, for repeated frames that a codec has touched ...
_SAME_MOST = 1.0  # ... but never more grey levels than this
_AWAY = 0.02  # root mean square distance, of the range, that a clip must have gone before it can come back
_BACK = 0.2  # of that distance: what counts as back
_TIE = 1e-3  # of the range: distances that differ by less are the same


def clip_thumbnails(clip: DecodedClip) -> np.ndarray:
    """The clip at 32x32 pixels, uint8 (T, 32, 32, 3); made once."""
    return clip.shared("thumbnails", lambda: thumbnails(clip.frames))


def clip_cuts(clip: DecodedClip) -> list[int]:
    """Frames that begin a new shot."""
    return cut_positions(clip_thumbnails(clip))


def repeated(frames: np.ndarray) -> list[bool]:
    """For each frame but the first: whether it shows the frame before it again. frames: uint8 (T, H, W, 3)."""
    changes = [float(np.abs(b.astype(np.int16) - a).mean()) for a, b in pairwise(frames)]
    most = max(_SAME, min(_SAME_MOST, _SAME_RATIO * float(np.percentile(changes, 90)))) if changes else 0.0
    return [change <= most for change in changes]


def longest_run(flags: list[bool]) -> int:
    """Most flags in a row that are set."""
    longest = current = 0
    for flag in flags:
        current = current + 1 if flag else 0
        longest = max(longest, current)
    return longest


class Returns(NamedTuple):
    """``earlier``: for each frame the number of the earlier frame it shows again, or None.

    ``kind``: "loop" (with its ``period`` in frames), "back and forth", "mixed" or "none".
    """

    earlier: list[int | None]
    kind: str
    period: int | None


def returns(frames: np.ndarray) -> Returns:
    """Which frames come back to an earlier one: the clip left it by 2 % of the range or more, and now is within a fifth of that.

    frames: small, uint8 (T, h, w, 3).
    """
    flat = frames.reshape(len(frames), -1).astype(np.float32) / 255
    squares = (flat**2).sum(axis=1)
    products = flat @ flat.T
    distance = np.sqrt(np.maximum(squares[:, None] + squares - 2 * products, 0) / flat.shape[1])
    away = np.zeros_like(distance)  # how far the clip has been from frame i between i and j
    away[:, 1:] = np.maximum.accumulate(np.triu(distance), axis=1)[:, :-1]
    back = np.triu((away >= _AWAY) & (distance <= _BACK * away), k=2)
    earlier = [_latest(np.flatnonzero(back[:, j]), distance[:, j]) for j in range(len(frames))]
    pairs = [(i, j) for j, i in enumerate(earlier) if i is not None]
    if not pairs:
        return Returns(earlier, "none", None)
    (period, same), (_, mirrored) = (
        Counter(values).most_common(1)[0] for values in ([j - i for i, j in pairs], [i + j for i, j in pairs])
    )
    if max(same, mirrored) < 0.75 * len(pairs):
        return Returns(earlier, "mixed", None)
    return Returns(earlier, "loop", period) if same >= mirrored else Returns(earlier, "back and forth", None)


def _latest(candidates: np.ndarray, distance: np.ndarray) -> int | None:
    """The last of the ``candidates`` (numbers of frames) that are about as near as the nearest one."""
    if not len(candidates):
        return None
    near = distance[candidates] <= 1.1 * distance[candidates].min() + _TIE
    return int(candidates[near][-1])


class Breaks(LightMetric):
    """Counts and shares of what a camera doesn't record."""

    infos: ClassVar[tuple[MetricInfo, ...]] = (
        MetricInfo(
            "cuts", "Cuts", "count", "down", ("noweights", "motion", "quality"),
            "Frames that differ from the one before like another shot.", 2, 0.0, min_frames=3,
        ),
        MetricInfo(
            "freezes", "Repeated frames", "share", "down", ("noweights", "motion", "quality"),
            "Share of frames that show the frame before them again.", 3, 0.0, 1.0,
        ),
        MetricInfo(
            "loop", "Returning frames", "share", "neutral", ("noweights", "motion", "quality"),
            "Share of frames that come back to an earlier one after the clip had left it: loops, back and forth, pendulums.",
            3, 0.0, 1.0, min_frames=3,
        ),
    )  # fmt: skip

    def compute(self, clip: DecodedClip) -> Mapping[str, MetricResult]:
        cuts, same, back = clip_cuts(clip), repeated(clip.frames), returns(clip_thumbnails(clip))
        run = longest_run(same)
        return {
            "cuts": MetricResult(float(len(cuts)), details=_with_seconds({"frames": cuts}, cuts, clip.fps)),
            "freezes": MetricResult(
                float(np.mean(same)),
                per_frame=[float(flag) for flag in same],
                details={"longest_run": run, "longest_run_s": None if clip.fps is None else run / clip.fps},
            ),
            "loop": MetricResult(
                sum(i is not None for i in back.earlier) / len(back.earlier),
                details={
                    "kind": back.kind,
                    "period": back.period,
                    "period_s": None if back.period is None or clip.fps is None else back.period / clip.fps,
                },
            ),
        }


def _with_seconds(details: dict[str, Any], frames: list[int], fps: float | None) -> dict[str, Any]:
    return details if fps is None else {**details, "seconds": [frame / fps for frame in frames]}
