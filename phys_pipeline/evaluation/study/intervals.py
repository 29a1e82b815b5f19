"""An interval for votes that share participants and prompts at the same time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from phys_pipeline.evaluation.statistics import RESAMPLES


def two_way_bootstrap(values: Sequence[tuple[str, str, float]], resamples: int = RESAMPLES, seed: int = 0) -> tuple[float, float]:
    """95 % percentile interval of the mean of (participant, prompt, value) when both are drawn with replacement, independently.

    The pigeonhole bootstrap of Owen (2007): a vote counts as often as its participant times as often as its prompt were drawn.
    Never much too narrow, and too wide where votes do not depend on participants and prompts.

    Raises:
        ValueError: no values.
    """
    if not values:
        raise ValueError("no values to resample")
    rows = {name: index for index, name in enumerate(sorted({who for who, _, _ in values}))}
    columns = {name: index for index, name in enumerate(sorted({what for _, what, _ in values}))}
    sums, counts = np.zeros((2, len(rows), len(columns)))
    for who, what, value in values:
        sums[rows[who], columns[what]] += value
        counts[rows[who], columns[what]] += 1
    rng = np.random.default_rng(seed)
    people = rng.multinomial(len(rows), np.full(len(rows), 1 / len(rows)), size=resamples)  # (resamples, participants)
    prompts = rng.multinomial(len(columns), np.full(len(columns), 1 / len(columns)), size=resamples)
    totals, votes = (((people @ table) * prompts).sum(axis=1) for table in (sums, counts))
    low, high = np.percentile(totals[votes > 0] / votes[votes > 0], [2.5, 97.5])
    return float(low), float(high)
