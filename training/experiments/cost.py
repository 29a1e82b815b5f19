"""What an experiment costs before it is run: one step of each arm, one video and one measurement, timed here.

Times are those of the processor, so that other work on the machine doesn't lengthen them. A step's cost depends on its noise
levels (most terms look at low ones only), so that whole blocks of stratified levels are timed. Held-out losses are left out.
"""

from __future__ import annotations

import json
import math
import statistics
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from phys_pipeline.evaluation.evaluator import Evaluator
from phys_pipeline.evaluation.manifest import read_samples
from phys_pipeline.evaluation.metric import Settings
from training.experiments.config import BASELINE, Arm
from training.experiments.runner import Job, Runner
from training.experiments.sampling import MANIFEST, sample_column

_BLOCK = 16  # samples over which noise levels are stratified
_SAMPLER_STEPS = (1, 1, 5)  # the first loads the model; the others' difference leaves out text, decoding and writing
_COLUMN_MINUTES = 40.0  # what one column of all seeds may take
_CORES = 2


@dataclass(frozen=True)
class Cost:
    """Seconds for one seed of an arm's test column, on one thread; ``step`` is one training step."""

    arm: str
    step: float
    training: float
    sampling: float
    measuring: float

    @property
    def total(self) -> float:
        return self.training + self.sampling + self.measuring


def measure_costs(runner: Runner) -> list[Cost]:
    """One for each arm, and one for the base model. Encodes the clips where the cache lacks them."""
    about = runner.experiment
    prompts = len(runner.prompts("test"))
    costs = []
    with tempfile.TemporaryDirectory() as scratch:
        video, measuring = _video_and_measurement(runner, Path(scratch))
        for arm in about.arms:
            config = about.train_config(arm, {}, seed=0, output="-", world="-")
            step = _step(runner, arm, Path(scratch) / arm.name) if arm.trains else 0.0
            takes = runner.candidates(Job(arm, {}, 0, "test"))
            costs.append(Cost(arm.name, step, step * config.max_train_steps, takes * video * prompts, measuring * prompts))
    return [*costs, Cost(BASELINE, 0.0, 0.0, video * prompts, measuring * prompts)]


def plan_text(runner: Runner, costs: list[Cost]) -> str:
    """Minutes of each cell, of a column with all seeds, of the sweep, and of everything."""
    about = runner.experiment
    seeds, share = len(about.seeds), len(runner.prompts("validation")) / len(runner.prompts("test"))
    lines = [
        f"{'arm':26s} {'step s':>7s} {'train':>7s} {'sample':>7s} {'measure':>8s} {'one seed':>9s} {'column':>8s} {'sweep':>7s}"
    ]
    total = 0.0
    by_name = {cost.arm: cost for cost in costs}
    for cost in costs:
        arm = next((arm for arm in about.arms if arm.name == cost.arm), None)
        tried = len(arm.combinations()) if arm is not None and arm in about.swept() else 0
        sweep = tried * (cost.training + share * (cost.sampling + cost.measuring))
        column = seeds * cost.total / _CORES / 60
        total += seeds * cost.total + sweep
        note = "" if column < _COLUMN_MINUTES else f"  over {_COLUMN_MINUTES:.0f} minutes: fewer steps or prompts"
        minutes = [cost.training, cost.sampling, cost.measuring, cost.total]
        lines.append(
            f"{cost.arm:26s} {cost.step:7.2f} {minutes[0] / 60:7.1f} {minutes[1] / 60:7.1f} {minutes[2] / 60:8.1f} "
            f"{minutes[3] / 60:9.1f} {column:8.1f} {sweep / 60:7.1f}{note}"
        )
    base = by_name[BASELINE]
    lines.append(
        f"minutes of one thread, but for column: {seeds} seeds on {_CORES} cores. All: {total / 3600:.1f} hours of one thread, "
        f"{total / 3600 / _CORES:.1f} on {_CORES} cores; a test video {base.sampling / len(runner.prompts('test')):.2f} s."
    )
    return "\n".join(lines)


def _video_and_measurement(runner: Runner, scratch: Path) -> tuple[float, float]:
    about, part, timed = runner.experiment, runner.prompts("test")[: runner.experiment.batch], []
    for number, steps in enumerate(_SAMPLER_STEPS):
        sampler = {**runner.sampler, "num_inference_steps": steps}
        began = time.process_time()
        sample_column(
            scratch / str(number), about.model, part, "timed", seed=0, sampler=sampler, batch=about.batch
        )  # fmt: skip
        timed.append((time.process_time() - began) / len(part))
    per_step = max(0.0, timed[-1] - timed[-2]) / (_SAMPLER_STEPS[-1] - _SAMPLER_STEPS[-2])
    video = timed[-2] + per_step * (runner.sampler["num_inference_steps"] - _SAMPLER_STEPS[-2])
    samples = read_samples([str(scratch / str(len(_SAMPLER_STEPS) - 1) / MANIFEST)])
    keys = [info.key for info in runner.infos if info.key != "spectrum_distance"]  # whose clean set is measured once a column
    began = time.process_time()
    Evaluator(keys, Settings(flow="dis"), scratch / "measured").run(samples)
    return video, (time.process_time() - began) / len(samples)


def _step(runner: Runner, arm: Arm, folder: Path) -> float:
    """Mean over the second block of noise levels, in the share of the wall's time that the processor worked for us."""
    from training.loop import train

    config = runner.experiment.train_config(arm, {}, seed=0, output=str(folder), world=str(runner.world))
    block = math.ceil(_BLOCK / config.train_batch_size)
    changes: dict[str, Any] = {"max_train_steps": 2 * block, "log_every": 1, "validation_data": None, "checkpoint_every": 0}
    began = time.perf_counter(), time.process_time()
    train(replace(config, **changes), progress=False)
    share = (time.process_time() - began[1]) / (time.perf_counter() - began[0])
    log = [json.loads(line) for line in (folder / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    return statistics.fmean(record["seconds"] for record in log[block:]) * min(1.0, share)
