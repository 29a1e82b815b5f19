"""Whether a column won by moving less, and which metrics prefer a clip without its motion.

Most temporal metrics are best on a still clip. A report therefore says how much the second column of each comparison moves, in
flow, flow beyond the camera's, dynamic degree, active share and temporal energy, all on the same prompts and seeds, and how much
detail it has: a blurred picture seems steadier, and a still one that is panned moves only as a whole.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from phys_pipeline.evaluation.metric import MetricInfo
from phys_pipeline.evaluation.scores import NO_SCORES, Scores, incomparable, values_of
from phys_pipeline.evaluation.statistics import Pair, cluster_totals, paired_difference, paired_ratio

RED_LINE = "temporal gains are not separable from reduced motion"
# Geometric mean of the clips' own ratios of flow: in a ratio of means a few fast clips outvote the others.
TYPICAL = "typical_flow"
# A smaller share of the baseline's draws the red line. Beyond the camera there is little flow, and much of it is noise.
LIMITS = {"flow_score": 0.9, TYPICAL: 0.9, "temporal_energy": 0.8, "object_flow": 0.5, "detail": 0.8}
DYNAMIC_DROP = 3.0  # percentage points of dynamic degree, likewise
LOST = 0.03  # share of clips without plausibility where the baseline has one, likewise: what stands still has none
_COVERED = 0.9  # share of the common clips whose flow must be known
_BINS = 4
_NEGLIGIBLE = 1e-3  # of the clips' mean absolute value: what rounding changes
PLAUSIBILITY = "plausibility"
RATIOS = tuple(metric for metric in LIMITS if metric != TYPICAL)
_LEAST_FLOW = 0.01  # px/frame; less counts as this
_NAMES = {
    "flow_score": "flow",
    TYPICAL: "flow of a typical clip",
    "temporal_energy": "temporal energy",
    "object_flow": "flow beyond the camera's",
    "detail": "detail",
}
CHANGES = ("dynamic_degree", "active_share")


def motion_guard(
    first: Mapping[str, Scores], second: Mapping[str, Scores], infos: Mapping[str, MetricInfo], seed: int = 0
) -> dict[str, Any]:
    """How much ``second`` moves compared with ``first`` (the baseline): ``{checks, lost, red, line, warping_by_flow}``.

    ``checks[metric]`` has ``value``, ``ci``, ``n``, ``status`` and ``reason``: the ratio of the means for ``RATIOS``, the
    geometric mean of the clips' ratios of flow for ``typical_flow``, the change in percentage points for ``dynamic_degree`` and
    ``active_share``. ``lost`` counts the clips, ``n`` of ``of``, that have a plausibility in ``first`` and none in ``second``,
    because nothing moves: such clips leave the mean and may raise it. ``red`` is true when a ratio is below its limit, when
    dynamic degree drops by more than 3 points, when more than 3 % are lost, and when flow was not measured for nine of ten
    common clips, so that nobody knows.
    """
    checks = {metric: _ratio(first.get(metric, NO_SCORES), second.get(metric, NO_SCORES), seed) for metric in RATIOS}
    checks[TYPICAL] = _typical(first.get("flow_score", NO_SCORES), second.get("flow_score", NO_SCORES), seed)
    for metric in CHANGES:
        checks[metric] = _points(first.get(metric, NO_SCORES), second.get(metric, NO_SCORES), infos.get(metric), seed)
    flow, dynamic = checks["flow_score"], checks["dynamic_degree"]
    common = len(values_of(first) & values_of(second))
    lost = _lost(first, second)
    reasons = []
    if flow["n"] < _COVERED * common or not common:
        why = f" ({flow['reason']})" if flow["reason"] else ""
        reasons.append(f"flow is known for {flow['n']} of {common} common clips{why}")
    for metric, limit in LIMITS.items():
        check = checks[metric]
        if check["value"] is not None and check["value"] < limit:
            reasons.append(f"the {_NAMES[metric]} is {check['value']:.2f} of the baseline's{_ends(check, 2)}")
    if dynamic["value"] is not None and dynamic["value"] < -DYNAMIC_DROP:
        reasons.append(f"dynamic degree changes by {dynamic['value']:.1f} points{_ends(dynamic, 1)}")
    if lost["n"] > LOST * lost["of"]:
        reasons.append(f"{lost['n']} of {lost['of']} clips have no plausibility any more")
    return {
        "checks": checks,
        "lost": lost,
        "red": bool(reasons),
        "line": f"{RED_LINE}: {'; '.join(reasons)}" if reasons else "",
        "warping_by_flow": warping_by_flow(first, second, seed),
    }


def warping_by_flow(first: Mapping[str, Scores], second: Mapping[str, Scores], seed: int = 0) -> dict[str, Any]:
    """Warping error of clips that move alike: means within quarters of the flow of both columns together.

    ``diff`` is second minus first, the mean over the bins that both columns reach, weighted by the smaller number of clips;
    ``ci`` draws prompts, with the bins fixed. ``reason`` says why there is none.
    """
    for metric in ("flow_score", "warping_error"):
        reason = incomparable(first.get(metric, NO_SCORES), second.get(metric, NO_SCORES))
        if reason:
            return _no_bins(f"{metric}: {reason}")
    known = [_flow_and_error(column) for column in (first, second)]
    if not all(known):
        return _no_bins("no clip has both flow_score and warping_error")
    edges = np.quantile([flow for found in known for flow, _ in found.values()], np.linspace(0, 1, _BINS + 1))
    sums: list[tuple[str, list[float]]] = []  # prompt, (column, bin, [count, sum of errors])
    for place, found in enumerate(known):
        for (prompt, _), (flow, error) in found.items():
            entry = np.zeros((2, _BINS, 2))
            entry[place, int(np.searchsorted(edges[1:-1], flow, side="right"))] = (1.0, error)
            sums.append((prompt, entry.ravel().tolist()))
    total = np.sum([entry for _, entry in sums], axis=0)
    bins = []
    for index in range(_BINS):
        (n, error), (m, other) = total.reshape(2, _BINS, 2)[:, index]
        bins.append(
            {
                "low": float(edges[index]), "high": float(edges[index + 1]),
                "first": float(error / n) if n else None, "n_first": int(n),
                "second": float(other / m) if m else None, "n_second": int(m),
            }
        )  # fmt: skip
    status = "standin" if "standin" in (first["flow_score"].status, first["warping_error"].status) else "ok"
    difference = _matched(total[None])[0]
    if not np.isfinite(difference):
        return _no_bins("the two columns share no range of flow", bins)
    drawn = _matched(cluster_totals(sums, seed=seed))
    low, high = np.percentile(drawn[np.isfinite(drawn)], [2.5, 97.5])
    ci = [float(low), float(high)] if len({prompt for prompt, _ in sums}) > 1 else None
    return {"bins": bins, "diff": float(difference), "ci": ci, "status": status, "reason": ""}


def control_verdicts(
    real: Mapping[str, Scores],
    controls: Mapping[str, Mapping[str, Scores]],
    infos: Mapping[str, MetricInfo],
    seed: int = 0,
) -> dict[str, dict[str, dict[str, Any]]]:
    """``{metric: {control: {verdict, diff, ci, p, n, status, reason}}}`` for every metric with a direction and values.

    ``diff`` is control minus clip. The verdict is "prefers" (the control scores better and the interval excludes 0), "rejects"
    (worse, likewise), "blind" (neither, or by less than a thousandth of the clips' mean), or "unknown" without a comparison.
    """
    verdicts: dict[str, dict[str, dict[str, Any]]] = {}
    for metric, info in infos.items():
        if info.direction == "neutral" or not real.get(metric, NO_SCORES).used:
            continue
        values = real[metric].values.values()
        negligible = _NEGLIGIBLE * sum(map(abs, values)) / len(values)
        verdicts[metric] = {}
        for control, scores in controls.items():
            entry = difference_entry(real[metric], scores.get(metric, NO_SCORES), seed)
            verdicts[metric][control] = {"verdict": _verdict(entry, info, negligible), **entry}
    return verdicts


def gameable(verdicts: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> dict[str, list[str]]:
    """``{metric: controls that it prefers to the clip}`` of the metrics that prefer any."""
    found = {metric: [c for c, entry in row.items() if entry["verdict"] == "prefers"] for metric, row in verdicts.items()}
    return {metric: controls for metric, controls in found.items() if controls}


def difference_entry(first: Scores, second: Scores, seed: int = 0) -> dict[str, Any]:
    """``{diff, ci, p, n, status, reason}`` of second minus first, as JSON; no difference where they can't be compared."""
    reason = incomparable(first, second)
    if reason:
        return {"diff": None, "ci": None, "p": None, "n": 0, "status": "skipped", "reason": reason}
    found = paired_difference(first.values, second.values, seed=seed)
    ci = None if found.interval is None else list(found.interval)
    return {"diff": found.mean, "ci": ci, "p": found.p, "n": found.n, "status": first.status, "reason": ""}


def _ratio(first: Scores, second: Scores, seed: int) -> dict[str, Any]:
    reason = incomparable(first, second)
    if reason:
        return {"value": None, "ci": None, "n": 0, "status": "skipped", "reason": reason}
    try:
        found = paired_ratio(first.values, second.values, seed=seed)
    except ValueError:
        common = len(first.values.keys() & second.values.keys())
        return {"value": None, "ci": None, "n": common, "status": "skipped", "reason": "nothing moves in the baseline"}
    ci = None if found.interval is None else list(found.interval)
    return {"value": found.value, "ci": ci, "n": found.n, "status": first.status, "reason": ""}


def _typical(first: Scores, second: Scores, seed: int) -> dict[str, Any]:
    """Geometric mean over the clips of second's flow over first's."""
    reason = incomparable(first, second)
    if reason:
        return {"value": None, "ci": None, "n": 0, "status": "skipped", "reason": reason}
    found = paired_difference(_log_flow(first), _log_flow(second), seed=seed)
    ci = None if found.interval is None else [math.exp(end) for end in found.interval]
    return {"value": math.exp(found.mean), "ci": ci, "n": found.n, "status": first.status, "reason": ""}


def _log_flow(scores: Scores) -> dict[Pair, float]:
    return {pair: math.log(max(flow, _LEAST_FLOW)) for pair, flow in scores.values.items()}


def _points(first: Scores, second: Scores, info: MetricInfo | None, seed: int) -> dict[str, Any]:
    entry = difference_entry(first, second, seed)
    scale = 100.0 if info is None or info.low is None or info.high is None else 100.0 / (info.high - info.low)
    value = None if entry["diff"] is None else scale * entry["diff"]
    ci = None if entry["ci"] is None else [scale * end for end in entry["ci"]]
    return {"value": value, "ci": ci, "n": entry["n"], "status": entry["status"], "reason": entry["reason"]}


def _lost(first: Mapping[str, Scores], second: Mapping[str, Scores]) -> dict[str, int]:
    before, after = first.get(PLAUSIBILITY, NO_SCORES).values.keys(), second.get(PLAUSIBILITY, NO_SCORES)
    lost = before & {row.pair for row in after.left_out if row.status == "skipped"}
    return {"n": len(lost), "of": len(lost | (before & after.values.keys()))}


def _ends(check: Mapping[str, Any], decimals: int) -> str:
    """The interval as text: the line is drawn by the value alone, and with few clips one clip may draw it."""
    return "" if check["ci"] is None else " [{:.{d}f}, {:.{d}f}]".format(*check["ci"], d=decimals)


def _flow_and_error(column: Mapping[str, Scores]) -> dict[Pair, tuple[float, float]]:
    flow, error = column["flow_score"].values, column["warping_error"].values
    return {pair: (flow[pair], error[pair]) for pair in flow if pair in error}


def _no_bins(reason: str, bins: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
    return {"bins": list(bins), "diff": None, "ci": None, "status": "skipped", "reason": reason}


def _matched(totals: np.ndarray) -> np.ndarray:
    """Difference of the mean errors within bins (R,) of totals (R, column x bin x [count, sum]); NaN without a common bin."""
    table = totals.reshape(len(totals), 2, _BINS, 2)
    counts, sums = table[..., 0], table[..., 1]
    weights = counts.min(axis=1)  # (R, bins)
    means = sums / np.maximum(counts, 1)
    with np.errstate(invalid="ignore"):
        return ((means[:, 1] - means[:, 0]) * weights).sum(axis=1) / weights.sum(axis=1)


def _verdict(entry: Mapping[str, Any], info: MetricInfo, negligible: float) -> str:
    if entry["diff"] is None:
        return "unknown"
    better = entry["diff"] if info.direction == "up" else -entry["diff"]
    low, high = entry["ci"] or (entry["diff"], entry["diff"])
    if abs(better) <= negligible or low <= 0 <= high:
        return "blind"
    return "prefers" if better > 0 else "rejects"
