"""What a reader gets, in order, as headings, sentences, alerts and tables. Markdown, LaTeX and HTML print the same document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from phys_pipeline.evaluation.guards import CHANGES, DYNAMIC_DROP, LIMITS, LOST, TYPICAL
from phys_pipeline.evaluation.report.tables import (
    FEW,
    FEW_CLIPS,
    GUARD,
    MISSING,
    STANDIN,
    Cells,
    Entry,
    Table,
    accuracy_table,
    compared_pairs,
    difference,
    interval,
    paired_table,
    paper_table,
    value_table,
)


@dataclass(frozen=True)
class Heading:
    """The title of what follows."""

    text: str


@dataclass(frozen=True)
class Alert:
    """A line that nobody may overlook; ``red`` if it takes a gain away, else what to be careful with."""

    text: str
    red: bool = True


Block = Heading | Alert | Table | str
_NOTES = {
    STANDIN: "a stand-in computed without the metric's own weights; not comparable with published values",
    GUARD: "moves less or has less detail than its baseline, or nobody knows: see the guards before reading a temporal gain",
    FEW: f"fewer than {FEW_CLIPS} clips",
}
_OTHERS = {TYPICAL: "Flow of a typical clip"}
HOW_TO_READ = (
    "Values are means over clips with a 95 % interval: Wilson's for shares, else a bootstrap that draws whole prompts 10,000 "
    "times (too narrow with under about 20 prompts).",
    "Bold: the best value lies beyond the interval of the next best, and its column has no red line; a difference has p (Holm) "
    "under 0.05. Arrows say which way is better; no arrow: neither.",
    "Trust the paired differences first: same prompts, same seeds. p is two-sided; Holm corrects it over a comparison's metrics. "
    "With k prompts it is never below 2/2^k.",
    "A still clip wins many temporal metrics. Read the guards and plausibility before a gain in any of them.",
)


def document(report: Mapping[str, Any], tables: Sequence[str] = ()) -> list[Block]:
    """The blocks of a report; ``tables`` are layouts of the paper, before the table of everything."""
    blocks: list[Block] = [_about(report), *alerts(report)]
    values = [*(paper_table(report, name) for name in tables), value_table(report)]
    accuracy = accuracy_table(report)
    blocks += [Heading("Values"), *values, *_notes(values), *([accuracy] if accuracy else [])]
    blocks += [Heading("How to read"), *HOW_TO_READ]
    pairs = compared_pairs(report)
    if pairs:
        differences = [paired_table(report, first, second) for first, second in pairs]
        blocks += [Heading("Differences"), *differences, *_notes(differences)]
    if report["guards"]:
        blocks += [Heading("Guards"), *_guards(report)]
    if report["controls"]:
        blocks += [Heading("Controls"), *_controls(report)]
    strata = [(label, value) for label, values in report["strata"].items() for value in values]
    if strata:
        blocks += [Heading("Strata"), *(value_table(report, stratum=stratum) for stratum in strata)]
    blocks += [Heading("Columns"), _columns(report)]
    if report["skipped"]:
        blocks += [Heading("Left out"), _skipped(report)]
    return blocks


def alerts(report: Mapping[str, Any]) -> list[Alert]:
    """Columns that are not alike or the same, the red line of those that draw it (controls apart), and the gameable metrics."""
    labels = _labels(report)
    controls = {column["key"] for column in report["columns"] if column["role"] == "control"}
    red = {key: guard["line"] for key, guard in report["guards"].items() if guard["red"] and key not in controls}
    found = [Alert(f"Not alike: {line}.") for line in report["mismatches"]]
    found += [Alert(f"The same file: {line}.") for line in report["identical"]]
    found += [Alert(f"{labels[key]}: {line}.") for key, line in red.items()]
    games = (report["controls"] or {"gameable": {}})["gameable"]
    if games:
        names = ", ".join(f"{report['metrics'][key]['label']} ({', '.join(labels[c] for c in games[key])})" for key in games)
        found.append(Alert(f"Gameable here, since they prefer a control clip to the real one: {names}.", red=False))
    return found


def _about(report: Mapping[str, Any]) -> str:
    run, prompts = report["run"], report["prompts"]
    versions = ", ".join(f"{name} {version}" for name, version in run["versions"].items())
    name = f"{prompts['set']}, " if prompts["set"] else ""
    split = f", split {prompts['split']}" if prompts["split"] else ""
    return (
        f"Protocol {run['protocol']}, seed {run['seed']}, {run['device']}, {run['date']}. Prompts: {name}{prompts['n']} "
        f"(SHA-256 {prompts['sha256'][:12]}{split}). {versions}. Made by: {run['command']}"
    )


def _notes(tables: Sequence[Table]) -> list[Block]:
    """One line that explains the marks that the tables use."""
    cells = [cell for table in tables for row in (table.header, *table.rows) for cell in row if isinstance(cell, Entry)]
    used = {mark for cell in cells for mark in cell.marks} | {m for table in tables for m in _NOTES if m in table.title}
    return [" ".join(f"{mark} {text}." for mark, text in _NOTES.items() if mark in used)] if used else []


def _guards(report: Mapping[str, Any]) -> list[Block]:
    labels, metrics = _labels(report), report["metrics"]
    header: Cells = ("column", "against", "verdict", *(f"{_name(metrics, key)}, ratio" for key in LIMITS),
                     *(f"{_name(metrics, key)}, points" for key in CHANGES), "clips", "lost")  # fmt: skip
    rows: list[Cells] = []
    for key, guard in report["guards"].items():
        checks = guard["checks"]
        cells = [_check(checks[name], "{:.2f}", 2) for name in LIMITS] + [_check(checks[name], "{:+.1f}", 1) for name in CHANGES]
        verdict = Entry("red", bold=True) if guard["red"] else "moves as much"
        counts = str(checks["flow_score"]["n"]), str(guard["lost"]["n"])
        rows.append((labels[key], labels[guard["baseline"]], verdict, *cells, *counts))
    ratios = ", ".join(f"{_name(metrics, key)} {limit:g}" for key, limit in LIMITS.items())
    limits = (
        f"Red: a ratio under its limit ({ratios}), dynamic degree down by more than {DYNAMIC_DROP:g} points, over {100 * LOST:g} "
        "% of the clips lost (without plausibility, since nothing moves in them any more), or flow unknown."
    )
    blocks: list[Block] = [Table("How much each column moves, paired", header, tuple(rows)), limits]
    bins = [_flow_bins(labels, second, report["guards"][second]) for _, second in compared_pairs(report)]
    return [*blocks, *filter(None, bins)]


def _flow_bins(labels: Mapping[str, str], key: str, guard: Mapping[str, Any]) -> Table | None:
    matched = guard["warping_by_flow"]
    if not matched["bins"]:
        return None
    rows: list[Cells] = []
    for entry in matched["bins"]:
        one, other = (MISSING if entry[side] is None else f"{entry[side]:.4f}" for side in ("first", "second"))
        flow = f"{entry['low']:.2f} to {entry['high']:.2f}"
        rows.append((flow, one, str(entry["n_first"]), other, str(entry["n_second"])))
    rows.append(("matched difference", "", "", difference(matched, 4), ""))
    base = labels[guard["baseline"]]
    header = ("flow, px a frame", base, "clips", labels[key], "clips")
    return Table(f"Warping error of clips that move alike, {labels[key]} and {base}", header, tuple(rows))


def _controls(report: Mapping[str, Any]) -> list[Block]:
    labels, metrics = _labels(report), report["metrics"]
    controls = [column["key"] for column in report["columns"] if column["role"] == "control"]
    rows: list[Cells] = []
    for key, row in report["controls"]["metrics"].items():
        decimals = metrics[key]["decimals"]
        cells = [difference(row[c], decimals, row[c]["verdict"], row[c]["verdict"] == "prefers") for c in controls]
        rows.append((metrics[key]["label"], *cells, "gameable" if key in report["controls"]["gameable"] else ""))
    of = labels[report["controls"]["of"]]
    text = (
        f"Control clips are made of the clips of {of}. Differences are control minus clip; a metric is gameable when it "
        "prefers a control by more than its interval, and blind to one when the interval holds 0."
    )
    return [text, Table(f"Controls against {of}", ("metric", *(labels[c] for c in controls), ""), tuple(rows))]


def _columns(report: Mapping[str, Any]) -> Table:
    fields = [name for name in report["columns"][0] if any(column[name] for column in report["columns"])]
    rows = tuple(tuple(column[name] for name in fields) for column in report["columns"])
    return Table("What the columns are", tuple(fields), rows)


def _skipped(report: Mapping[str, Any]) -> Table:
    """One line for each reason: `report.json` has them by column and metric."""
    labels, metrics = _labels(report), report["metrics"]
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for entry in report["skipped"]:
        groups.setdefault((entry["status"], entry["reason"]), []).append(entry)
    rows = []
    for (status, reason), entries in groups.items():
        columns = list(dict.fromkeys(labels[entry["column"]] for entry in entries))
        named = "all" if len(columns) == len(labels) else ", ".join(columns)
        names = ", ".join(dict.fromkeys(_name(metrics, entry["metric"]) for entry in entries))
        clips = next((entry["clips"][0] for entry in entries if entry["clips"]), "")
        rows.append((reason, status, str(sum(entry["n"] for entry in entries)), names, named, clips))
    return Table("What has no value, and why", ("reason", "status", "values", "metrics", "columns", "for example"), tuple(rows))


def _check(check: Mapping[str, Any], form: str, decimals: int) -> Entry:
    if check["value"] is None:
        return Entry(MISSING)
    marks = STANDIN if check["status"] == "standin" else ""
    return Entry(form.format(check["value"]), interval(check["ci"], decimals), marks=marks)


def _labels(report: Mapping[str, Any]) -> dict[str, str]:
    return {column["key"]: column["label"] for column in report["columns"]}


def _name(metrics: Mapping[str, Any], key: str) -> str:
    return metrics[key]["label"] if key in metrics else _OTHERS.get(key, key)
