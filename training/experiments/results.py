"""The page of an experiment, made of the cells: what must hold, rivals, amounts, every arm, the paper's layouts, a figure.

Beside it a page of videos (:mod:`training.experiments.showcase`) and one of every metric, stratum and motion.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from phys_pipeline.atomic import atomic_file
from phys_pipeline.errors import ConfigError
from phys_pipeline.evaluation.metric import MetricInfo
from phys_pipeline.evaluation.report import Column, describe_run, write_report
from phys_pipeline.evaluation.report.markdown import table_text
from phys_pipeline.evaluation.report.tables import paper_table, value_table
from training.experiments import tables
from training.experiments.choice import chosen_setting
from training.experiments.config import BASELINE, Arm, Experiment, digest
from training.experiments.effects import BESIDE, EVERY, MUST_HOLD, Columns, Effect, columns_of, effect
from training.experiments.figures import draw_effects
from training.experiments.reference import CLEAN, clean_rows
from training.experiments.runner import Job, Runner
from training.experiments.sensitivity import sensitivity
from training.experiments.showcase import choose_prompts, write_showcase

_GUIDANCE = ("true_cfg_scale", "guidance_scale")  # settings that the report names where a family has them
_BASE = "hunyuan"  # the base model's name in the paper's layouts


def write_results(runner: Runner, command: str) -> str:
    """Write the reports, and the experiment's pages, of the test columns that are finished; returns the first page's text.

    Raises ConfigError when no choice is recorded, or no seed of the base loss or of ours is finished.
    """
    choice = runner.recorded_choice()
    every = runner.test_jobs(choice)
    about = _finished_part(runner.experiment, [job for job in every if runner.finished(job)], choice["ours"])
    jobs = [job for job in every if job.seed in about.seeds and (job.arm is None or job.arm in about.arms)]
    looks = _note_look(Path(about.output_dir) / "test_log.jsonl", choice["hash"], [runner.measure_cell(job).key for job in every])
    rows, reference = runner.rows(jobs), clean_rows(runner)
    columns = columns_of([*rows, *reference], runner.infos)
    page = Path(about.report)
    pages = Path(about.output_dir) / "reports" / page.stem
    videos = {
        f"{job.column}/{asked.id}#{job.seed}": runner.ledger.folder(runner.sample_cell(job)) / f"{asked.id}.mp4"
        for job in jobs
        for asked in runner.prompts(job.split)
    }
    run = describe_run(command, seed=0, prompt_set=f"{runner.world.name}/test.jsonl")
    ours, base = choice["ours"], about.base_loss.name
    layouts = _layouts(about.arms, {row.labels.get("stratum") for row in rows})
    report = write_report(rows, runner.infos, _columns(about, choice), run, pages, videos=videos, tables=layouts)
    found = _effects(columns, about, runner.clean)
    figure = draw_effects(page.with_suffix(".png"), found, MUST_HOLD, ours)
    asked, seed, jerk = runner.prompts("test"), about.seeds[0], "sim2_jerk"
    showcase = page.with_name(f"{page.stem}_videos.md")
    write_showcase(
        showcase, choose_prompts(asked, columns[base][jerk], columns[ours][jerk], seed), _beside(about, ours), videos, seed
    )
    suite = page.with_name(f"{page.stem}_suite.md")
    _write(suite, [_SUITE.format(page=page.name), *_suite(report)])
    rivals = [*about.swept(), *(arm for arm in about.arms if not arm.trains)]  # what could have been ours, or needs no training
    others = [name for name in dict.fromkeys(arm.name for arm in rivals) if name not in (base, ours)]
    shown = [*([CLEAN] if reference else []), BASELINE, base, ours, *others]
    parts = [
        f"# {about.title}\n\n{_in_short(found[ours], ours, len(about.seeds))}",
        *_left_out([job for job in every if job not in jobs]),
        f"![Effect of every arm against the base loss]({figure.name})\n\n{_CAPTION} [Videos side by side]({showcase.name}); "
        f"[every metric, stratum and motion]({suite.name}).",
        tables.must_hold(found, list(dict.fromkeys([ours, *_paper(about)]))),
        _HOW_TO_READ,
        tables.amounts(columns, found, base, shown, ours),
        *([tables.rivals(columns, ours, others, runner.clean)] if others else []),
        tables.all_arms(found, columns, about, runner.clean),
        tables.by_motion(columns, base, ours, runner.clean),
        tables.seeds(columns, about, ours, runner.clean),
        sensitivity(columns[base], columns[ours], asked, about.judged_before, runner.clean),
        tables.held_out(runner, about, jobs),
        *[f"## In the layout of the paper's table {name[1:]}\n\n{table_text(paper_table(report, name))}" for name in layouts],
        *([_MISSING_ROWS] if layouts else []),
        *_ablation(about, choice, runner.infos, rows, run, pages),
        tables.settings(runner, about, jobs),
        tables.sweep_text(choice),
        _made(runner, about, choice, command, looks),
    ]
    return _write(page, parts)


def _write(page: Path, parts: Sequence[str]) -> str:
    text = "\n\n".join(parts) + "\n"
    with atomic_file(page) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return text


_CAPTION = (
    "Effects against LoRA with base loss: estimates and 95 % intervals (an arrow where one leaves its panel), ours in bold; the "
    "grey line is no effect, shaded is what was asked for, green what is met."
)
_HOW_TO_READ = """## How to read this

* An effect is ours, or another arm, against LoRA with base loss on the same prompts, noise and training seeds: a ratio of
  means, or a difference in points. Its interval (95 %) draws whole prompts, for these training seeds; nothing is adjusted for
  the number of arms and measures. A gain is met when its estimate reaches the bound and its interval excludes no effect; a guard
  when its whole interval lies within the bound.
* *SIM(2) jerk* and *residual* come from a shift, turn and zoom fitted to the optical flow (DIS) of moving pixels: how unevenly
  they go on, and what of the flow they leave; both relative to the motion. *Warping error / frame difference* is the error with
  warping over that without. *Spatial spectrum distance* and *Frechet distance* (latent cells of all frames to those of a clean
  set) see blur and speckle. All are described in [evaluation](../evaluation.md), the losses in
  [objectives](../training_objectives.md).
* † a stand-in (DIS for RAFT); \\* under 100 clips; **bold** the best value, where it lies beyond the next one's interval."""
_MISSING_ROWS = (
    "Rows without numbers need weights that could not be had here, or labels that these prompts don't have (motion accuracy: "
    'slow or large motion; action); "direction right" above is what these prompts do say about motion.'
)
_SUITE = "# The experiment: every metric\n\nBeside [the experiment]({page}): means, 95 % intervals that draw whole prompts."


def _in_short(own: Mapping[str, Effect | None], ours: str, seeds: int) -> str:
    """The answer, from the effects of ours by metric."""
    gains, guards = ([w for w in MUST_HOLD if w.gain is kind] for kind in (True, False))
    met, missed = ([w.label for w in gains if (w.verdict(own[w.metric]) == "met") is kind] for kind in (True, False))
    kept = [w for w in guards if w.verdict(own[w.metric]) == "met"]
    effects = ", ".join(f"{w.label} {tables.effect_text(own[w.metric], w)} (asked: {w.text})" for w in gains)
    amounts = ", ".join(f"{one.label} {tables.effect_text(own[one.metric], one)}" for one in BESIDE)
    return (
        f"**In short.** Validation chose {ours} as ours. Against LoRA with base loss, on the test prompts, with {seeds} training "
        f"seeds: {effects}. Asked and reached: {', '.join(met) or 'none'}; not reached: {', '.join(missed) or 'none'}. Guards "
        f"kept: {len(kept)} of {len(guards)}. Beside them: {amounts}."
    )


def _finished_part(experiment: Experiment, finished: Sequence[Job], ours: str) -> Experiment:
    """The seeds that base model, base loss and ours have, and the arms that have all of them, as has what they are made of.

    So every table compares the same prompts and seeds. Raises ConfigError where there is no such seed.
    """
    done = {(job.column, job.seed) for job in finished}
    needed = (BASELINE, experiment.base_loss.name, ours, *_made_of(experiment.arm(ours)))
    seeds = tuple(seed for seed in experiment.seeds if all((name, seed) in done for name in needed))
    if not seeds:
        raise ConfigError(f"no seed of {', '.join(needed)} is finished: run --stage test first; the same command goes on")
    whole = {arm.name for arm in experiment.arms if all((arm.name, seed) in done for seed in seeds)}
    arms = (arm for arm in experiment.arms if arm.name in whole and whole.issuperset(_made_of(arm)))
    return replace(experiment, arms=tuple(arms), seeds=seeds)


def _made_of(arm: Arm) -> list[str]:
    """The arms that an ablation, or an arm of adapters, can't be without."""
    return [*arm.adapters, *([arm.ablates] if arm.ablates else [])]


def _left_out(jobs: Sequence[Job]) -> list[str]:
    """Names what the page doesn't show."""
    by_arm: dict[str, list[int]] = {}
    for job in jobs:
        by_arm.setdefault(job.column, []).append(job.seed)
    if not by_arm:
        return []
    names = "; ".join(f"{name} (seed {', '.join(map(str, seeds))})" for name, seeds in by_arm.items())
    return [f"**Left out, because not finished for every seed shown:** {names}."]


def _note_look(file: Path, choice: str, cells: Sequence[str]) -> tuple[int, int]:
    """For how many choices, and how many sets of columns and settings, the test prompts have been read, this one included."""
    look = {"choice": choice, "columns": digest(sorted(cells))}
    seen = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.is_file() else []
    if look not in seen:
        seen.append(look)
        with atomic_file(file) as temporary:
            temporary.write_text("".join(json.dumps(one) + "\n" for one in seen), encoding="utf-8")
    return len({one["choice"] for one in seen}), len({one.get("columns") for one in seen})


def _columns(about: Experiment, choice: Mapping[str, Any]) -> list[Column]:
    base = Column(BASELINE, "base model", "baseline", base=_BASE)
    roles = {arm.name: "ours" if arm.name == choice["ours"] else arm.role for arm in about.arms}
    return [base, *(_column(about, arm, roles[arm.name], choice) for arm in about.arms)]


def _column(about: Experiment, arm: Arm, role: str, choice: Mapping[str, Any]) -> Column:
    loss = tables.setting_text(about.loss(arm, chosen_setting(choice, arm)) | tables.strengths(arm))
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
    shown = [*tables.BY_MOTION, "dynamic_degree", "spectrum_distance"]
    table = value_table(report, [column.key for column in columns], [m for m in shown if m in report["metrics"]])
    title = f"## In the layout of the paper's table 4: {whole.label or whole.name} without its parts"
    return [f"{title}\n\n{table_text(paper_table(report, 'T4'))}\n\n{table_text(table)}"]


def _suite(report: Mapping[str, Any]) -> list[str]:
    """Every metric of every column; then each stratum and motion of which there are several prompts."""
    measured = [key for key in report["metrics"] if any(values.get(key, {}).get("n") for values in report["values"].values())]
    parts = [f"## All prompts\n\n{table_text(value_table(report, (), measured))}"]
    for label, values in report["strata"].items():
        for value in values:
            ids = {clip["id"] for clip in report["clips"] if clip["labels"].get(label) == value}
            if len(ids) < tables.LEAST_PER_STRATUM:
                continue
            table = value_table(report, (), [m for m in tables.BY_MOTION if m in report["metrics"]], (label, value))
            parts.append(f"## {label} {value}: {len(ids)} prompts\n\n{table_text(table)}")
    return parts


def _made(runner: Runner, about: Experiment, choice: Mapping[str, Any], command: str, looks: tuple[int, int]) -> str:
    config = about.train_config(about.base_loss, {}, seed=0, output="-", world="-")
    tested, validated = len(runner.prompts("test")), len(runner.prompts("validation"))
    settings = ", ".join(f"{key}={value}" for key, value in sorted(about.train.items()))
    chosen = choice["chosen"][choice["ours"]] | tables.strengths(about.arm(choice["ours"]))
    seen = f"; the first {about.judged_before} test prompts had judged the base model before" if about.judged_before else ""
    return (
        f"## How it was made\n\nBy `{command}`. Model `{about.model}`; world {runner.world_digest[:12]}, "
        f"{100 * about.flawed_share:.0f} % of its training clips flawed where it was written here. "
        f"{len(about.seeds)} training seeds ({', '.join(map(str, about.seeds))}), {tested} test prompts, one noise for each "
        f"prompt and seed; {validated} other prompts and seed {about.sweep_seed} for the choice of settings{seen}. All arms: "
        f"rank {config.rank}, {config.max_train_steps} steps of {config.train_batch_size} of {about.clips['train']} clips, same "
        f"order, noise and noise levels ({settings}). The base model comes without any adapter, from the same noise. "
        f"Sampler: {runner.sampler['num_inference_steps']} steps"
        f"{''.join(f', {name} {runner.sampler[name]}' for name in _GUIDANCE if name in runner.sampler)}.\n\n"
        f"Choice recorded before a test prompt was read: `{choice['hash'][:16]}`, ours = **{choice['ours']}** "
        f"({tables.setting_text(chosen)}). Rule: {choice['rule']} In this folder the test prompts "
        f"have been read for {looks[0]} recorded choice(s) and {looks[1]} set(s) of columns and settings. Every video of every "
        f"column, side by side, is in `reports/{Path(about.report).stem}/report.html` of the output folder."
    )


def _effects(columns: Columns, about: Experiment, clean: Path) -> dict[str, dict[str, Effect | None]]:
    """Of every column but the base loss, against it, by column and metric."""
    base = columns[about.base_loss.name]
    names = [BASELINE, *(arm.name for arm in about.arms if arm is not about.base_loss)]
    return {name: {w.metric: effect(base, columns[name], w, clean) for w in EVERY} for name in names}


def _paper(about: Experiment) -> list[str]:
    return [arm.name for arm in about.arms if arm.settings.get("motion_preset") == "paper" and not arm.ablates]


def _beside(about: Experiment, ours: str) -> dict[str, str]:
    """Columns of the page of videos and their labels."""
    roles = {arm.role: arm for arm in about.arms if arm.role in ("base_loss", "flow_loss")}
    arms = [*roles.values(), *(about.arm(name) for name in _paper(about)), about.arm(ours)]
    return {BASELINE: "base model", **{arm.name: "ours" if arm.name == ours else arm.name for arm in arms}}
