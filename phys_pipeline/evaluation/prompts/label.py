"""What a prompt says about motion: the label that splits, tables per motion and the check of directions share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from phys_pipeline.errors import DataError
from phys_pipeline.evaluation.sample import LABELS

RIGID = ("translation", "rotation", "scaling")
MOVERS = ("object", "camera")
# direction (as phys_pipeline.evaluation.metrics.direction judges it) -> the motion it belongs to and who can show it
DIRECTIONS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    **dict.fromkeys(("left", "right", "up", "down"), ("translation", ("object",))),
    **dict.fromkeys(("pan_left", "pan_right", "tilt_up", "tilt_down"), ("translation", ("camera",))),
    **dict.fromkeys(("clockwise", "counterclockwise"), ("rotation", ("object",))),
    **dict.fromkeys(("roll_clockwise", "roll_counterclockwise"), ("rotation", ("camera",))),
    **dict.fromkeys(("zoom_in", "zoom_out"), ("scaling", ("object",))),  # it grows or comes nearer, shrinks or recedes
    **dict.fromkeys(("camera_zoom_in", "camera_zoom_out", "dolly_in", "dolly_out"), ("scaling", ("camera",))),
    "static": ("other", MOVERS),
}


@dataclass(frozen=True)
class Label:
    """The motion that a prompt asks for, by one labeller.

    Args:
        motion: translation, rotation, scaling, mixed or other (rubric.md defines them).
        direction: of ``DIRECTIONS``, where the prompt names one.
        amplitude: "large" or "slow", where the prompt says so.
        labeller: who says so: "author", "rules", "chat:MODEL", "override".
        confidence: 0 to 1. An order within one labeller, not a probability.
        matched: the words that decided.

    Raises:
        DataError: an unknown value, or a direction that does not belong to the motion.
    """

    motion: str
    direction: str | None = None
    amplitude: str | None = None
    labeller: str = "author"
    confidence: float = 1.0
    matched: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_one_of("motion", self.motion, LABELS["motion"] or ())
        if self.amplitude is not None:
            _check_one_of("amplitude", self.amplitude, LABELS["amplitude"] or ())
        if self.direction is not None:
            _check_one_of("direction", self.direction, tuple(DIRECTIONS))
            if DIRECTIONS[self.direction][0] != self.motion:
                raise DataError(f"direction {self.direction!r} belongs to {DIRECTIONS[self.direction][0]}, not to {self.motion}")
        if not 0.0 <= self.confidence <= 1.0:
            raise DataError(f"confidence {self.confidence} must lie between 0 and 1")

    @property
    def stratum(self) -> str:
        """ "simple" where one rigid transform describes the motion (a still picture needs none), else "complex"."""
        return "simple" if self.motion in RIGID or self.direction == "static" else "complex"

    def sample_labels(self) -> dict[str, str]:
        """The labels of a ``VideoSample``."""
        given = {"motion": self.motion, "stratum": self.stratum, "direction": self.direction, "amplitude": self.amplitude}
        return {name: value for name, value in given.items() if value is not None}

    def to_dict(self) -> dict[str, Any]:
        """JSON of a split file, without what is not set."""
        fields = {**asdict(self), "stratum": self.stratum, "matched": list(self.matched)}
        return {name: value for name, value in fields.items() if value not in (None, [])}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Label:
        """Inverse of :meth:`to_dict`; other keys are ignored. Raises DataError for a missing or wrong value."""
        try:
            label = cls(
                motion=fields["motion"],
                direction=fields.get("direction"),
                amplitude=fields.get("amplitude"),
                labeller=str(fields.get("labeller", "author")),
                confidence=float(fields.get("confidence", 1.0)),
                matched=tuple(fields.get("matched", ())),
            )
        except KeyError as error:
            raise DataError(f"a label needs {error}") from None
        except (TypeError, ValueError) as error:
            raise DataError(f"a label has a wrong value: {error}") from None
        if fields.get("stratum", label.stratum) != label.stratum:
            raise DataError(f"motion {label.motion} is {label.stratum}, not {fields['stratum']}")
        return label


def _check_one_of(name: str, value: Any, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise DataError(f"{name}={value!r} is not one of {', '.join(allowed)}")
