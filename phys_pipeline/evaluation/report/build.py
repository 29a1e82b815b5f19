"""Rows in, `report.json` out. Every number is made of rows, and :func:`trace` gives them back."""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from itertools import combinations
from typing import Any

from phys_pipeline.errors import ConfigError, DataError
from phys_pipeline.evaluation.controls import PREFIX
from phys_pipeline.evaluation.guards import PLAUSIBILITY, control_verdicts, difference_entry, gameable, motion_guard
from phys_pipeline.evaluation.metric import MetricInfo
from phys_pipeline.evaluation.report.columns import Column, baseline_of, control_column
from phys_pipeline.evaluation.report.mismatch import identical, mismatches
from phys_pipeline.evaluation.report.run import check_run
from phys_pipeline.evaluation.report.summary import summarize
from phys_pipeline.evaluation.rows import Row
from phys_pipeline.evaluation.scores import NO_SCORES, Scores, collect, share_ends
from phys_pipeline.evaluation.statistics import Pair, holm

SCHEMA_VERSION = 1
STRATA = ("stratum", "motion")  # labels by which the values are also given
Collected = Mapping[str, Mapping[str, Scores]]
Shares = Mapping[str, tuple[float, float] | None]  # metric -> its two values, if it has no others


def build_report(
    rows: Sequence[Row],
    infos: Sequence[MetricInfo],
    columns: Sequence[Column],
    run: Mapping[str, Any],
    *,
    allow_mismatch: bool = False,
) -> dict[str, Any]:
    """The report of `schema.json`, as JSON values.

    Columns "control:..." are added where rows have them. The bootstrap's seed is ``run["seed"]``.

    Raises:
        ConfigError: columns that say nothing or the same twice, or a run that lacks something.
        DataError: rows that no column claims, a column without a single value, or clips that differ between the columns in size,
            rate or length (unless ``allow_mismatch``; they are listed then).
    """
    check_run(run)
    columns = _with_controls(columns, rows)
    _check_prompts(rows)
    scores = collect(rows, infos)
    protocol = rows[0].protocol if rows else run["protocol"]
    if protocol != run["protocol"]:
        raise DataError(f"the rows are of the protocol {protocol}, the run says {run['protocol']}")
    candidates = [column for column in columns if column.role != "control"]
    for column in candidates:
        _check_values(column.key, scores.get(column.key, {}))
    different = mismatches(rows, [column.key for column in columns])
    if different and not allow_mismatch:
        raise DataError("; ".join(different) + "; make the clips alike, or use --allow-mismatch and then read no temporal metric")
    described = {info.key: info for info in infos if any(info.key in found for found in scores.values())}
    seed = int(run["seed"])
    shares = {key: share_ends(info, [found.get(key, NO_SCORES) for found in scores.values()]) for key, info in described.items()}
    guards = {}
    for column in columns:
        base = baseline_of(column, columns)
        if base is not None:
            guard = motion_guard(scores[base.key], scores[column.key], described, seed)
            guards[column.key] = {"baseline": base.key, **guard}
    return {
        "schema": SCHEMA_VERSION,
        "run": {key: value for key, value in run.items() if key != "prompts"},
        "columns": [column.to_dict() for column in columns],
        "metrics": json.loads(json.dumps({key: asdict(info) for key, info in described.items()})),
        "values": _values(scores, columns, shares, seed),
        "strata": _strata(rows, scores, candidates, shares, seed),
        "paired": _paired(scores, candidates, described, seed),
        "guards": guards,
        "controls": _controls(scores, columns, described, seed),
        "prompts": _prompts(rows, run.get("prompts", {})),
        "skipped": _skipped(scores, columns, described),
        "mismatches": different,
        "identical": identical(rows, [column.key for column in candidates]),
        "clips": _clips(rows),
        "per_video": _per_video(scores, columns, described),
    }


def trace(report: Mapping[str, Any], column: str, metric: str, stratum: tuple[str, str] | None = None) -> list[dict[str, Any]]:
    """The rows behind ``values[column][metric]``, or behind ``strata[label][value][column][metric]``.

    Raises:
        ConfigError: a column or metric that the report lacks.
    """
    try:
        found = report["per_video"][column][metric]
    except KeyError:
        raise ConfigError(f"the report has no metric {metric!r} of a column {column!r}") from None
    used = [row for row in found if row["used"]]
    if stratum is None:
        return used
    label, value = stratum
    inside = {(clip["id"], clip["seed"]) for clip in report["clips"] if clip["labels"].get(label) == value}
    return [row for row in used if (row["id"], row["seed"]) in inside]


def _with_controls(columns: Sequence[Column], rows: Sequence[Row]) -> list[Column]:
    keys = [column.key for column in columns]
    if not columns or len(set(keys)) < len(keys):
        raise ConfigError("a report needs columns with different keys")
    models = dict.fromkeys(row.model for row in rows)
    missing = [model for model in models if model not in keys and not model.startswith(PREFIX)]
    if missing:
        raise DataError(f"there are rows of {', '.join(missing)}, but no such column; name every column")
    return [*columns, *(control_column(model) for model in models if model not in keys)]


def _check_prompts(rows: Iterable[Row]) -> None:
    prompts: dict[str, tuple[str, str]] = {}
    for row in rows:
        prompt, sample = prompts.setdefault(row.id, (row.prompt, row.sample))
        if prompt != row.prompt:
            raise DataError(f"{sample} and {row.sample} have the same id but different prompts; give each prompt its own id")


def _check_values(column: str, scores: Mapping[str, Scores]) -> None:
    if not scores:
        raise DataError(f"column {column} has no rows: were its videos found?")
    if not any(found.used for found in scores.values()):
        reasons = Counter(row.reason for found in scores.values() for row in found.left_out)
        text = "; ".join(f"{reason} ({n} rows)" for reason, n in reasons.most_common(3))
        raise DataError(f"column {column} has n = 0: no metric has a value on any clip: {text}")


def _values(
    scores: Collected, columns: Iterable[Column], shares: Shares, seed: int, stratum: tuple[str, str] | None = None
) -> dict[str, Any]:
    """``{column: {metric: summary}}``."""
    return {
        column.key: {key: summarize(_of(scores, column.key, key), ends, seed, stratum) for key, ends in shares.items()}
        for column in columns
    }


def _strata(rows: Sequence[Row], scores: Collected, columns: Sequence[Column], shares: Shares, seed: int) -> dict[str, Any]:
    """``{label: {value: {column: {metric: summary}}}}`` of the labels that some clip has."""
    strata: dict[str, Any] = {}
    for label in STRATA:
        for value in sorted({row.labels[label] for row in rows if label in row.labels}):
            strata.setdefault(label, {})[value] = _values(scores, columns, shares, seed, (label, value))
    return strata


def _paired(scores: Collected, columns: Sequence[Column], infos: Mapping[str, MetricInfo], seed: int) -> dict[str, Any]:
    """``{a: {b: {metric: {diff, ci, p, p_holm, family, n, status, reason, plausibility}}}}``, b minus a; baselines come first."""
    paired: dict[str, Any] = defaultdict(dict)
    ordered = sorted(columns, key=lambda column: column.role != "baseline")
    for a, b in combinations([column.key for column in ordered], 2):
        shown = [key for key in infos if key in scores[a] or key in scores[b]]
        found = {key: difference_entry(_of(scores, a, key), _of(scores, b, key), seed) for key in shown}
        beside: dict[frozenset[Pair], dict[str, Any]] = {}  # plausibility on the same clips; most metrics have the same clips
        for key, entry in found.items():
            pairs = frozenset(_of(scores, a, key).values.keys() & _of(scores, b, key).values.keys() if entry["n"] else ())
            if pairs not in beside:
                whole = difference_entry(_of(scores, a, PLAUSIBILITY).of(pairs), _of(scores, b, PLAUSIBILITY).of(pairs), seed)
                beside[pairs] = {name: whole[name] for name in ("diff", "ci", "n", "status")}
            entry["plausibility"] = beside[pairs]
        tested = [key for key, entry in found.items() if entry["p"] is not None]
        adjusted = dict(zip(tested, holm([found[key]["p"] for key in tested]), strict=True))
        for key, entry in found.items():
            entry.update(p_holm=adjusted.get(key), family=len(tested))
        paired[a][b] = found
    return dict(paired)


def _of(scores: Collected, column: str, metric: str) -> Scores:
    return scores[column].get(metric, NO_SCORES)


def _controls(scores: Collected, columns: Sequence[Column], infos: Mapping[str, MetricInfo], seed: int) -> dict[str, Any] | None:
    """The verdict of every metric on the controls, which are made of the baseline's clips."""
    controls = {column.key: scores[column.key] for column in columns if column.role == "control"}
    if not controls:
        return None
    base = next((c for c in columns if c.role == "baseline"), columns[0])
    verdicts = control_verdicts(scores[base.key], controls, infos, seed)
    return {"of": base.key, "metrics": verdicts, "gameable": gameable(verdicts)}


def _prompts(rows: Sequence[Row], about: Mapping[str, Any]) -> dict[str, Any]:
    """Name, number and SHA-256 (of the sorted lines "id<TAB>prompt") of the prompts."""
    lines = sorted({f"{row.id}\t{row.prompt}" for row in rows})
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    return {"set": about.get("set", ""), "split": about.get("split", ""), "n": len({row.id for row in rows}), "sha256": digest}


def _skipped(scores: Collected, columns: Iterable[Column], infos: Mapping[str, MetricInfo]) -> list[dict[str, Any]]:
    """What has no value or was left out, by column, metric and reason; ``clips`` names the first three."""
    entries = []
    for column in columns:
        for key in infos:
            found = _of(scores, column.key, key)
            groups: dict[tuple[str, str], list[str]] = defaultdict(list)
            for row in found.left_out:
                groups["left out" if row.value is not None else row.status, row.reason].append(row.sample)
            if not found.used and not found.left_out:
                groups[found.status, found.reason] = []
            for (status, reason), clips in groups.items():
                entry = {"column": column.key, "metric": key, "status": status, "reason": reason}
                entries.append({**entry, "n": len(clips), "clips": clips[:3]})
    return entries


def _clips(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Prompt and labels of each (prompt, seed); those of the first row that has it."""
    found: dict[tuple[str, int | None], dict[str, Any]] = {}
    for row in rows:
        entry = {"id": row.id, "seed": row.seed, "prompt": row.prompt, "labels": dict(row.labels)}
        found.setdefault(row.pair, entry)
    return list(found.values())


def _per_video(scores: Collected, columns: Iterable[Column], infos: Mapping[str, MetricInfo]) -> dict[str, Any]:
    def record(row: Row, used: bool) -> dict[str, Any]:
        about = {"id": row.id, "seed": row.seed, "value": row.value, "status": row.status, "used": used}
        return about if used else {**about, "reason": row.reason}

    return {
        column.key: {
            key: [record(row, True) for row in found.used] + [record(row, False) for row in found.left_out]
            for key, found in scores[column.key].items()
            if key in infos
        }
        for column in columns
    }
