"""The tables of a report as cells, before Markdown, LaTeX and HTML give them a form."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from phys_pipeline.errors import ConfigError

STANDIN, GUARD, FEW = "†", "‡", "*"
FEW_CLIPS = 100
SIGNIFICANT = 0.05
ARROWS = {"up": "↑", "down": "↓", "neutral": ""}
MISSING = "n/a"


@dataclass(frozen=True)
class Entry:
    """One number: ``text`` and ``interval`` as printed; ``marks`` of STANDIN, GUARD, FEW; ``note`` is a word after it."""

    text: str
    interval: str = ""
    bold: bool = False
    marks: str = ""
    note: str = ""


Cells = tuple[Entry | str, ...]
Stratum = tuple[str, str]  # name and value of a label


@dataclass(frozen=True)
class Table:
    """``groups`` are the numbers of rows above which a line is drawn."""

    title: str
    header: Cells
    rows: tuple[Cells, ...]
    groups: tuple[int, ...] = ()


@dataclass(frozen=True)
class Layout:
    """Which columns and rows a table of the paper has. ``columns`` are (heading, role, stratum); ``base`` names its model."""

    title: str
    base: str
    columns: tuple[tuple[str, str, str], ...]
    metrics: tuple[str, ...]


PAPER_ROWS = {  # key -> (label as in the paper, category)
    "vqa_a": ("VQA_A", "visual"),
    "vqa_t": ("VQA_T", "visual"),
    "sd_score": ("SD Score", "visual"),
    "clip_temporal": ("CLIP Temporal Score", "temporal"),
    "warping_error": ("Warping Error", "temporal"),
    "temporal_consistency": ("Temporal Consistency", "temporal"),
    "action_recognition": ("Action Recognition Score", "motion"),
    "motion_accuracy": ("Motion Accuracy Score", "motion"),
    "flow_score": ("Flow Score", "motion"),
    "text_video_alignment": ("Text-Video Alignment", "text"),
    "blip_bleu": ("BLIP-BLEU", "text"),
}
_ALL = tuple(PAPER_ROWS)
_OURS = (("Baseline", "baseline", ""), ("Ours", "ours", ""))
LAYOUTS = {
    "T1a": Layout("Baseline and ours", "open-sora", _OURS, _ALL),
    "T1b": Layout("Baseline and ours", "mvdit", _OURS, _ALL),
    "T2": Layout(
        "Losses", "hunyuan",
        (
            ("Hunyuan-Baseline", "baseline", ""), ("LoRA base loss", "base_loss", ""), ("LoRA flow loss", "flow_loss", ""),
            ("LoRA ours", "ours", ""),
        ),
        _ALL,
    ),
    "T3": Layout(
        "Complex and simple motion", "hunyuan",
        (
            ("Baseline-complex", "baseline", "complex"), ("Ours-complex", "ours", "complex"),
            ("Baseline-simple", "baseline", "simple"), ("Ours-simple", "ours", "simple"),
        ),
        ("sd_score", "clip_temporal", "warping_error", "flow_score", "blip_bleu"),
    ),
    "T4": Layout(
        "Ablation", "open-sora",
        (
            ("Full", "ours", ""), ("w/o Translation", "without_translation", ""), ("w/o Rotation", "without_rotation", ""),
            ("w/o Scaling", "without_scaling", ""),
        ),
        _ALL,
    ),
}  # fmt: skip


def check_table(name: str, roles: Collection[str], strata: Collection[str]) -> Layout:
    """The layout of a table of the paper, for columns of these ``roles`` and clips of these values of the label stratum.

    Raises:
        ConfigError: an unknown name, a role that no column has, or a stratum that no clip has.
    """
    if name not in LAYOUTS:
        raise ConfigError(f"unknown table {name!r}; use one of {', '.join(LAYOUTS)}")
    for _, role, stratum in LAYOUTS[name].columns:
        if role not in roles:
            raise ConfigError(
                f"table {name} needs a column with the role {role!r}; give one column that role, or leave the table out"
            )
        if stratum and stratum not in strata:
            raise ConfigError(f"table {name}: no clip has the label stratum={stratum}; label the prompts first (--split FILE)")
    return LAYOUTS[name]


def paper_table(report: Mapping[str, Any], name: str) -> Table:
    """One of :data:`LAYOUTS`: the paper's rows, and plausibility below them. Raises ConfigError as :func:`check_table`."""
    roles = {column["role"] for column in report["columns"]}
    layout = check_table(name, roles, report["strata"].get("stratum", {}))
    columns: list[tuple[str, str, Stratum | None]] = []
    bases: dict[str, None] = {}
    for heading, role, stratum in layout.columns:
        found = [column for column in report["columns"] if column["role"] == role]
        of_base = [column for column in found if layout.base in column["base"].lower()]
        column = (of_base or found)[0]
        bases[column["base"]] = None
        columns.append((heading, column["key"], ("stratum", stratum) if stratum else None))
    labels = {key: label for key, (label, _) in PAPER_ROWS.items()}
    title = ", ".join([f"{name}. {layout.title}", *filter(None, bases)])  # the columns' own bases, not those of the paper
    return _value_table(report, title, columns, layout.metrics, labels)


def value_table(
    report: Mapping[str, Any], columns: Sequence[str] = (), metrics: Sequence[str] = (), stratum: Stratum | None = None
) -> Table:
    """Any columns and metrics; by default every column but the controls, and every metric that has a value in one of them,
    plausibility first.

    Raises:
        ConfigError: a column, metric or stratum that the report lacks.
    """
    shown = columns or [column["key"] for column in report["columns"] if column["role"] != "control"]
    labels = {column["key"]: column["label"] for column in report["columns"]}
    missing = [key for key in shown if key not in labels] + [key for key in metrics if key not in report["metrics"]]
    if missing:
        raise ConfigError(f"the report has no column or metric {', '.join(missing)}")
    known = [key for key in report["metrics"] if any(report["values"][c][key]["n"] for c in shown)]
    rows = metrics or sorted(known, key=lambda key: key != "plausibility")
    title = f"Means, {stratum[0]} {stratum[1]}" if stratum else "Means"
    return _value_table(report, title, [(labels[key], key, stratum) for key in shown], rows, {})


def paired_table(report: Mapping[str, Any], first: str, second: str) -> Table:
    """Second minus first on the same prompts and seeds; plausibility on the same clips beside every metric, if it is there."""
    labels = {column["key"]: column["label"] for column in report["columns"]}
    beside = report["metrics"].get("plausibility")
    rows: list[Cells] = []
    for key, entry in report["paired"][first][second].items():
        if not entry["n"]:
            continue
        info = report["metrics"][key]
        rows.append(
            (
                f"{info['label']} {ARROWS[info['direction']]}".strip(),
                difference(entry, info["decimals"], bold=entry["p_holm"] is not None and entry["p_holm"] < SIGNIFICANT),
                probability(entry["p"]),
                probability(entry["p_holm"]),
                Entry(str(entry["n"]), marks=FEW if entry["n"] < FEW_CLIPS else ""),
                *([difference(entry["plausibility"], beside["decimals"])] if beside else []),
            )
        )
    marks = GUARD if report["guards"].get(second, {}).get("red") else ""
    header = ("metric", "difference", "p", "p (Holm)", "clips", *(["plausibility on these clips"] if beside else []))
    return Table(f"{labels[second]}{marks} minus {labels[first]}, paired by prompt and seed", header, tuple(rows))


def accuracy_table(report: Mapping[str, Any]) -> Table | None:
    """Motion accuracy as a confusion matrix for each column, beside what a constant answer would score; None without labels."""
    amplitude = {(clip["id"], clip["seed"]): clip["labels"].get("amplitude") for clip in report["clips"]}
    rows: list[Cells] = []
    for column in report["columns"]:
        found = report["per_video"][column["key"]].get("motion_accuracy", [])
        right = Counter((amplitude[row["id"], row["seed"]], row["value"] > 0) for row in found if row["used"])
        large, slow = (right[label, True] + right[label, False] for label in ("large", "slow"))
        if column["role"] != "control" and large + slow:
            counts = right["large", True], right["large", False], right["slow", True], right["slow", False]
            constant = (f"{100 * label / (large + slow):.2f}" for label in (large, slow))
            rows.append((column["label"], *map(str, counts), *constant))
    header = (
        "column",
        "large, right",
        "large, found slow",
        "slow, right",
        "slow, found large",
        "always large, %",
        "always slow, %",
    )
    return (
        Table("Motion accuracy: answers by label, and what one answer for all would score", header, tuple(rows)) if rows else None
    )


def difference(entry: Mapping[str, Any], decimals: int, note: str = "", bold: bool = False) -> Entry:
    """``diff`` with its sign and ``ci``, both with up to four decimals more if that leaves two digits."""
    if entry["diff"] is None:
        return Entry(MISSING, note=note)
    largest = max(abs(value) for value in (entry["diff"], *(entry["ci"] or ())))
    needed = 1 - math.floor(math.log10(largest)) if 0 < largest < 1 else 0
    decimals = needed if decimals < needed <= decimals + 4 else decimals
    marks = STANDIN if entry["status"] == "standin" else ""
    return Entry(f"{entry['diff']:+.{decimals}f}", interval(entry["ci"], decimals), bold, marks, note)


def interval(ends: Sequence[float] | None, decimals: int) -> str:
    """As "[low, high]", or nothing."""
    return "" if ends is None else f"[{ends[0]:.{decimals}f}, {ends[1]:.{decimals}f}]"


def probability(p: float | None) -> str:
    """A p value with three decimals."""
    return MISSING if p is None else "<0.001" if p < 0.001 else f"{p:.3f}"


def _value_table(
    report: Mapping[str, Any],
    title: str,
    columns: Sequence[tuple[str, str, Stratum | None]],
    metrics: Sequence[str],
    labels: Mapping[str, str],
) -> Table:
    """``columns`` are (heading, key, stratum); ``labels`` replace the metrics' own."""
    red = {key for key, guard in report["guards"].items() if guard["red"]}
    header: list[Entry | str] = ["metric"]
    header += [Entry(heading, marks=GUARD if key in red else "") for heading, key, _ in columns]
    rows: list[Cells] = []
    groups, category = [], None
    for key in [*metrics, *(["plausibility"] if "plausibility" in report["metrics"] and "plausibility" not in metrics else [])]:
        info = report["metrics"].get(key)
        group = PAPER_ROWS[key][1] if key in PAPER_ROWS else "other"
        label = labels.get(key) or (info["label"] if info else key)
        cells = [_values(report, stratum)[column].get(key) if info else None for _, column, stratum in columns]
        if labels and category not in (None, group):
            groups.append(len(rows))
        category = group
        counts = [cell["n"] for cell in cells if cell and cell["n"]]
        few = FEW if counts and min(counts) < FEW_CLIPS else ""
        spread = MISSING if not counts else str(counts[0]) if len(set(counts)) == 1 else f"{min(counts)}-{max(counts)}"
        best = {index for index in (_best(cells, info) if info else ()) if columns[index][1] not in red}
        entries = [_entry(cell, info, index in best) for index, cell in enumerate(cells)]
        name = f"{label} {ARROWS[info['direction']]}".strip() if info else label
        rows.append((Entry(name, marks=few), *entries, spread))
    return Table(title, (*header, "clips"), tuple(rows), tuple(groups))


def _values(report: Mapping[str, Any], stratum: Stratum | None) -> Mapping[str, Any]:
    if stratum is None:
        return report["values"]
    label, value = stratum
    if value not in report["strata"].get(label, {}):
        raise ConfigError(f"no clip has the label {label}={value}; label the prompts first")
    return report["strata"][label][value]


def _entry(cell: Mapping[str, Any] | None, info: Mapping[str, Any] | None, bold: bool) -> Entry:
    if cell is None or info is None or cell["mean"] is None:
        return Entry(MISSING)
    decimals = info["decimals"]
    marks = STANDIN if cell["status"] == "standin" else ""
    return Entry(f"{cell['mean']:.{decimals}f}", interval(cell["ci"], decimals), bold, marks)


def _best(cells: Sequence[Mapping[str, Any] | None], info: Mapping[str, Any]) -> set[int]:
    """Places of the best cells: those that share the best printed value, if it lies beyond the interval of the next best.

    None where values of different backends stand side by side, without a direction, or without an interval.
    """
    known = {index: cell for index, cell in enumerate(cells) if cell is not None and cell["mean"] is not None}
    if info["direction"] == "neutral" or len({(cell["status"], cell["backend"]) for cell in known.values()}) != 1:
        return set()
    sign = 1.0 if info["direction"] == "up" else -1.0
    printed = {index: sign * round(cell["mean"], info["decimals"]) for index, cell in known.items()}
    leaders = {index for index, value in printed.items() if value == max(printed.values())}
    rest = [index for index in known if index not in leaders]
    if not rest:
        return set()
    runner_up = known[max(rest, key=lambda index: sign * known[index]["mean"])]
    if runner_up["ci"] is None:
        return set()
    edge = max(sign * end for end in runner_up["ci"])
    return leaders if all(sign * known[index]["mean"] > edge for index in leaders) else set()


def compared_pairs(report: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(baseline, column) of every column that was compared with its baseline; controls are not."""
    pairs = [(guard["baseline"], key) for key, guard in report["guards"].items()]
    return [(first, second) for first, second in pairs if second in report["paired"].get(first, {})]
