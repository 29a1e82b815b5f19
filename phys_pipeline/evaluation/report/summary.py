"""The mean of some scores with its interval, as `report.json` has it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from phys_pipeline.evaluation.metric import MetricInfo
from phys_pipeline.evaluation.rows import Row
from phys_pipeline.evaluation.scores import Scores, is_share
from phys_pipeline.evaluation.statistics import cluster_bootstrap, wilson


def summarize(scores: Scores, info: MetricInfo, seed: int = 0, stratum: tuple[str, str] | None = None) -> dict[str, Any]:
    """``{mean, ci, n, prompts, interval, status, backend, reason}``; of the clips whose label ``stratum[0]`` is ``stratum[1]``.

    The interval is Wilson's where all values are 0 or 1 (or the two ends of the metric's range) and every prompt is there once,
    else the bootstrap over prompts; None with one prompt. ``mean`` is over clips.
    """
    rows = [row for row in scores.used if stratum is None or row.labels.get(stratum[0]) == stratum[1]]
    values = [row.value for row in rows if row.value is not None]
    about = {"status": scores.status, "backend": scores.backend, "reason": scores.reason}
    if not values:
        return {"mean": None, "ci": None, "n": 0, "prompts": 0, "interval": "", **about, "reason": scores.reason or "no clip"}
    prompts = len({row.id for row in rows})
    interval, kind = _interval(rows, values, prompts, info, seed)
    mean = sum(values) / len(values)
    return {"mean": mean, "ci": interval, "n": len(values), "prompts": prompts, "interval": kind, **about}


def _interval(
    rows: Sequence[Row], values: Sequence[float], prompts: int, info: MetricInfo, seed: int
) -> tuple[list[float] | None, str]:
    if prompts == len(rows) and is_share(info, values):
        assert info.low is not None and info.high is not None
        span = info.high - info.low
        return [info.low + span * end for end in wilson(sum(value == info.high for value in values), len(values))], "wilson"
    if prompts < 2:
        return None, ""
    return list(cluster_bootstrap([(row.id, value) for row, value in zip(rows, values, strict=True)], seed=seed)), "bootstrap"
