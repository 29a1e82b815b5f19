"""A motion report in plain words: what moves, how fast, how steadily, and when something breaks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from phys_pipeline.media.events import Event

# Of the calibrated composite: perfect synthetic motion has 0.2 to 0.4, handheld footage about 0.75, white noise 1.2 (README).
_STEADY, _HANDHELD = 0.45, 0.85
_TRUSTED = 0.3  # share of the change between frames that one motion must explain
_WORSE = 0.15  # by which a window's loss exceeds the clip's before it is named
_LEAST_SPEED = {"translation": 1.0, "rotation": 1.0, "scaling": 1.0}  # %/s, degrees/s, %/s: slower is not mentioned
_MOST_EVENTS = 3
_KINDS = {"flash": "flash", "cut": "cut", "standstill": "stands still"}
_COMPASS = (  # clockwise from the x axis, y down
    "to the right", "down to the right", "down", "down to the left", "to the left", "up to the left", "up", "up to the right",
)  # fmt: skip


def describe_motion(report: Mapping[str, Any], events: Sequence[Event] = ()) -> str:
    """One or two sentences, for example "Mostly rotation, 12 degrees/s clockwise, steady; flash at 0.8 s."

    ``report`` is a motion report as JSON; ``events`` of :func:`phys_pipeline.media.events.find_events`.
    """
    parts = [_motion(report), _steadiness(report)]
    text = ", ".join(part for part in parts if part)
    worst = _worst(report)
    tail = [*([f"least steady around {worst:.1f} s"] if worst is not None else []), *_moments(events)]
    if tail:
        text += "; " + ", ".join(tail)
    return text[0].upper() + text[1:] + "."


def _motion(report: Mapping[str, Any]) -> str:
    dominant = report["dominant"]
    if dominant == "static":
        return "nothing moves" if report["is_static"] else "hardly anything moves"
    if report["confidence"] < _TRUSTED:
        return "much moves, but no single shift, turn or zoom explains it"
    names = ("translation", "rotation", "scaling")
    others = [_phrase(name, report) for name in names if name != dominant and _notable(name, report)]
    words = {"translation": "translation", "rotation": "rotation", "scaling": "zoom"}[dominant]
    text = f"mostly {words}, {_phrase(dominant, report)}"
    return text + (f" (also {' and '.join(others)})" if others else "")


def _notable(name: str, report: Mapping[str, Any]) -> bool:
    return _amount(name, report) >= _LEAST_SPEED[name] and report["weights"][name] > 0.25


def _amount(name: str, report: Mapping[str, Any]) -> float:
    velocity = report["velocity"]
    speeds = {
        "translation": math.hypot(velocity["x_percent_per_s"], velocity["y_percent_per_s"]),
        "rotation": abs(report["rotation_deg_per_s"]),
        "scaling": abs(report["zoom_percent_per_s"]),
    }
    return speeds[name]


def _phrase(name: str, report: Mapping[str, Any]) -> str:
    amount = _amount(name, report)
    number = f"{amount:.0f}" if amount >= 3 else f"{amount:.1f}"
    if name == "translation":
        velocity = report["velocity"]
        angle = math.atan2(velocity["y_percent_per_s"], velocity["x_percent_per_s"])
        return f"{number} % of the width per second {_COMPASS[round(angle / (math.pi / 4)) % 8]}"
    if name == "rotation":
        return f"{number} degrees/s {'clockwise' if report['rotation_deg_per_s'] > 0 else 'counterclockwise'}"
    return f"{'growing' if report['zoom_percent_per_s'] > 0 else 'shrinking'} {number} %/s"


def _steadiness(report: Mapping[str, Any]) -> str:
    if report["is_static"]:
        return ""
    loss = report["loss"]["composite"]
    if loss < _STEADY:
        return "steady"
    return "about as uneven as handheld footage" if loss < _HANDHELD else "unsteady"


def _worst(report: Mapping[str, Any]) -> float | None:
    """The middle of the window that is clearly worse than the clip, in seconds."""
    timeline = report["timeline"]
    worst = max(timeline, key=lambda window: window["composite"])
    if len(timeline) < 2 or worst["composite"] < report["loss"]["composite"] + _WORSE:
        return None
    return float(worst["start_s"] + worst["end_s"]) / 2


def _moments(events: Sequence[Event]) -> list[str]:
    texts = []
    for kind, word in _KINDS.items():
        these = [event for event in events if event.kind == kind]
        if not these:
            continue
        shown = ", ".join(_moment(event) for event in these[:_MOST_EVENTS])
        more = f" and {len(these) - _MOST_EVENTS} more" if len(these) > _MOST_EVENTS else ""
        texts.append(f"{word} {'' if kind == 'standstill' else 'at '}{shown}{more}")
    return texts


def _moment(event: Event) -> str:
    return f"from {event.seconds:.1f} to {event.seconds + event.length:.1f} s" if event.length else f"{event.seconds:.1f} s"
