"""The usable values of one metric in one column: checked, and all made by the same backend."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from phys_pipeline.errors import DataError
from phys_pipeline.evaluation.metric import MetricInfo
from phys_pipeline.evaluation.rows import Row
from phys_pipeline.evaluation.statistics import Pair


@dataclass(frozen=True)
class Scores:
    """One metric of one column. ``used`` have a value, one status, one backend and one version; ``left_out`` is the rest.

    A stand-in is never averaged with the real metric, nor one backend with another: where a column has several, the real one with
    most rows is used. ``status`` is "ok" or "standin"; without used rows "failed" or "skipped", and ``reason`` the commonest one.
    """

    used: tuple[Row, ...]
    left_out: tuple[Row, ...]
    status: str
    backend: str = ""
    version: int = 1
    reason: str = ""

    @cached_property
    def values(self) -> dict[Pair, float]:
        """Value of each (prompt, seed)."""
        return {row.pair: row.value for row in self.used if row.value is not None}

    def of(self, pairs: Collection[Pair]) -> Scores:
        """The same of these (prompt, seed) only."""
        used = tuple(row for row in self.used if row.pair in pairs)
        if len(used) == len(self.used):
            return self
        return replace(self, used=used) if used else Scores((), self.left_out, "skipped", reason="no clip in common")


NO_SCORES = Scores((), (), "skipped", reason="not evaluated")


def collect(rows: Iterable[Row], infos: Sequence[MetricInfo]) -> dict[str, dict[str, Scores]]:
    """``{column: {metric: scores}}``. A value out of its metric's range counts as failed.

    Raises:
        DataError: a row twice, a metric without description, or rows of two protocols.
    """
    described = {info.key: info for info in infos}
    grouped: dict[str, dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    seen, protocols = set(), set()
    for row in rows:
        if row.key in seen:
            raise DataError(f"two rows for {row.metric} of {row.sample}; keep the newer one")
        if row.metric not in described:
            raise DataError(f"{row.sample} has a row for {row.metric!r}, a metric that nothing describes")
        seen.add(row.key)
        protocols.add(row.protocol)
        grouped[row.model][row.metric].append(_in_range(row, described[row.metric]))
    if len(protocols) > 1:
        raise DataError(f"rows of the protocols {' and '.join(sorted(protocols))} can't share a report; make one for each")
    return {model: {metric: _scores(found) for metric, found in metrics.items()} for model, metrics in grouped.items()}


def incomparable(first: Scores, second: Scores) -> str:
    """Why the two can't be compared, or nothing."""
    for scores in (first, second):
        if not scores.used:
            return scores.reason
    if first.status != second.status:
        return "a stand-in is not compared with the real metric"
    if (first.backend, first.version) != (second.backend, second.version):
        return f"measured by {first.backend} (version {first.version}) and {second.backend} (version {second.version})"
    return "" if first.values.keys() & second.values.keys() else "no prompt and seed in common"


def share_ends(info: MetricInfo, columns: Iterable[Scores]) -> tuple[float, float] | None:
    """Low and high of the metric if no column has another value, so that its means are shares of clips."""
    if info.low is None or info.high is None:
        return None
    found = {value for scores in columns for value in scores.values.values()}
    return (info.low, info.high) if found <= {info.low, info.high} else None


def values_of(scores: Mapping[str, Scores]) -> set[Pair]:
    """Every (prompt, seed) for which some metric has a value."""
    return {pair for metric in scores.values() for pair in metric.values}


def _in_range(row: Row, info: MetricInfo) -> Row:
    if row.value is None or info.contains(row.value):
        return row
    low, high = ("-inf" if info.low is None else f"{info.low:g}"), ("inf" if info.high is None else f"{info.high:g}")
    return replace(row, value=None, status="failed", reason=f"{row.value:g} is outside the metric's range [{low}, {high}]")


def _scores(rows: list[Row]) -> Scores:
    groups: dict[tuple[str, str, int], list[Row]] = defaultdict(list)
    left_out = []
    for row in rows:
        if row.value is None:
            left_out.append(row)
        else:
            groups[row.status, row.backend, row.version].append(row)
    if not groups:
        status = "failed" if any(row.status == "failed" for row in rows) else "skipped"
        reason = Counter(row.reason for row in rows if row.status == status).most_common(1)[0][0]
        return Scores((), tuple(left_out), status, reason=reason)
    best = max(groups, key=lambda group: (group[0] == "ok", len(groups[group])))
    for group, members in groups.items():
        if group != best:
            kind = "stand-in" if group[0] == "standin" else "value"
            reason = f"{kind} of {group[1]} (version {group[2]}): not averaged with {best[1]} (version {best[2]})"
            left_out += [replace(row, reason=reason) for row in members]
    status, backend, version = best
    return Scores(tuple(groups[best]), tuple(left_out), status, backend, version)
