"""Which pairs a measure gets right, and how sure the shares are.

A pair is right when the copy's score is higher than the clip's. Equal scores are wrong, and so is a pair with a score that could
not be computed: the same for every measure. Pairs of one clip depend on each other; the clip bootstrap draws whole clips.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from benchmarks.scores import Row
from phys_pipeline.evaluation.statistics import cluster_bootstrap, wilson

RESAMPLES = 4000


class Outcome(NamedTuple):
    """One pair judged by one measure."""

    clip: str
    start: int
    kind: str
    strength: float
    right: bool
    computed: bool


class Share(NamedTuple):
    """A share or a difference of shares, its 95 % Wilson interval (differences: none) and its 95 % clip bootstrap interval."""

    value: float
    total: int
    wilson: tuple[float, float]
    clips: tuple[float, float]


def judge(rows: Iterable[Row]) -> list[Outcome]:
    """The outcomes of one measure's rows, in their order."""
    outcomes = []
    for row in rows:
        for name, score in row.copies.items():
            kind, strength = name.rsplit(" ", 1)
            computed = score is not None and row.clean is not None
            right = score is not None and row.clean is not None and score > row.clean
            outcomes.append(Outcome(row.clip, row.start, kind, float(strength), right, computed))
    return outcomes


def share_right(outcomes: Sequence[Outcome]) -> Share | None:
    """Share of right pairs; None without pairs."""
    if not outcomes:
        return None
    right = sum(outcome.right for outcome in outcomes)
    clips = clip_bootstrap([(outcome.clip, float(outcome.right)) for outcome in outcomes])
    return Share(right / len(outcomes), len(outcomes), wilson(right, len(outcomes)), clips)


def paired_difference(first: Sequence[Outcome], second: Sequence[Outcome]) -> Share | None:
    """Share of right pairs of ``first`` minus that of ``second`` on the same pairs; None without pairs."""
    if not first:
        return None
    gains = []
    for one, other in zip(first, second, strict=True):
        if one[:4] != other[:4]:
            raise ValueError(f"the two measures were not scored on the same pairs: {one[:4]}, {other[:4]}")
        gains.append((one.clip, float(one.right) - float(other.right)))
    value = sum(gain for _, gain in gains) / len(gains)
    return Share(value, len(gains), (math.nan, math.nan), clip_bootstrap(gains))


def clip_bootstrap(values: Sequence[tuple[str, float]], resamples: int = RESAMPLES, seed: int = 0) -> tuple[float, float]:
    """95 % percentile interval of the mean of (clip, value) when whole clips are drawn with replacement."""
    return cluster_bootstrap(values, resamples, seed)
