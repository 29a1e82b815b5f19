"""Tables of the experiment's page: effects against the base loss and rivals, amounts, seeds, motions, held-out loss, sweep."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from phys_pipeline.evaluation.report.tables import MISSING
from phys_pipeline.evaluation.scores import NO_SCORES, Scores
from phys_pipeline.evaluation.statistics import Pair, cluster_bootstrap, mean_bootstrap, paired_difference
from training.experiments.choice import GUARDS
from training.experiments.config import BASELINE, Arm, Experiment, Setting
from training.experiments.effects import (
    EVERY,
    FRECHET,
    JERK_IN_PIXELS,
    MUST_HOLD,
    Columns,
    Effect,
    Measure,
    effect,
    effect_among,
    frechet_to_clean,
    jerk_by_motion,
    per_seed,
)
from training.experiments.reference import CLEAN
from training.experiments.runner import Job, Runner

Effects = Mapping[str, Mapping[str, Effect | None]]  # by column and metric
_AMOUNTS = {  # of the table of means: places after the point
    "flow_score": 3, "dynamic_degree": 3, "sim2_jerk": 3, JERK_IN_PIXELS: 3, "sim2_residual": 3, "warping_ratio": 3,
    "warping_error": 5, "spectral_loss": 3, "plausibility": 3, "detail": 2,
}  # fmt: skip
BY_MOTION = ("sim2_jerk", "sim2_residual", "warping_ratio", "direction_accuracy", "flow_score")
LEAST_PER_STRATUM = 2  # prompts


def must_hold(effects: Effects, names: Sequence[str]) -> str:
    """What was asked for, with the effect of each named column and its verdict."""
    header = ["", "asked", *[cell for name in names for cell in (f"{name} against base loss", "verdict")], "pairs"]
    lines = []
    for wanted in MUST_HOLD:
        found = [effects[name][wanted.metric] for name in names]
        cells = [cell for one in found for cell in (effect_text(one, wanted), wanted.verdict(one))]
        lines.append([wanted.label, wanted.text, *cells, str(found[0].n if found[0] else 0)])
    return "## What must hold\n\n" + table(header, lines)


def amounts(columns: Columns, effects: Effects, base: str, shown: Sequence[str], ours: str) -> str:
    """Means of the clean clips and of some columns, and ours against the base loss: what the ratios above don't say."""
    measures, lines = {one.metric: one for one in EVERY}, []
    for metric, places in _AMOUNTS.items():
        means = [_mean(columns[name].get(metric, NO_SCORES), places) for name in shown]
        lines.append([measures[metric].label, *means, effect_text(effects[ours][metric], measures[metric])])
    header = ["mean", *[f"{name} clips" if name == CLEAN else name for name in shown], f"{ours} / {base}"]
    text = (
        "Jerk, residual and warping ratio are relative to the motion; flow, jerk x flow (pixels per frame) and the raw warping "
        "error are amounts. The clean clips show what the same prompts ask for: one per prompt, never through the autoencoder."
    )
    within = jerk_by_motion(columns[base])
    if within is not None and within.interval is not None:
        text += (
            f" Within a prompt, over the seeds of {base}, log jerk has the slope {within.value:+.2f} [{within.interval[0]:+.2f}, "
            f"{within.interval[1]:+.2f}] on log flow: -1 would say that more motion dilutes a jerk of fixed size."
        )
    return f"## Amounts\n\n{text}\n\n" + table(header, lines)


def rivals(columns: Columns, ours: str, others: Sequence[str], clean: Path) -> str:
    """Ours against each other arm that could have been it."""
    lines = [
        [one.label, *[effect_text(effect(columns[other], columns[ours], one, clean), one) for other in others]] for one in EVERY
    ]
    return f"## {ours} against its rivals\n\n" + table(["", *[f"against {other}" for other in others]], lines)


def all_arms(effects: Effects, columns: Columns, about: Experiment, clean: Path) -> str:
    """Every column against the base loss."""
    lines = []
    for name in [BASELINE, *(arm.name for arm in about.arms)]:
        cells = ["reference" if name == about.base_loss.name else effect_text(effects[name][one.metric], one) for one in EVERY]
        distance = frechet_to_clean(columns[name][FRECHET], clean) if columns[name][FRECHET].used else None
        lines.append([name, *cells, MISSING if distance is None else f"{distance:.3f}"])
    header = ["arm", *[f"{one.label} ({one.kind})" for one in EVERY], "Frechet distance to the clean set"]
    return "## Every arm against the base loss\n\n" + table(header, lines)


def settings(runner: Runner, about: Experiment, jobs: Sequence[Job]) -> str:
    """What each arm is, its loss, and what a seed of it took."""
    lines = []
    for arm in about.arms:
        own = [job for job in jobs if job.arm is arm]
        loss = (
            {"N": runner.candidates(own[0])}
            if arm.best_of
            else {**about.loss(arm, own[0].setting), **arm.sampler, **strengths(arm)}
        )
        minutes = statistics.median(sum(runner.seconds(job)) for job in own) / 60
        lines.append([arm.name, arm.label or arm.name, setting_text(loss), f"{minutes:.1f}"])
    header = ["arm", "", "loss", "minutes"]
    return (
        f"## The arms\n\nMinutes: training, {len(runner.prompts('test'))} videos and their measurement for one seed, the median "
        "of the seeds, by the clock, in one of two processes on two cores that other work shared at times.\n\n"
        + table(header, lines)
    )


def strengths(arm: Arm) -> Setting:
    """Those of the other arms' adapters that it uses, for :func:`setting_text`."""
    return {f"strength of {name}": weight for name, weight in arm.adapters.items()}


def seeds(columns: Columns, about: Experiment, ours: str, clean: Path) -> str:
    """The effects of each training seed alone."""
    base = columns[about.base_loss.name]
    lines = []
    for one in MUST_HOLD:
        found = per_seed(base, columns[ours], one, clean)
        lines.append([one.label, *[number(found.get(seed), one) for seed in about.seeds]])
    return f"## {ours} against base loss, seed by seed\n\n" + table(["", *[f"seed {seed}" for seed in about.seeds]], lines)


def by_motion(columns: Columns, base: str, ours: str, clean: Path) -> str:
    """The effects on each stratum and motion of which there are several prompts."""
    measures = [one for one in MUST_HOLD if one.metric in BY_MOTION]
    groups: dict[tuple[str, str], set[Pair]] = {}
    for row in columns[base]["flow_score"].used:
        for label in ("stratum", "motion"):
            groups.setdefault((label, row.labels.get(label, "")), set()).add(row.pair)
    lines = []
    for (label, value), pairs in sorted(groups.items(), reverse=True):
        count = len({prompt for prompt, _ in pairs})
        if not value or count < LEAST_PER_STRATUM:
            continue
        cells = [effect_text(effect_among(columns[base], columns[ours], one, pairs, clean), one) for one in measures]
        lines.append([f"{label}: {value}", str(count), *cells])
    header = ["", "prompts", *[f"{one.label} ({one.kind})" for one in measures]]
    return f"## {ours} against base loss, by motion\n\n" + table(header, lines)


def held_out(runner: Runner, about: Experiment, jobs: Sequence[Job]) -> str:
    """Mean denoising loss of held-out clean clips, all noise levels; the base model's from the same runs."""
    losses: dict[str, dict[Pair, float]] = {BASELINE: {}}
    for job in jobs:
        cell = runner.train_cell(job)
        if cell is None:
            continue
        folder = runner.ledger.folder(cell) / "adapter" / "validation"
        last = max(folder.glob("step-*"), key=lambda path: int(path.name.partition("-")[2]))
        losses.setdefault(job.column, {}).update(_losses(last, job.seed))
        losses[BASELINE].update(_losses(folder / "base", job.seed))
    base, lines = losses[about.base_loss.name], []
    for name, found in losses.items():
        low, high = mean_bootstrap([statistics.fmean(v for (clip, _), v in found.items() if clip == c) for c in _clips(found)])
        change = paired_difference(base, found)
        shown = (
            MISSING if change.interval is None else f"{change.mean:+.5f} [{change.interval[0]:+.5f}, {change.interval[1]:+.5f}]"
        )
        lines.append([name, f"{statistics.fmean(found.values()):.5f} [{low:.5f}, {high:.5f}]", shown, str(len(found))])
    header = ["arm", "denoising loss", "against base loss", "clips x seeds"]
    return "## Held-out denoising loss\n\nClean clips that nothing was trained on; intervals draw clips.\n\n" + table(
        header, lines
    )


def _losses(folder: Path, seed: int) -> dict[Pair, float]:
    entries = json.loads((folder / "results.json").read_text(encoding="utf-8"))["held_out"]
    clips: dict[str, list[float]] = {}
    for entry in entries:
        clips.setdefault(entry["clip"], []).append(entry["denoising"])
    return {(clip, seed): statistics.fmean(values) for clip, values in clips.items()}


def _clips(losses: Mapping[Pair, float]) -> list[str]:
    return sorted({clip for clip, _ in losses})


def sweep_text(choice: Mapping[str, Any]) -> str:
    """Every setting of the sweep against the base loss, on the validation prompts."""
    wanted = {w.metric: w for w in (*MUST_HOLD, *GUARDS)}  # the guards' direction is the one that judges
    shown = [metric for metric in wanted if metric != "warping_ratio"]
    header = ["arm", "setting", "score", *[f"{wanted[m].label} ({wanted[m].kind})" for m in shown], "broken guards", "chosen"]
    lines = []
    for arm, tried in choice["judged"].items():
        for found in tried:
            score = MISSING if found["score"] is None else f"{found['score']:.3f}"
            cells = [_numbers(found["effects"].get(metric), wanted[metric]) for metric in shown]
            chosen = "yes" if found["setting"] == choice["chosen"][arm] else ""
            lines.append([arm, setting_text(found["setting"]), score, *cells, ", ".join(found["broken"]), chosen])
    return (
        "## The sweep, on validation prompts\n\nScore: geometric mean of the ratios of jerk and residual; 1 is the base loss.\n\n"
        + table(header, lines)
    )


def _numbers(found: Sequence[float] | None, one: Measure) -> str:
    if not found:
        return MISSING
    value, *interval = found
    return effect_text(Effect(value, (interval[0], interval[1]) if interval else None, 0), one)


def _mean(scores: Scores, places: int) -> str:
    if not scores.values:
        return MISSING
    low, high = cluster_bootstrap([(prompt, value) for (prompt, _), value in scores.values.items()])
    return f"{statistics.fmean(scores.values.values()):.{places}f} [{low:.{places}f}, {high:.{places}f}]"


def effect_text(found: Effect | None, one: Measure) -> str:
    """An effect with its interval."""
    if found is None:
        return MISSING
    if found.interval is None:
        return number(found.value, one)
    return f"{number(found.value, one)} [{number(found.interval[0], one)}, {number(found.interval[1], one)}]"


def number(value: float | None, one: Measure) -> str:
    """A ratio, or a difference in points."""
    return MISSING if value is None else f"{value:.3f}" if one.kind == "ratio" else f"{value:+.1f}"


def setting_text(setting: Setting | None) -> str:
    """Settings in words: "objective preference + ltd, sigma_max 0.8"."""
    return ", ".join(
        f"{key} {' + '.join(map(str, value)) if isinstance(value, (list, tuple)) else value}"
        for key, value in (setting or {}).items()
    )


def table(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (header, ["---"] * len(header), *lines))
