"""How one column differs from another, with a 95 % interval, and whether that is what was asked for.

Effects are paired over (prompt, seed) and their intervals draw whole prompts; seeds are few, so that their spread is shown, not
drawn (:func:`per_seed`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Literal

import numpy as np

from phys_pipeline.evaluation.metric import MetricInfo
from phys_pipeline.evaluation.metrics.frame_quality import CleanSet, frechet_distance
from phys_pipeline.evaluation.rows import Row
from phys_pipeline.evaluation.scores import NO_SCORES, Scores, collect
from phys_pipeline.evaluation.statistics import Pair, cluster_totals, paired_difference, paired_ratio

FRECHET = "frechet"  # of the frames' latents to the clean set's: a number of a set of clips, not of a clip
MOMENTS_OF = "spectrum_distance"  # the metric whose rows carry the latent moments
JERK_IN_PIXELS = "jerk_in_pixels"  # jerk times flow: sim2_jerk is relative to the motion, this isn't
_RESAMPLES = 2000  # of the Frechet distance, which costs more than a mean
Columns = Mapping[str, Mapping[str, Scores]]
Verdict = Literal["met", "met by the estimate alone", "not shown", "not met", "not measured"]


@dataclass(frozen=True)
class Effect:
    """Second column against first: a ratio of means, or a difference of shares in points; ``n`` pairs of clips."""

    value: float
    interval: tuple[float, float] | None
    n: int


@dataclass(frozen=True)
class Measure:
    """What two columns are compared by: the ratio of their means, or the difference of shares in points."""

    metric: str
    label: str
    kind: Literal["ratio", "points"]

    @property
    def no_effect(self) -> float:
        """A ratio of 1, a difference of 0 points."""
        return 1.0 if self.kind == "ratio" else 0.0


@dataclass(frozen=True)
class Requirement(Measure):
    """What an effect must be: at least or at most ``bound``. A gain must also differ from no effect, by its interval."""

    sign: Literal[1, -1]  # 1: at least the bound; -1: at most
    bound: float
    gain: bool

    @property
    def text(self) -> str:
        """For a table."""
        number = f"{self.bound:.2f}" if self.kind == "ratio" else f"{self.bound:+.0f} points"
        return f"{'at least' if self.sign > 0 else 'at most'} {number}"

    def verdict(self, effect: Effect | None) -> Verdict:
        """A gain is met by its estimate and an interval that excludes no effect; a guard by an interval within its bound."""
        if effect is None:
            return "not measured"
        if self.sign * effect.value < self.sign * self.bound:
            return "not met"
        edge = self.no_effect if self.gain else self.bound
        shown = effect.interval is not None and all(self.sign * end > self.sign * edge for end in effect.interval)
        return "met" if shown else "not shown" if self.gain else "met by the estimate alone"

    def broken(self, effect: Effect | None) -> bool:
        """Whether even the interval's better end is beyond the bound (without one: the estimate), or nothing is known."""
        if effect is None:
            return True
        best = effect.value if effect.interval is None else max(effect.interval, key=lambda end: self.sign * end)
        return self.sign * best < self.sign * self.bound


MUST_HOLD = (
    Requirement("sim2_jerk", "SIM(2) jerk", "ratio", -1, 0.80, True),
    Requirement("sim2_residual", "SIM(2) residual", "ratio", -1, 0.80, True),
    Requirement("warping_ratio", "Warping error / frame difference", "ratio", -1, 0.78, True),
    Requirement("direction_accuracy", "Direction right", "points", 1, 5.0, True),
    Requirement("dynamic_degree", "Dynamic degree", "ratio", 1, 0.95, False),
    Requirement("flow_score", "Flow", "ratio", 1, 0.95, False),
    Requirement("spectrum_distance", "Spatial spectrum distance", "ratio", -1, 1.02, False),
    Requirement(FRECHET, "Frechet distance of the frames", "ratio", -1, 1.02, False),
)
BESIDE = (  # what the requirements don't say: amounts that are not relative to the motion, the score itself, detail
    Measure("warping_error", "Warping error, raw", "ratio"),
    Measure(JERK_IN_PIXELS, "SIM(2) jerk x flow", "ratio"),
    Measure("spectral_loss", "Motion loss (score)", "ratio"),
    Measure("plausibility", "Plausibility", "ratio"),
    Measure("detail", "Fine detail", "ratio"),
)
EVERY = (*MUST_HOLD, *BESIDE)


def columns_of(rows: Sequence[Row], infos: Sequence[MetricInfo]) -> dict[str, dict[str, Scores]]:
    """Usable values by column and metric; the rows of a FRECHET are those that carry moments."""
    return {
        column: {**found, FRECHET: found.get(MOMENTS_OF, NO_SCORES), JERK_IN_PIXELS: _jerk_in_pixels(found)}
        for column, found in collect(rows, infos).items()
    }


def _jerk_in_pixels(found: Mapping[str, Scores]) -> Scores:
    """Jerk times mean flow of each clip, in pixels per frame: about what the jerk is before it is divided by the motion."""
    jerk, flow = found.get("sim2_jerk", NO_SCORES), found.get("flow_score", NO_SCORES).values
    used = [row for row in jerk.used if row.value is not None and row.pair in flow]
    return replace(jerk, used=tuple(replace(row, value=row.value * flow[row.pair]) for row in used if row.value is not None))


def jerk_by_motion(column: Mapping[str, Scores]) -> Effect | None:
    """Slope of log jerk on log flow within prompts, over their seeds: 0 where jerk is relative to the motion, -1 where more
    motion dilutes a jerk of fixed size. None where no prompt has two seeds.
    """
    jerk, flow = (column.get(metric, NO_SCORES).values for metric in ("sim2_jerk", "flow_score"))
    points: dict[str, list[tuple[float, float]]] = {}
    for pair in jerk.keys() & flow.keys():
        if jerk[pair] > 0 and flow[pair] > 0:
            points.setdefault(pair[0], []).append((math.log(flow[pair]), math.log(jerk[pair])))
    values = []
    for prompt, found in points.items():
        x, y = (np.array(found) - np.mean(found, axis=0)).T  # (seeds,) each
        values.append((prompt, [float(x @ y), float(x @ x)]))
    above, below = np.sum([numbers for _, numbers in values], axis=0) if values else (0.0, 0.0)
    if below == 0:
        return None
    totals = cluster_totals(values)
    drawn = totals[:, 0] / totals[:, 1]
    low, high = np.percentile(drawn[np.isfinite(drawn)], [2.5, 97.5])
    return Effect(float(above / below), (float(low), float(high)), sum(len(found) for found in points.values()))


@lru_cache(maxsize=2)
def clean_moments(folder: Path) -> np.ndarray:
    """Latent moments of a folder of clean clips."""
    return CleanSet(folder).moments


def effect(first: Mapping[str, Scores], second: Mapping[str, Scores], wanted: Measure, clean: Path) -> Effect | None:
    """``second`` against ``first``; None where they share no clip with a value, or the first mean is 0."""
    a, b = first.get(wanted.metric, NO_SCORES), second.get(wanted.metric, NO_SCORES)
    if not a.values.keys() & b.values.keys():
        return None
    if wanted.metric == FRECHET:
        return _frechet_ratio(a, b, clean_moments(clean))
    if wanted.kind == "points":
        found = paired_difference(a.values, b.values)
        return Effect(100 * found.mean, found.interval and (100 * found.interval[0], 100 * found.interval[1]), found.n)
    try:
        return Effect(*paired_ratio(a.values, b.values))
    except ValueError:
        return None


def effect_among(
    first: Mapping[str, Scores], second: Mapping[str, Scores], wanted: Measure, pairs: Collection[Pair], clean: Path
) -> Effect | None:
    """The effect on these (prompt, seed) only."""
    a, b = ({wanted.metric: column.get(wanted.metric, NO_SCORES).of(pairs)} for column in (first, second))
    return effect(a, b, wanted, clean)


def per_seed(first: Mapping[str, Scores], second: Mapping[str, Scores], wanted: Measure, clean: Path) -> dict[int, float | None]:
    """The effect of each seed alone."""
    pairs = first.get(wanted.metric, NO_SCORES).values.keys() & second.get(wanted.metric, NO_SCORES).values.keys()
    found: dict[int, float | None] = {}
    for seed in sorted({seed for _, seed in pairs if seed is not None}):
        one = effect_among(first, second, wanted, {pair for pair in pairs if pair[1] == seed}, clean)
        found[seed] = None if one is None else one.value
    return found


def frechet_to_clean(scores: Scores, clean: Path) -> float:
    """Squared Frechet distance of a column's frames to the clean set's."""
    return float(frechet_distance(np.mean(list(_moments(scores).values()), axis=0), clean_moments(clean)))


def _moments(scores: Scores) -> dict[Pair, np.ndarray]:
    return {row.pair: np.array(row.details["latent_moments"]) for row in scores.used}


def _frechet_ratio(first: Scores, second: Scores, clean: np.ndarray) -> Effect:
    before, after = _moments(first), _moments(second)
    pairs = [pair for pair in before if pair in after]
    values = [(pair[0], [1.0, *before[pair], *after[pair]]) for pair in pairs]
    whole = _ratio(np.sum([numbers for _, numbers in values], axis=0), clean)
    if len({pair[0] for pair in pairs}) < 2:
        return Effect(float(whole), None, len(pairs))
    low, high = np.percentile(_ratio(cluster_totals(values, _RESAMPLES), clean), [2.5, 97.5])
    return Effect(float(whole), (float(low), float(high)), len(pairs))


def _ratio(totals: np.ndarray, clean: np.ndarray) -> np.ndarray:  # (..., 1 + 2 K) sums of 1 and both moments
    means = totals[..., 1:] / totals[..., :1]
    before, after = np.split(means, 2, axis=-1)
    return frechet_distance(after, clean) / frechet_distance(before, clean)
