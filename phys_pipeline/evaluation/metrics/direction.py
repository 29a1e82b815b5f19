"""Does the clip move the way its prompt says? Right or wrong per clip, for objects and for cameras.

Labels of an object: left, right, up, down, clockwise, counterclockwise, zoom_in (grows), zoom_out (shrinks), static. Labels of a
camera say what the camera does, and its picture does the opposite: "pan_left" moves the picture right. An object is judged by
the registration of `phys-pipeline score`, which follows what changes; a camera by a similarity fitted to the flow of the whole
frame, so that an object before a still ground is no pan.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from phys_pipeline.evaluation.clip import DecodedClip, FramePair
from phys_pipeline.evaluation.flow import flow_backend
from phys_pipeline.evaluation.metric import Availability, MetricInfo, MetricResult, Settings, skipped
from phys_pipeline.evaluation.metrics.similarity import motions, whole_frame_track
from phys_pipeline.evaluation.metrics.spectral import motion_report
from phys_pipeline.evaluation.metrics.warping import NO_RATE

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

_OBJECT_MOVES = r"\b(?:mov|slid|glid|drift|travel|fl(?:y|ie)|driv|walk|run|swim|sail|roll|go)(?:e|es|s|ing)?\s+(?:to\s+the\s+)?"
_TURNS = r"\b(?:rotat|turn|spin)(?:e|es|s|ning|ing)?\s+"
_CAMERA = r"\bcamera\s+(?:\w+\s+){0,2}?"
_TO = r"(?:ning|ing|s|es|e)?\s+(?:to\s+the\s+)?"
_NEGATED = re.compile(r"\b(?:not|never|without)\s+(?!move\b)\w+(?:\s+\w+){0,3}")  # "does not move" is a direction: static
PROMPT_DIRECTIONS: tuple[tuple[str, str], ...] = (  # regular expression -> label; a camera's come first
    *((rf"{_CAMERA}pan{_TO}{side}\b", f"pan_{side}") for side in ("left", "right")),
    *((rf"{_CAMERA}tilt{_TO}{side}(?:wards?)?\b", f"tilt_{side}") for side in ("up", "down")),
    *((rf"{_CAMERA}roll{_TO}{turn}\b", f"roll_{turn}") for turn in ("clockwise", "counterclockwise")),
    *((rf"{_CAMERA}zoom{_TO}{way}\b", f"camera_zoom_{way}") for way in ("in", "out")),
    *((rf"{_CAMERA}doll(?:y|ies|ying)\s+{way}\b", f"dolly_{way}") for way in ("in", "out")),
    (r"\bcamera\s+(?:is\s+|stays\s+|remains\s+)?(?:static|still|fixed)\b|\b(?:static|fixed)\s+camera\b", "camera_static"),
    *((rf"{_OBJECT_MOVES}{side}(?:wards?)?\b", side) for side in ("left", "right", "up", "down")),
    *((rf"{_TURNS}{turn}\b", turn) for turn in ("clockwise", "counterclockwise")),
    (r"\bgrow(?:s|ing)\b|\bbecom(?:es|ing)\s+(?:larger|bigger)\b", "zoom_in"),
    (r"\bshrink(?:s|ing)\b|\bbecom(?:es|ing)\s+smaller\b", "zoom_out"),
    (r"\bstay(?:s|ing)\s+still\b|\bis\s+still\b|\bdoes\s+not\s+move\b|\bmotionless\b", "static"),
)


def direction_of_prompt(prompt: str) -> str | None:
    """The label that a prompt asks for; None where it asks for none, or for several of one kind.

    What the camera does counts before what an object does. A phrase after "not", "never" or "without" doesn't count.
    """
    text = re.sub(r"\b(?:anti-?|counter-)clockwise\b", "counterclockwise", prompt.lower())
    text = _NEGATED.sub(" ", text)
    found = [label for pattern, label in PROMPT_DIRECTIONS if re.search(pattern, text)]
    for family in (CAMERA, OBJECT):
        own = [label for label in found if label in family]
        if own:
            return own[0] if len(own) == 1 else None
    return None


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


class DirectionAccuracy:
    """1 where the clip moves as its label, or else its prompt, says; 0 where it doesn't."""

    infos: ClassVar[tuple[MetricInfo, ...]] = (
        MetricInfo(
            "direction_accuracy", "Direction", "share right", "up", ("noweights", "motion", "text", "physics"),
            "1 where the clip moves in the direction that its label or prompt asks for, else 0; a guess has 1/9.", 3, 0.0, 1.0,
            min_frames=3, packages=("opencv-python-headless",),
        ),
    )  # fmt: skip

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def available(self) -> Availability:
        return flow_backend(self._settings)

    def start(self, clip: DecodedClip) -> _DirectionState:
        return _DirectionState(clip)


class _DirectionState:
    def __init__(self, clip: DecodedClip) -> None:
        self._clip = clip
        given = clip.sample.labels.get("direction")
        self._label = given or direction_of_prompt(clip.sample.prompt)
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
