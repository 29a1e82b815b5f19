"""Baseline and physics videos of a prompt from the same noise, for one seed or several, as a page asks for them."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from phys_pipeline.media import Video, read_video, write_video
from phys_pipeline.pipelines.ab import available_adapter, encode_prompt
from phys_pipeline.pipelines.best import Candidate, judged
from phys_pipeline.scoring import check_measurable, score_video, scored_comparison
from phys_pipeline.web.engine.jobs import Job
from phys_pipeline.web.engine.measures import measure_two
from phys_pipeline.web.engine.models import Models, default_device, defaults_of, is_zero_gpu, sample
from phys_pipeline.web.engine.numbers import number, text, whole
from phys_pipeline.web.engine.reproduce import generate_command
from phys_pipeline.web.engine.runs import Run, Runs

KIND = "compare"
SIDES = ("baseline", "physics")
LABELS = {"baseline": "Baseline", "physics": "Physics"}
MOST_SEEDS = 8
_LARGEST = {"num_frames": 257, "height": 2048, "width": 2048, "num_inference_steps": 200}
_SCORES_SCHEMA = "phys-pipeline/scores"


@dataclass(frozen=True)
class Choices:
    """What a visitor chose, checked.

    ``family`` is None where the model says it itself, ``adapter`` what to load, ``adapter_shown`` how a command line names it.
    """

    prompt: str
    model: str
    family: str | None
    adapter: Path | str | None
    adapter_shown: str
    weight: float
    seeds: tuple[int, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class VideoReady:
    """One video of a run is there: the page may show it before the other one."""

    run: Run
    seed: int
    side: str


def choices_of(models: Models, given: Mapping[str, Any]) -> Choices:
    """Check what came from the page: prompt, model, family, adapter, adapter_file, weight, seed (-1: random), count, frames,
    height, width, steps, guidance, true_cfg. Raises PhysPipelineError with one line."""
    prompt = text(given.get("prompt"), "prompt")
    model = models.source(given.get("model"))
    family = models.family(given.get("family"), model)
    adapter, shown = models.adapter(given.get("adapter"), given.get("adapter_file"))
    weight = number(given.get("weight"), "adapter strength", -4, 4)
    seed = whole(given.get("seed"), "seed", -1, 2**32 - 1)
    count = whole(given.get("count"), "number of seeds", 1, MOST_SEEDS)
    if seed == -1:
        seed = secrets.randbelow(2**31)
    settings: dict[str, Any] = {
        name: whole(given.get(key), key, 1, _LARGEST[name])
        for name, key in (("num_frames", "frames"), ("height", "height"), ("width", "width"), ("num_inference_steps", "steps"))
    }
    settings["guidance_scale"] = number(given.get("guidance"), "guidance", 0, 50)
    settings["true_cfg_scale"] = number(given.get("true_cfg"), "true guidance", 0, 50)
    check_measurable("the video", settings["num_frames"], settings["height"], settings["width"])
    return Choices(prompt, model, family, adapter, shown, weight, tuple(range(seed, seed + count)), settings)


def estimated_seconds(models: Models, choices: Choices) -> float | None:
    """How long the denoising will take, from earlier runs of the same size; None before the first."""
    each = models.seconds_per_step.get(_speed_key(choices))
    return None if each is None else each * _planned(choices)


def make_pairs(models: Models, runs: Runs, choices: Choices, job: Job) -> Run:
    """Generate, score and write everything; emits :class:`VideoReady` for each video. Raises Cancelled and PhysPipelineError.

    What was ready when the job was cancelled stays in the run. A pair is bit for bit that of
    :func:`phys_pipeline.pipelines.generate_pair`.
    """
    run = runs.new()
    with job.device():
        job.report("loading the model")
        model = models.load(choices.model, choices.family)
        with available_adapter(model, choices.adapter) as name:
            job.report("reading the prompt")
            conditioning = encode_prompt(model, choices.prompt, **choices.settings)
            job.plan(_planned(choices), estimated_seconds(models, choices))
            began = time.monotonic()
            for seed in choices.seeds:
                for side in _sides(choices):
                    progress = None if is_zero_gpu() else _named(job, side, seed, choices)
                    job.check()
                    video = sample(
                        choices.model, choices.prompt, seed, dict(choices.settings), conditioning,
                        name if side == "physics" else None, choices.weight, progress,
                    )  # fmt: skip
                    _store(run, choices, seed, side, video)
                    job.emit(VideoReady(run, seed, side))
            models.seconds_per_step[_speed_key(choices)] = (time.monotonic() - began) / _planned(choices)
    for seed in choices.seeds:
        job.report(f"measuring and drawing, seed {seed}")
        finish_pair(run, seed, job)
    return run


def finish_pair(run: Run, seed: int, job: Job) -> None:
    """Metrics of one pair, the comparison with burned-in scores, and the scores as JSON."""
    content = run.read()
    entry = content["pairs"][str(seed)]
    made = [side for side in SIDES if side in entry]
    videos = [read_video(run.path(entry[side]["file"])) for side in made]
    reports = [entry[side]["report"] for side in made]
    labels = [LABELS[side] for side in made]
    write_video(run.path(f"comparison-seed-{seed}.mp4"), scored_comparison(videos, reports, labels))
    about = {name: content[name] for name in ("prompt", "model", "family", "settings", "adapter", "weight")}
    measured: dict[str, Any] = {}
    if len(videos) == 2:
        measured = measure_two((videos[0], videos[1]), (labels[0], labels[1]), content["prompt"], job)
        entry["measured"] = measured
    scores = {
        "schema": _SCORES_SCHEMA, "version": 1, **about, "seed": seed, "scored": "frames as generated",
        "measured": "the files", "videos": dict(zip(made, reports, strict=True)), **measured,
    }  # fmt: skip
    run.write_json(f"scores-seed-{seed}.json", scores)
    run.write(content)


def ranking(content: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The pairs of a run, the lowest motion loss of the adapter's video first; those that hardly move come last."""
    seeds = [seed for seed, entry in content["pairs"].items() if any(side in entry for side in SIDES)]
    if not seeds:
        return []
    last = [_last(content["pairs"][seed]) for seed in seeds]
    _, marked = judged([Candidate(int(s), r["loss"]["composite"], r["dynamic_degree"]) for s, r in zip(seeds, last, strict=True)])
    order = sorted(range(len(seeds)), key=lambda place: (not marked[place].moves, marked[place].loss))
    return [{"seed": int(seeds[place]), "moves": marked[place].moves, **content["pairs"][seeds[place]]} for place in order]


def downloads(run: Run, seed: int) -> list[Path]:
    """Files of one pair that are ready: each video, the comparison, the scores."""
    names = [*(f"{side}-seed-{seed}.mp4" for side in SIDES), f"comparison-seed-{seed}.mp4", f"scores-seed-{seed}.json"]
    return [run.path(name) for name in names if run.path(name).is_file()]


def command_of(content: Mapping[str, Any], seed: int) -> str:
    """The command line that makes one pair of a run again."""
    return generate_command(
        content["prompt"], model=content["model"], family=content["family"], adapter=content["adapter"], weight=content["weight"],
        seed=seed, settings=content["settings"], precision=content["precision"],
    )  # fmt: skip


def _last(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    side = "physics" if "physics" in entry else "baseline"
    report: Mapping[str, Any] = entry[side]["report"]
    return report


def _store(run: Run, choices: Choices, seed: int, side: str, video: Video) -> None:
    """Write one video and say so in the run; scores are of the frames as they were generated, not of the file."""
    name = f"{side}-seed-{seed}.mp4"
    write_video(run.path(name), video)
    report = score_video(replace(video, source=choices.prompt)).to_dict()
    content = run.read() if run.path("run.json").is_file() else _about(choices)
    content["pairs"].setdefault(str(seed), {})[side] = {"file": name, "report": report}
    run.write(content)


def _about(choices: Choices) -> dict[str, Any]:
    settings = {**defaults_of(choices.model, choices.family), **choices.settings}
    kept = ("num_frames", "height", "width", "fps", "num_inference_steps", "guidance_scale", "true_cfg_scale")
    return {
        "kind": KIND, "prompt": choices.prompt, "model": choices.model, "family": choices.family,
        "adapter": choices.adapter_shown, "weight": choices.weight, "settings": {name: settings[name] for name in kept},
        "pairs": {}, "precision": "bf16" if "bfloat16" in str(default_device(choices.model)[1]) else "fp32",
    }  # fmt: skip


def _sides(choices: Choices) -> tuple[str, ...]:
    return SIDES if choices.adapter is not None else SIDES[:1]


def _planned(choices: Choices) -> int:
    return int(choices.settings["num_inference_steps"]) * len(choices.seeds) * len(_sides(choices))


def _speed_key(choices: Choices) -> tuple[Any, ...]:
    size = (choices.settings[name] for name in ("num_frames", "height", "width"))
    return (choices.model, *size, choices.settings["true_cfg_scale"] > 1)


def _named(job: Job, side: str, seed: int, choices: Choices) -> Any:
    which = f"seed {seed}, " if len(choices.seeds) > 1 else ""

    def report(stage: str, step: int, total: int) -> None:
        job.report(f"{which}{LABELS[side].lower()} video", step, total)

    return report
