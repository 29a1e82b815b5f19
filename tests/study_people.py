"""Simulated participants of a study."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from phys_pipeline.evaluation.study.session import Session

Chooser = Callable[[dict[str, Any], dict[str, Any]], str]  # the key's entries left and right -> "left" or "right"


def answer_all(session: Session, key: dict[str, Any], choose: Chooser, *, attentive: bool = True, seconds: float = 8.0) -> str:
    """One simulated participant answers everything; returns the id."""
    participant = session.new_participant()
    while (trial := session.next_trial(participant)) is not None:
        left, right = key["files"][trial.left], key["files"][trial.right]
        side = choose(left, right)
        if "check" in left:
            side = "left" if (left["check"] == "original") == attentive else "right"
        given = {"trial": trial.trial, "overall": side, "motion": side, "seconds": seconds, "plays": 2, "replays": 0}
        session.record(participant, given)
    return participant
