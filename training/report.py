"""`report.md` and `report.html` of a run, from the files in its folder: settings, curves, held-out losses, scores and videos.

python training/report.py out/tiny      writes them again
"""

from __future__ import annotations

import html
import json
import math
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that `training` and `phys_pipeline` are found

from phys_pipeline.atomic import atomic_file
from phys_pipeline.errors import ConfigError
from training.config import MOTION_NAMES, PRIVATE, TrainConfig, load_config

CURVES_FILE = "curves.png"
_CURVES = (
    ("denoising", "denoising loss"), ("motion", "motion loss"), ("motion_energy_ratio", "motion energy, x0-hat / clip"),
    ("gradient_norm", "gradient norm"),
)  # fmt: skip
_HELD_OUT = {"denoising": "denoising loss", "motion": "motion loss", "motion_energy": "motion energy of x0-hat / clip"}
_T_975 = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26)  # Student's t, 1 to 9 degrees of freedom


@dataclass(frozen=True)
class Table:
    """Header and rows of text cells."""

    header: tuple[str, ...]
    rows: list[tuple[str, ...]]


@dataclass(frozen=True)
class Media:
    """A picture or video beside the report."""

    title: str
    file: str


Block = str | Table | Media  # a text that begins with "## " is a heading


def mean_interval(values: Sequence[float]) -> tuple[float, float]:
    """Mean, and half the width of its 95 % t interval (NaN for one value)."""
    n = len(values)
    if n < 2:
        return values[0], math.nan
    t = _T_975[n - 2] if n <= 10 else 1.96 + 2.5 / (n - 1)
    return statistics.fmean(values), t * statistics.stdev(values) / math.sqrt(n)


def write_report(folder: str | Path) -> Path:
    """Write `report.md`, `report.html` and the curves of a finished run; returns the path of the first. Raises ConfigError."""
    root = Path(folder)
    if not (root / "config.yaml").is_file():
        raise ConfigError(f"{root} holds no config.yaml: give the output_dir of a finished run")
    blocks = _blocks(root)
    for name, text in (("report.md", _markdown(blocks)), ("report.html", _page(blocks))):
        with atomic_file(root / name) as temporary:
            temporary.write_text(text, encoding="utf-8")
    return root / "report.md"


def measured(root: Path) -> dict[str, Any] | None:
    """The base model and the last validation of a run's folder, on the same clips and noise: the record in its provenance.

    {"step", "measures": [{"name", "unit", "n", "base", "trained", "difference", "low", "high"}]}, the bounds those of a 95 % t
    interval of the mean paired difference (None for a single one). None where nothing was validated.
    """
    base, steps = _validations(root)
    if not base or not steps:
        return None
    last, trained = steps[-1]
    measures = []
    for key, name in _HELD_OUT.items():
        before, after = _by_clip(base["held_out"], key), _by_clip(trained["held_out"], key)
        levels = sorted({sigma for _, sigma in before} & {sigma for _, sigma in after})
        measures.append(_measure(f"{name}, held-out clips", "clips", *_paired(before, after, levels) if levels else ([], [])))
    pairs = [(a["scores"], b["scores"]) for a, b in zip(base["videos"], trained["videos"], strict=True)]
    for key, name in (("composite", "motion loss"), ("dynamic_degree", "dynamic degree")):
        values = [(a[key], b[key]) for a, b in pairs if a and b]
        measures.append(_measure(f"{name}, generated videos", "videos", [a for a, _ in values], [b for _, b in values]))
    return {"step": last, "measures": [measure for measure in measures if measure is not None]}


def _measure(name: str, unit: str, base: list[float], trained: list[float]) -> dict[str, Any] | None:
    if not base:
        return None
    difference, half = mean_interval([b - a for a, b in zip(base, trained, strict=True)])
    numbers = {"base": statistics.fmean(base), "trained": statistics.fmean(trained), "difference": difference}
    numbers |= {"low": difference - half, "high": difference + half}
    found = {key: None if math.isnan(value) else round(value, 6) for key, value in numbers.items()}
    return {"name": name, "unit": unit, "n": len(base), **found}


def _validations(root: Path) -> tuple[dict[str, Any], list[tuple[int, dict[str, Any]]]]:
    """Results of the base model, and of every validation by step."""
    found = [(int(p.parent.name.partition("-")[2]), _json(p)) for p in root.glob("validation/step-*/results.json")]
    return _json(root / "validation" / "base" / "results.json"), sorted(found, key=lambda pair: pair[0])


def _blocks(root: Path) -> list[Block]:
    config = load_config(root / "config.yaml")
    about = _json(root / "provenance.json")
    records = [json.loads(line) for line in (root / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    base, steps = _validations(root)
    blocks: list[Block] = [_summary(config, about), "## Settings", _settings(config), "## Training"]
    if records:
        blocks.append(Media("Curves over the steps", CURVES_FILE) if _draw(root, records, base, steps) else _numbers(records))
    if not base or not steps:
        return [*blocks, "Nothing was held out: validation_split, validation_data and validation_prompts were not set."]
    last, trained = steps[-1]
    if base["held_out"]:
        blocks += ["## Held-out clips", _held_out_text(config, last), *_held_out(base["held_out"], trained["held_out"])]
    if base["videos"]:
        blocks += ["## Generated videos", *_videos(base["videos"], trained["videos"], last)]
    return blocks


def _summary(config: TrainConfig, about: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in about.get("versions", {}).items())
    return (
        f"{about.get('trainable_parameters', 0):,} parameters of {about.get('base_model')} (revision {about.get('revision')}) "
        f"trained for {config.max_train_steps} steps on {len(about.get('clips', []))} clips in {about.get('seconds')} s on "
        f"{about.get('processes')} x {about.get('device')}. phys-pipeline {about.get('phys_pipeline')}, {versions}."
    )


def _settings(config: TrainConfig) -> Table:
    """The settings that differ from their defaults; folders are left out, since a report may be shared."""
    usual = TrainConfig().to_dict()
    changed = {k: v for k, v in config.to_dict().items() if v != usual[k] and k not in PRIVATE}
    return Table(("setting", "value", "default"), [(k, str(v), str(usual[k])) for k, v in changed.items()])


def _held_out_text(config: TrainConfig, step: int) -> str:
    name = next((name for name in MOTION_NAMES if name in config.active), None)
    form = f", {config.motion_form} form," if name == "spectral" else ""
    motion = f"The motion loss is the {name} one{form} in {config.motion_space} space, unweighted. " if name else ""
    return (
        f"Losses of the base model and of step {step} on the same clips, noise levels and noise. Windows of a clip are averaged "
        "first; the interval is a 95 % t interval of the mean difference over clips, from one training run (seed "
        f"{config.seed}): it says nothing about other seeds. Negative differences of losses are improvements. {motion}Motion "
        "energy that falls far below the base model's means that predictions freeze."
    )


def _held_out(base: list[dict[str, Any]], trained: list[dict[str, Any]]) -> list[Block]:
    tables: list[Block] = []
    for key, name in _HELD_OUT.items():
        before, after = _by_clip(base, key), _by_clip(trained, key)
        levels = sorted({sigma for _, sigma in before} & {sigma for _, sigma in after})
        if not levels:
            continue
        rows = [_comparison(f"{sigma:.3f}", before, after, [sigma]) for sigma in levels]
        tables.append(Table(("sigma", f"{name}, base", "trained", "difference", "clips"),
                            [*rows, _comparison("all", before, after, levels)]))  # fmt: skip
    return tables


def _by_clip(losses: list[dict[str, Any]], key: str) -> dict[tuple[str, float], float]:
    """Mean over a clip's windows: {(clip, sigma): loss}."""
    grouped: dict[tuple[str, float], list[float]] = {}
    for loss in losses:
        if loss.get(key) is not None:  # motion_energy is missing from older runs
            grouped.setdefault((loss["clip"], loss["sigma"]), []).append(loss[key])
    return {place: statistics.fmean(values) for place, values in grouped.items()}


def _paired(
    before: dict[tuple[str, float], float], after: dict[tuple[str, float], float], levels: Sequence[float]
) -> tuple[list[float], list[float]]:
    """Means over the levels of each clip that has every level in both."""
    clips = [c for c in sorted({c for c, _ in before}) if all((c, s) in before and (c, s) in after for s in levels)]
    means = [[statistics.fmean(losses[c, s] for s in levels) for c in clips] for losses in (before, after)]
    return means[0], means[1]


def _comparison(
    label: str, before: dict[tuple[str, float], float], after: dict[tuple[str, float], float], levels: list[float]
) -> tuple[str, ...]:
    """One row: means and the paired difference over the clips."""
    first, second = _paired(before, after, levels)
    if not first:
        return label, "-", "-", "-", "0"
    difference = _with_interval([b - a for a, b in zip(first, second, strict=True)])
    return label, f"{statistics.fmean(first):.5f}", f"{statistics.fmean(second):.5f}", difference, str(len(first))


def _with_interval(values: list[float]) -> str:
    mean, half = mean_interval(values)
    return f"{mean:+.5f} (one, no interval)" if math.isnan(half) else f"{mean:+.5f} [{mean - half:+.5f}, {mean + half:+.5f}]"


def _videos(base: list[dict[str, Any]], trained: list[dict[str, Any]], step: int) -> list[Block]:
    rows, differences = [], []
    media: list[Block] = []
    for a, b in zip(base, trained, strict=True):
        media.append(Media(f"{b['prompt']}, seed {b['seed']}: base and step {step}", f"validation/step-{step}/{b['pair']}"))
        if a["scores"] and b["scores"]:
            differences.append(b["scores"]["composite"] - a["scores"]["composite"])
            numbers = [f"{x['scores'][key]:.4f}" for key in ("composite", "dynamic_degree") for x in (a, b)]
            rows.append((b["prompt"], str(b["seed"]), *numbers))
    if not rows:
        return ["The videos are too short to score.", *media]
    table = Table(("prompt", "seed", "motion loss, base", "trained", "dynamic degree, base", "trained"), rows)
    text = (
        f"Each pair starts from the same noise. Mean difference of the motion loss over {len(rows)} pair(s): "
        f"{_with_interval(differences)}. A lower loss with a lower dynamic degree may only mean less motion."
    )
    return [text, table, *media]


def _numbers(records: list[dict[str, Any]]) -> Table:
    """At most 20 evenly spread records, where there is no matplotlib to draw them."""
    shown = records[:: max(1, len(records) // 20)]
    cells = [(str(r["step"]), *("-" if r.get(k) is None else f"{r[k]:.5f}" for k, _ in _CURVES)) for r in shown]
    return Table(("step", *(name for _, name in _CURVES)), cells)


def _draw(root: Path, records: list[dict[str, Any]], base: dict[str, Any], steps: list[tuple[int, dict[str, Any]]]) -> bool:
    """Draw the curves; False without matplotlib. A dot is one step, the line the mean of up to 25 dots around it."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return False
    figure = Figure(figsize=(9, 5.4), layout="constrained")
    for axis, (key, name) in zip(figure.subplots(2, 2).flat, _CURVES, strict=True):
        points = [(r["step"], r[key]) for r in records if r.get(key) is not None]
        values = [value for _, value in points]
        smooth = [statistics.fmean(values[max(0, i - 12) : i + 13]) for i in range(len(values))]
        axis.plot([x for x, _ in points], values, ".", color="#9db8d9", markersize=3)
        axis.plot([x for x, _ in points], smooth, color="#1f5fa8", label="training")
        held_out = [(step, _by_clip(found["held_out"], key)) for step, found in [(0, base), *steps] if found] if key in (
            "denoising", "motion") else []  # fmt: skip
        means = [(step, statistics.fmean(losses.values())) for step, losses in held_out if losses]
        if means:
            axis.plot([x for x, _ in means], [y for _, y in means], "o-", color="#d1700e", label="held out")
            axis.legend(frameon=False)
        axis.set(xlabel="step", ylabel=name)
        axis.grid(alpha=0.3)
    with atomic_file(root / CURVES_FILE) as temporary:
        figure.savefig(temporary, dpi=100)
    return True


def _markdown(blocks: list[Block]) -> str:
    parts = ["# Training report"]
    for block in blocks:
        if isinstance(block, Table):
            lines = [block.header, ("---",) * len(block.header), *block.rows]
            parts.append("\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in lines))
        elif isinstance(block, Media):
            mark = "!" if block.file.endswith(".png") else ""
            parts.append(f"{mark}[{block.title}]({quote(block.file)})")
        else:
            parts.append(block)
    return "\n\n".join(parts) + "\n"


def _page(blocks: list[Block]) -> str:
    style = "body{font:15px sans-serif;max-width:60em;margin:2em auto}td,th{padding:2px 10px;text-align:left}"
    style += "table{margin:1em 0}img,video{max-width:100%}"
    parts = [f"<!doctype html><meta charset='utf-8'><title>Training report</title><style>{style}</style><h1>Training report</h1>"]
    for block in blocks:
        if isinstance(block, Table):
            rows = [(block.header, "th"), *((row, "td") for row in block.rows)]
            cells = ("".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in row) for row, tag in rows)
            parts.append("<table>" + "".join(f"<tr>{row}</tr>" for row in cells) + "</table>")
        elif isinstance(block, Media):
            source, title = quote(block.file), html.escape(block.title)
            shown = f"<img src='{source}'>" if block.file.endswith(".png") else f"<video src='{source}' controls loop></video>"
            parts.append(f"<figure>{shown}<figcaption>{title}</figcaption></figure>")
        else:
            heading = block.startswith("## ")
            parts.append(f"<h2>{html.escape(block[3:])}</h2>" if heading else f"<p>{html.escape(block)}</p>")
    return "\n".join(parts) + "\n"


def _json(file: Path) -> dict[str, Any]:
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    try:
        print(f"wrote {write_report(sys.argv[1])}")
    except ConfigError as error:
        sys.exit(f"error: {error}")
