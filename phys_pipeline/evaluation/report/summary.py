"""The mean of some scores with its interval, as `report.json` has it."""

from __future__ import annotations

import math
from typing import Any

from phys_pipeline.evaluation.scores import Scores
from phys_pipeline.evaluation.statistics import cluster_bootstrap, wilson


def summarize(
    scores: Scores, share: tuple[float, float] | None = None, seed: int = 0, stratum: tuple[str, str] | None = None
) -> dict[str, Any]:
    """``{mean, ci, n, prompts, interval, status, backend, reason}``; of the clips whose label ``stratum[0]`` is ``stratum[1]``.

    ``mean`` is over clips. ``share`` says that the metric has no values but these two, low and high: the interval is then
    Wilson's, if every prompt is there once. Else it is the bootstrap over prompts; None with one prompt.
    """
    rows = [row for row in scores.used if stratum is None or row.labels.get(stratum[0]) == stratum[1]]
    values = [(row.id, row.value) for row in rows if row.value is not None]
    about = {"status": scores.status, "backend": scores.backend, "reason": scores.reason}
    if not values:
        return {"mean": None, "ci": None, "n": 0, "prompts": 0, "interval": "", **about, "reason": scores.reason or "no clip"}
    mean = math.fsum(value for _, value in values) / len(values)
    prompts = len({prompt for prompt, _ in values})
    ci, kind = None, ""
    if share is not None and prompts == len(values):
        (low, high), kind = share, "wilson"
        ci = [low + (high - low) * end for end in wilson(sum(value == high for _, value in values), len(values))]
    elif prompts > 1:
        ci, kind = list(cluster_bootstrap(values, seed=seed)), "bootstrap"
    return {"mean": mean, "ci": ci, "n": len(values), "prompts": prompts, "interval": kind, **about}
