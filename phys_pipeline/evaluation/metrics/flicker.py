"""Flicker: change of pixels from frame to frame, and change of brightness that motion does not explain."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import ClassVar

import numpy as np

from phys_pipeline.evaluation.clip import DecodedClip
from phys_pipeline.evaluation.metric import LightMetric, MetricInfo, MetricResult
from phys_pipeline.evaluation.metrics.breaks import clip_cuts
from phys_pipeline.media.scaling import scaled_while_reading

_PATCHES = 8  # on each side
_DARKEST = 2 / 255  # added to every brightness: in black, a grey level is no change
_LUMA = np.array([0.299, 0.587, 0.114], np.float32)


def brightness_steps(frames: np.ndarray) -> np.ndarray:
    """Log change of brightness from each frame to the next that most patches share, (T - 1,).

    The median over 8x8 patches of the log ratio of their mean luma: what moves makes some patches brighter and others darker, a
    change of exposure all of them alike.
    """
    # frames: uint8 (T, H, W, 3)
    patches = np.stack([scaled_while_reading(frame, _PATCHES, _PATCHES) for frame in frames])
    light = np.log(patches.astype(np.float32) @ _LUMA / 255 + _DARKEST)  # (T, 8, 8)
    return np.median(np.diff(light, axis=0), axis=(1, 2))


def brightness_flicker(steps: np.ndarray, cuts: list[int]) -> tuple[float, list[float | None]]:
    """Mean absolute change of the steps (T - 1,) from one to the next, halved, in %, and its series per pair.

    A fade has equal steps, hence 0; brightness that goes up and down by a % has a. Steps over a cut are left out.
    """
    changes = [
        None if {index + 1, index + 2} & set(cuts) else 50 * abs(float(after - before))
        for index, (before, after) in enumerate(pairwise(steps))
    ]
    known = [change for change in changes if change is not None]
    return float(np.mean(known)) if known else 0.0, [None, *changes]


def clip_brightness_flicker(clip: DecodedClip) -> tuple[float, list[float | None]]:
    """Value and series of a clip, computed once."""
    return clip.shared("brightness flicker", lambda: brightness_flicker(brightness_steps(clip.frames), clip_cuts(clip)))


class Flicker(LightMetric):
    """VBench's temporal flickering, and flicker of brightness alone."""

    infos: ClassVar[tuple[MetricInfo, ...]] = (
        MetricInfo(
            "temporal_flicker", "Temporal flickering", "share", "up", ("noweights", "motion", "quality"),
            "1 - mean absolute change of pixels between frames (VBench, meant for still scenes). Motion lowers it, a frozen clip "
            "has 1.", 4, 0.0, 1.0,
        ),
        MetricInfo(
            "brightness_flicker", "Brightness flicker", "%", "down", ("noweights", "motion", "quality"),
            "Change of brightness that all parts of the picture share and that is not a steady trend, per frame.", 2, 0.0,
            min_frames=3,
        ),
    )  # fmt: skip

    def compute(self, clip: DecodedClip) -> Mapping[str, MetricResult]:
        frames = clip.frames
        changes = [float(np.abs(b.astype(np.int16) - a).mean()) / 255 for a, b in pairwise(frames)]
        value, series = clip_brightness_flicker(clip)
        return {
            "temporal_flicker": MetricResult(1 - float(np.mean(changes)), per_frame=[1 - change for change in changes]),
            "brightness_flicker": MetricResult(value, per_frame=series),
        }
