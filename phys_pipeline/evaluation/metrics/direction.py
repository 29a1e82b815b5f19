"""Does the clip move the way its prompt says? Right or wrong per clip, for objects and for cameras.

Labels of an object: left, right, up, down, clockwise, counterclockwise, zoom_in (grows), zoom_out (shrinks), static. Labels of a
camera say what the camera does, and its picture does the opposite: "pan_left" moves the picture right. An object is judged by
the registration of `phys-pipeline score`, which follows what changes; a camera by a similarity fitted to the flow of the whole
frame, so that an object before a still ground is no pan.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from phys_pipeline.evaluation.clip import DecodedClip, FramePair
from phys_pipeline.evaluation.flow import FlowMetric
from phys_pipeline.evaluation.metric import MetricInfo, MetricResult, skipped
from phys_pipeline.evaluation.metrics.similarity import motions, whole_frame_track
from phys_pipeline.evaluation.metrics.spectral import motion_report
from phys_pipeline.evaluation.metrics.warping import NO_RATE
from phys_pipeline.evaluation.prompts.rules import direction_by_rules

if TYPE_CHECKING:
    from phys_pipeline.evaluation.metrics.similarity import SimilarityFit
    from phys_pipeline.spectral import MotionReport

OBJECT = ("left", "right", "up", "down", "clockwise", "counterclockwise", "zoom_in", "zoom_out", "static")
CAMERA: dict[str, str] = {  # what the camera does -> what its picture does
    "pan_left": "right", "pan_right": "left", "tilt_up": "down", "tilt_down": "up",
    "roll_clockwise": "counterclockwise", "roll_counterclockwise": "clockwise",
    "camera_zoom_in": "zoom_in", "camera_zoom_out": "zoom_out", "dolly_in": "zoom_in", "dolly_out": "zoom_out",
    "camera_static": "static",
}  # fmt: skip
CHANCE = 1 / len(OBJECT)  # of a guess among what a picture can do
_STATIC_PERCENT_PER_S = 1.0  # of the shorter side: a slower picture is still, as in the motion report


def picture_direction(label: str) -> str | None:
    """What the picture does under a label of either family; None for an unknown label."""
    return CAMERA.get(label) or (label if label in OBJECT else None)


def direction_of_report(report: MotionReport) -> str:
    """One of ``OBJECT``: the dominant motion of what changes, and its sign."""
    if report.dominant == "static":
        return "static"
    if report.dominant == "rotation":
        return _turn(report.rotation_deg_per_s)
    if report.dominant == "scaling":
        return _growth(report.zoom_percent_per_s)
    return _side(*report.velocity_px_per_s)


def direction_of_frame(fits: list[SimilarityFit | None], fps: float, short_side: int) -> str:
    """One of ``OBJECT``: the motion of the whole frame, summed over all pairs. ``short_side`` in pixels of the flow."""
    total = motions(fits).mean(axis=0) * fps * 100 / short_side  # % of the shorter side per second
    speeds = math.hypot(total[0], total[1]), abs(total[2]), abs(total[3])
    if max(speeds) < _STATIC_PERCENT_PER_S:
        return "static"
    largest = int(np.argmax(speeds))
    return (_side(total[0], total[1]), _turn(total[2]), _growth(total[3]))[largest]


def _side(x: float, y: float) -> str:
    if abs(x) >= abs(y):
        return "right" if x > 0 else "left"
    return "down" if y > 0 else "up"


def _turn(angle: float) -> str:
    return "clockwise" if angle > 0 else "counterclockwise"


def _growth(zoom: float) -> str:
    return "zoom_in" if zoom > 0 else "zoom_out"


class DirectionAccuracy(FlowMetric):
    """1 where the clip moves as its label, or else its prompt, says; 0 where it doesn't."""

    infos: ClassVar[tuple[MetricInfo, ...]] = (
        MetricInfo(
            "direction_accuracy", "Direction", "share right", "up", ("noweights", "motion", "text", "physics"),
            "1 where the clip moves in the direction that its label or prompt asks for, else 0; a guess has 1/9.", 3, 0.0, 1.0,
            min_frames=3, packages=("opencv-python-headless",), version=2,
        ),
    )  # fmt: skip

    def start(self, clip: DecodedClip) -> _DirectionState:
        return _DirectionState(clip)


class _DirectionState:
    def __init__(self, clip: DecodedClip) -> None:
        self._clip = clip
        given = clip.sample.labels.get("direction")
        self._label = given or direction_by_rules(clip.sample.prompt)
        self._source = "label" if given else "prompt"
        self._short = 1
        self._track = whole_frame_track(clip)

    def add(self, pair: FramePair) -> None:
        if self._label in CAMERA:
            self._short = min(pair.first.shape[:2])
            self._track.add(pair)

    def results(self) -> Mapping[str, MetricResult]:
        return {"direction_accuracy": self._result()}

    def _result(self) -> MetricResult:
        if self._label is None:
            return skipped("neither a label direction nor a prompt that says one")
        wanted = picture_direction(self._label)
        if wanted is None:
            return skipped(f"unknown direction {self._label!r}: use one of {', '.join((*OBJECT, *CAMERA))}")
        if self._clip.fps is None:
            return skipped(NO_RATE)
        if self._label in CAMERA:
            found = direction_of_frame(self._track.fits, self._clip.fps, self._short)
        else:
            found = direction_of_report(motion_report(self._clip))
        details = {"label": self._label, "from": self._source, "picture": wanted, "found": found, "chance": CHANCE}
        return MetricResult(float(found == wanted), details=details)
