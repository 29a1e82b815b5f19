"""The page of an experiment, made of the cells: what must hold, every arm against the base loss, the paper's layouts, a figure.

Beside it a page of videos (:mod:`training.experiments.showcase`).
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from phys_pipeline.atomic import atomic_file
from phys_pipeline.errors import ConfigError
from phys_pipeline.evaluation.metric import MetricInfo
from phys_pipeline.evaluation.report import Column, describe_run, write_report
from phys_pipeline.evaluation.report.markdown import table_text
from phys_pipeline.evaluation.report.tables import MISSING, paper_table, value_table
from phys_pipeline.evaluation.scores import Scores
from phys_pipeline.evaluation.statistics import Pair, mean_bootstrap, paired_difference
from training.experiments.choice import GUARDS
from training.experiments.config import BASELINE, Arm, Experiment, Setting
from training.experiments.effects import (
    FRECHET,
    MUST_HOLD,
    Effect,
    Requirement,
    columns_of,
    effect,
    frechet_to_clean,
    per_seed,
)
from training.experiments.figures import draw_effects
from training.experiments.runner import Job, Runner
from training.experiments.showcase import choose_prompts, write_showcase

_GUIDANCE = ("true_cfg_scale", "guidance_scale")  # settings that the report names where a family has them
_BASE = "hunyuan"  # the base model's name in the paper's layouts
_STRATUM_METRICS = ("sim2_jerk", "sim2_residual", "warping_ratio", "direction_accuracy", "flow_score")
_LEAST_PER_STRATUM = 2  # prompts


def write_results(runner: Runner, command: str) -> str:
    """Write the reports, and the experiment's page, of the test columns that are finished; returns the page's text.

    Raises ConfigError when no choice is recorded, or no seed of the base loss or of ours is finished.
    """
    choice = runner.recorded_choice()
    every = runner.test_jobs(choice)
    about = _finished_part(runner.experiment, [job for job in every if runner.finished(job)], choice["ours"])
    jobs = [job for job in every if job.seed in about.seeds and (job.arm is None or job.arm in about.arms)]
    looks = _note_look(Path(about.output_dir) / "test_log.jsonl", choice["hash"])
    rows = runner.rows(jobs)
    columns = columns_of(rows, runner.infos)
    pages = Path(about.output_dir) / "report"
    videos = {
        f"{job.column}/{asked.id}#{job.seed}": runner.ledger.folder(runner.sample_cell(job)) / f"{asked.id}.mp4"
        for job in jobs
        for asked in runner.prompts(job.split)
    }
    run = describe_run(command, seed=0, prompt_set=f"{runner.world.name}/test.jsonl")
    strata = {row.labels.get("stratum") for row in rows}
    ours = choice["ours"]
    layouts = _layouts(about.arms, strata)
    report = write_report(rows, runner.infos, _columns(about, choice), run, pages, videos=videos, tables=layouts)
    found = _effects(columns, about, runner.clean)
    page = Path(about.report)
    figure = draw_effects(page.with_suffix(".png"), found, MUST_HOLD, ours)
    seed, jerk = about.seeds[0], "sim2_jerk"
    shown = choose_prompts(runner.prompts("test"), columns[about.base_loss.name][jerk], columns[ours][jerk], seed)
    showcase = page.with_name(f"{page.stem}_videos.md")
    write_showcase(showcase, shown, _beside(about, ours), videos, seed)
    parts = [
        _head(runner, about, choice, command, looks),
        *_left_out([job for job in every if job not in jobs]),
        _must_hold(found, about, ours),
        f"![Effect of every arm against the base loss]({figure.name})\n\n{_CAPTION} [Videos side by side]({showcase.name}).",
        _all_arms(found, columns, about, choice, runner.clean),
        _seeds(columns, about, ours, runner.clean),
        _held_out(runner, about, jobs),
        *[f"## In the layout of the paper's table {name[1:]}\n\n{table_text(paper_table(report, name))}" for name in layouts],
        *_ablation(about, choice, runner.infos, rows, run, pages),
        *_strata(report),
        sweep_text(choice),
        _NOTES,
    ]
    text = "\n\n".join(parts) + "\n"
    with atomic_file(about.report) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return text


_CAPTION = (
    "Effects against LoRA with base loss: estimates and 95 % intervals (some leave their panel), ours in bold; the grey line "
    "is no effect, shaded is what was asked for, green what is met."
)


def _finished_part(experiment: Experiment, finished: Sequence[Job], ours: str) -> Experiment:
    """The seeds that base model, base loss and ours have, and the arms that have all of them, as has what they ablate.

    So every table compares the same prompts and seeds. Raises ConfigError where there is no such seed.
    """
    done = {(job.column, job.seed) for job in finished}
    needed = (BASELINE, experiment.base_loss.name, ours)
    seeds = tuple(seed for seed in experiment.seeds if all((name, seed) in done for name in needed))
    if not seeds:
        raise ConfigError(f"no seed of {', '.join(needed)} is finished: run --stage test first; the same command goes on")
    whole = {arm.name for arm in experiment.arms if all((arm.name, seed) in done for seed in seeds)}
    arms = (arm for arm in experiment.arms if arm.name in whole and (arm.ablates is None or arm.ablates in whole))
    return replace(experiment, arms=tuple(arms), seeds=seeds)


def _left_out(jobs: Sequence[Job]) -> list[str]:
    """Names what the page doesn't show."""
    by_arm: dict[str, list[int]] = {}
    for job in jobs:
        by_arm.setdefault(job.column, []).append(job.seed)
    if not by_arm:
        return []
    names = "; ".join(f"{name} (seed {', '.join(map(str, seeds))})" for name, seeds in by_arm.items())
    return [f"**Left out, because not finished for every seed shown:** {names}."]


_NOTES = """## How to read this

Effects are paired by prompt and noise seed; intervals (95 %) draw whole prompts. A gain is met when its estimate reaches the
bound and its interval excludes no effect; a guard is met when its whole interval lies within the bound. "Frechet distance" is
that of the latent cells of all frames to those of the clean set. Flow is DIS. The base model comes without any adapter, from the
same noise. Every video of every column, side by side, is in `report/report.html` of the output folder."""


def _note_look(file: Path, choice: str) -> int:
    """How many different choices the test prompts have been read for, this one included."""
    seen = [json.loads(line)["choice"] for line in file.read_text(encoding="utf-8").splitlines()] if file.is_file() else []
    if choice not in seen:
        seen.append(choice)
        with atomic_file(file) as temporary:
            temporary.write_text("".join(json.dumps({"choice": one}) + "\n" for one in seen), encoding="utf-8")
    return len(seen)


def _columns(about: Experiment, choice: Mapping[str, Any]) -> list[Column]:
    base = Column(BASELINE, "base model", "baseline", base=_BASE)
    roles = {arm.name: "ours" if arm.name == choice["ours"] else arm.role for arm in about.arms}
    return [base, *(_column(about, arm, roles[arm.name], choice) for arm in about.arms)]


def _loss(about: Experiment, arm: Arm, choice: Mapping[str, Any]) -> Setting:
    return about.loss(arm, choice["chosen"].get(arm.ablates or arm.name, {}))


def _column(about: Experiment, arm: Arm, role: str, choice: Mapping[str, Any]) -> Column:
    loss = ", ".join(f"{key}={value}" for key, value in _loss(about, arm, choice).items())
    return Column(arm.name, arm.label or arm.name, "" if role.startswith("without") else role, base=_BASE, loss=loss)


def _layouts(arms: Sequence[Arm], strata: set[str | None]) -> list[str]:
    roles = {arm.role for arm in arms}
    names = ["T2"] if {"base_loss", "flow_loss"} <= roles else []
    return [*names, *(["T3"] if {"simple", "complex"} <= strata else [])]


def _ablation(
    about: Experiment, choice: Mapping[str, Any], infos: Sequence[MetricInfo], rows: Sequence[Any], run: Mapping[str, Any],
    pages: Path,
) -> list[str]:  # fmt: skip
    """Table 4: the ablated arm takes the part of ours."""
    parts = [arm for arm in about.arms if arm.role.startswith("without")]
    if {arm.role for arm in parts} != {"without_translation", "without_rotation", "without_scaling"}:
        return []
    whole = about.arm(str(parts[0].ablates))
    columns = [
        Column(BASELINE, "base model", "baseline", base=_BASE), _column(about, whole, "ours", choice),
        *(replace(_column(about, arm, "", choice), role=arm.role) for arm in parts),
    ]  # fmt: skip
    kept = {column.key for column in columns}
    report = write_report([r for r in rows if r.model in kept], infos, columns, run, pages / "ablation", tables=["T4"])
    shown = [*_STRATUM_METRICS, "dynamic_degree", "spectrum_distance"]
    table = value_table(report, [column.key for column in columns], [m for m in shown if m in report["metrics"]])
    title = f"## In the layout of the paper's table 4: {whole.label or whole.name} without its parts"
    return [f"{title}\n\n{table_text(paper_table(report, 'T4'))}\n\n{table_text(table)}"]


def _strata(report: Mapping[str, Any]) -> list[str]:
    """Each stratum and motion of which there are several prompts."""
    parts = []
    for label, values in report["strata"].items():
        for value in values:
            ids = {clip["id"] for clip in report["clips"] if clip["labels"].get(label) == value}
            if len(ids) < _LEAST_PER_STRATUM:
                continue
            table = value_table(report, (), [m for m in _STRATUM_METRICS if m in report["metrics"]], (label, value))
            parts.append(f"## {label} {value}: {len(ids)} prompts\n\n{table_text(table)}")
    return parts


def _head(runner: Runner, about: Experiment, choice: Mapping[str, Any], command: str, looks: int) -> str:
    config = about.train_config(about.base_loss, {}, seed=0, output="-", world="-")
    tested, validated = len(runner.prompts("test")), len(runner.prompts("validation"))
    settings = ", ".join(f"{key}={value}" for key, value in sorted(about.train.items()))
    return (
        f"# The experiment: does the loss make motion better?\n\nMade by `{command}`. Model `{about.model}`; world "
        f"{runner.world_digest[:12]}, {100 * about.flawed_share:.0f} % of its training clips flawed where it was written here. "
        f"{len(about.seeds)} training seeds ({', '.join(map(str, about.seeds))}), {tested} test prompts, one noise for each "
        f"prompt and seed; {validated} other prompts and seed {about.sweep_seed} for the choice of settings. All arms: rank "
        f"{config.rank}, {config.max_train_steps} steps of {config.train_batch_size} clips, same clips, order, noise and noise "
        f"levels ({settings}). "
        f"Sampler: {runner.sampler['num_inference_steps']} steps"
        f"{''.join(f', {name} {runner.sampler[name]}' for name in _GUIDANCE if name in runner.sampler)}.\n\n"
        f"Choice recorded before a test prompt was read: `{choice['hash'][:16]}`, ours = **{choice['ours']}** "
        f"({_text(choice['chosen'][choice['ours']])}). Rule: {choice['rule']} The test prompts have been read for {looks} "
        f"recorded choice(s) in this folder."
    )


def _effects(columns: Mapping[str, Mapping[str, Scores]], about: Experiment, clean: Path) -> dict[str, dict[str, Effect | None]]:
    """Of every column but the base loss, against it, by column and metric."""
    base = columns[about.base_loss.name]
    names = [BASELINE, *(arm.name for arm in about.arms if arm is not about.base_loss)]
    return {name: {w.metric: effect(base, columns[name], w, clean) for w in MUST_HOLD} for name in names}


def _paper(about: Experiment) -> list[str]:
    return [arm.name for arm in about.arms if arm.settings.get("motion_preset") == "paper" and not arm.ablates]


def _beside(about: Experiment, ours: str) -> dict[str, str]:
    """Columns of the page of videos and their labels."""
    roles = {arm.role: arm for arm in about.arms if arm.role in ("base_loss", "flow_loss")}
    arms = [*roles.values(), *(about.arm(name) for name in _paper(about)), about.arm(ours)]
    return {BASELINE: "base model", **{arm.name: "ours" if arm.name == ours else arm.name for arm in arms}}


def _must_hold(effects: Mapping[str, Mapping[str, Effect | None]], about: Experiment, ours: str) -> str:
    names = list(dict.fromkeys([ours, *_paper(about)]))
    header = ["", "asked", *[cell for name in names for cell in (f"{name} against base loss", "verdict")], "pairs"]
    lines = []
    for wanted in MUST_HOLD:
        found = [effects[name][wanted.metric] for name in names]
        cells = [cell for one in found for cell in (_effect(one, wanted), wanted.verdict(one))]
        lines.append([wanted.label, wanted.text, *cells, str(found[0].n if found[0] else 0)])
    return "## What must hold\n\n" + _table(header, lines)


def _all_arms(
    effects: Mapping[str, Mapping[str, Effect | None]], columns: Mapping[str, Mapping[str, Scores]], about: Experiment,
    choice: Mapping[str, Any], clean: Path,
) -> str:  # fmt: skip
    names = [BASELINE, *(arm.name for arm in about.arms)]
    lines = []
    for name in names:
        cells = [
            "reference" if name == about.base_loss.name else _effect(effects[name][wanted.metric], wanted) for wanted in MUST_HOLD
        ]
        distance = frechet_to_clean(columns[name][FRECHET], clean) if columns[name][FRECHET].used else None
        setting = {} if name == BASELINE else _loss(about, about.arm(name), choice)
        lines.append([name, _text(setting), *cells, MISSING if distance is None else f"{distance:.3f}"])
    header = ["arm", "setting", *[f"{w.label} ({w.kind})" for w in MUST_HOLD], "Frechet distance to the clean set"]
    return "## Every arm against the base loss\n\n" + _table(header, lines)


def _seeds(columns: Mapping[str, Mapping[str, Scores]], about: Experiment, ours: str, clean: Path) -> str:
    base = columns[about.base_loss.name]
    lines = []
    for wanted in MUST_HOLD:
        found = per_seed(base, columns[ours], wanted, clean)
        lines.append([wanted.label, *[_number(found.get(seed), wanted) for seed in about.seeds]])
    return f"## {ours} against base loss, seed by seed\n\n" + _table(["", *[f"seed {seed}" for seed in about.seeds]], lines)


def _held_out(runner: Runner, about: Experiment, jobs: Sequence[Job]) -> str:
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
    return "## Held-out denoising loss\n\nClean clips that nothing was trained on; intervals draw clips.\n\n" + _table(
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
    for arm, settings in choice["judged"].items():
        for found in settings:
            score = MISSING if found["score"] is None else f"{found['score']:.3f}"
            cells = [_numbers(found["effects"].get(metric), wanted[metric]) for metric in shown]
            chosen = "yes" if found["setting"] == choice["chosen"][arm] else ""
            lines.append([arm, _text(found["setting"]), score, *cells, ", ".join(found["broken"]), chosen])
    return (
        "## The sweep, on validation prompts\n\nScore: geometric mean of the ratios of jerk and residual; 1 is the base loss.\n\n"
        + _table(header, lines)
    )


def _numbers(found: Sequence[float] | None, wanted: Requirement) -> str:
    if not found:
        return MISSING
    value, *interval = found
    return _effect(Effect(value, (interval[0], interval[1]) if interval else None, 0), wanted)


def _effect(found: Effect | None, wanted: Requirement) -> str:
    if found is None:
        return MISSING
    if found.interval is None:
        return _number(found.value, wanted)
    return f"{_number(found.value, wanted)} [{_number(found.interval[0], wanted)}, {_number(found.interval[1], wanted)}]"


def _number(value: float | None, wanted: Requirement) -> str:
    return MISSING if value is None else f"{value:.3f}" if wanted.kind == "ratio" else f"{value:+.1f}"


def _text(setting: Setting | None) -> str:
    return ", ".join(f"{key} {value}" for key, value in (setting or {}).items())


def _table(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (header, ["---"] * len(header), *lines))
