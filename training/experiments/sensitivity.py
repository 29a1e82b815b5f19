"""Whether the gains of ours against the base loss hang on what the intervals draw, or on prompts that were seen before."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from phys_pipeline.evaluation.scores import NO_SCORES, Scores
from phys_pipeline.evaluation.statistics import Pair
from training.experiments.effects import MUST_HOLD, Effect, Measure, effect, effect_among, per_seed
from training.experiments.tables import effect_text, table
from training.experiments.world import Asked, subject_of

_T_975 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365}  # Student's t by the number of seeds
Column = Mapping[str, Scores]


def sensitivity(base: Column, ours: Column, asked: Sequence[Asked], judged_before: int, clean: Path) -> str:
    """A table of the gains, each by another unit of sampling or on fewer prompts.

    Args:
        base, ours: scores by metric of the two columns.
        asked: the test prompts in the order of the file.
        judged_before: how many of the first ones were also used to judge the base model.
    """
    gains = [one for one in MUST_HOLD if one.gain]
    subjects = {one.id: subject_of(one.text) for one in asked}
    fresh = {one.id for one in asked[judged_before:]}
    new = {pair for column in (base, ours) for scores in column.values() for pair in scores.values if pair[0] in fresh}
    ways: list[tuple[str, Callable[[Measure], Effect | None]]] = [
        (f"prompts are drawn ({len(asked)}), as above", lambda one: effect(base, ours, one, clean)),
        (f"subjects are drawn ({len(set(subjects.values()))})", lambda one: clustered(base, ours, one, subjects, clean)),
        ("training seeds are the unit (Student's t)", lambda one: across_seeds(base, ours, one, clean)),
    ]
    if judged_before:
        ways.append(
            (
                f"only the {len(fresh)} prompts that never judged the base model",
                lambda one: effect_among(base, ours, one, new, clean),
            )
        )
    lines = [[name, *[effect_text(found(one), one) for one in gains]] for name, found in ways]
    return "## How sure the gains are\n\n" + table(["", *[f"{one.label} ({one.kind})" for one in gains]], lines)


def clustered(base: Column, ours: Column, one: Measure, cluster: Mapping[str, str], clean: Path) -> Effect | None:
    """The effect with an interval that draws whole clusters of prompts; ``cluster`` names each prompt's."""
    places: dict[Pair, int] = {}
    for pair in base.get(one.metric, NO_SCORES).values:
        places[pair] = len(places)

    def renamed(scores: Scores) -> Scores:  # (cluster, place) for (prompt, seed): what is drawn is the first of the two
        return replace(
            scores,
            used=tuple(replace(row, id=cluster[row.id], seed=places[row.pair]) for row in scores.used if row.pair in places),
        )

    first, second = ({one.metric: renamed(column.get(one.metric, NO_SCORES))} for column in (base, ours))
    return effect(first, second, one, clean)


def across_seeds(base: Column, ours: Column, one: Measure, clean: Path) -> Effect | None:
    """Mean of the seeds' effects, and Student's interval over them: what another training seed might give. None for one seed."""
    found = [value for value in per_seed(base, ours, one, clean).values() if value is not None]
    if len(found) not in _T_975:
        return None
    mean = statistics.fmean(found)
    half = _T_975[len(found)] * statistics.stdev(found) / len(found) ** 0.5
    return Effect(mean, (mean - half, mean + half), len(found))
