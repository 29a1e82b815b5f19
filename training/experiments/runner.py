"""Does the cells of an experiment: train, sample, measure, each once, by as many processes as are started on the same folder."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from phys_pipeline.errors import ConfigError, DataError
from phys_pipeline.evaluation import VideoSample
from phys_pipeline.evaluation.evaluator import Evaluator
from phys_pipeline.evaluation.manifest import read_samples
from phys_pipeline.evaluation.metric import MetricInfo, Settings
from phys_pipeline.evaluation.metrics.frame_quality import OPTION
from phys_pipeline.evaluation.registry import infos, select
from phys_pipeline.evaluation.rows import Row, read_rows
from phys_pipeline.families import find_family
from phys_pipeline.families.sources import description
from training.experiments.choice import Judgement, choose, chosen_setting, judge, read_choice, record_choice
from training.experiments.config import BASELINE, PROCEDURAL, Arm, Experiment, Setting, digest
from training.experiments.effects import columns_of
from training.experiments.ledger import Busy, Cell, Ledger
from training.experiments.sampling import MANIFEST, equal_compute, sample_column, step_passes
from training.experiments.world import Asked, captions, folder_digest, read_prompts, world_digest, write_world
from training.world.clips import FLAWED_SHARE
from training.world.folder import write_procedural, write_unflawed

log = logging.getLogger(__name__)

METRICS = ("noweights", "spectrum_distance")
_NEWER = {"coherence_gate": 0.0}  # settings that came later than the first cells, which had their defaults
_POLL = 2.0


@dataclass(frozen=True)
class Job:
    """A column's videos of one split and seed, and all that is needed for them; ``arm`` None is the base model."""

    arm: Arm | None
    setting: Setting
    seed: int
    split: str

    @property
    def column(self) -> str:
        """The key of its column in rows and reports."""
        return BASELINE if self.arm is None else self.arm.name


class Runner:
    """One experiment on its folder. The world is written on the first use."""

    def __init__(self, experiment: Experiment) -> None:
        self.experiment = experiment
        self.ledger = Ledger(Path(experiment.output_dir) / "cells")

    @cached_property
    def world(self) -> Path:
        """The folder of clips and prompts."""
        about, folder = self.experiment, self.experiment.world_folder
        if about.writes_world and not folder.is_dir():
            if about.world == PROCEDURAL and about.flawed_share != FLAWED_SHARE:
                raise ConfigError(f"flawed_share of the procedural world is {FLAWED_SHARE}: leave it out")
            write = write_procedural if about.world == PROCEDURAL else partial(write_world, flawed_share=about.flawed_share)
            write(folder, about.clips, about.prompts, **self._made_with)
        if about.world == PROCEDURAL and any(arm.unflawed for arm in about.arms) and not self._unflawed(folder).is_dir():
            write_unflawed(self._unflawed(folder), about.clips["train"], **self._made_with)
        return folder

    @staticmethod
    def _unflawed(world: Path) -> Path:
        return Path(f"{world}_unflawed")

    @property
    def _made_with(self) -> dict[str, Any]:
        shape = self.experiment.train_config(self.experiment.base_loss, {}, seed=0, output="-", world="-")
        return {"seed": self.experiment.world_seed, "size": (shape.frames, shape.height, shape.width), "fps": shape.fps}

    @cached_property
    def world_digest(self) -> str:
        return world_digest(self.world)

    @cached_property
    def unflawed_digest(self) -> str:
        """Of the training clips without their flaws, beside the world. Raises DataError where they are not the same clips."""
        folder = self._unflawed(self.world)
        if not folder.is_dir():
            raise DataError(
                f"{folder}: no such folder; an arm that is unflawed needs the training clips without their flaws there"
            )
        if captions(folder) != captions(self.world / "train"):
            raise DataError(f"{folder} holds other captions than {self.world / 'train'}: it must hold the same clips")
        return folder_digest(folder)

    def sampler_of(self, arm: Arm | None) -> dict[str, Any]:
        """The sampling settings of an arm: with its own changes."""
        return {**self.sampler, **(arm.sampler if arm else {})}

    @cached_property
    def sampler(self) -> dict[str, Any]:
        """The model's sampling settings with the experiment's changes."""
        about = self.experiment
        family = find_family(about.model)
        return {**family.generation_defaults(about.model), **about.sampler}

    @cached_property
    def infos(self) -> list[MetricInfo]:
        """The metrics of every column."""
        return [infos()[key] for key in select(METRICS)]

    @property
    def metric_versions(self) -> str:
        """What a measurement depends on, for the keys of cells."""
        return json.dumps([[info.key, info.version] for info in self.infos])

    @property
    def clean(self) -> Path:
        return self.world / "clean"

    def prompts(self, split: str) -> list[Asked]:
        """The first prompts of a split, as many as the experiment takes."""
        return read_prompts(self.world, split)[: self.experiment.prompts[split]]

    # the cells of a job

    def train_cell(self, job: Job) -> Cell | None:
        """That of an adapter of its own; None where nothing is trained."""
        if job.arm is None or not job.arm.trains:
            return None
        config = self.experiment.train_config(job.arm, job.setting, seed=job.seed, output="-", world="-").to_dict()
        own = {key: value for key, value in config.items() if key not in ("output_dir", "cache_dir", "push_to_hub")}
        own = {key: value for key, value in own.items() if key not in _NEWER or value != _NEWER[key]}
        inputs = {"config": own, "world": self.world_digest, "model": description(self.experiment.model).get("revision")}
        if job.arm.unflawed:
            inputs["unflawed"] = self.unflawed_digest
        return Cell("train", f"{job.column}-seed{job.seed}", inputs)

    def parts(self, job: Job) -> list[tuple[Job, Cell, float]]:
        """Whose adapters make its videos: the job that trains each, its cell, and its strength."""
        if job.arm is None:
            return []
        jobs = [(replace(job, arm=a, setting=s), weight) for a, s, weight in self.experiment.parts(job.arm, job.setting)]
        return [(one, cell, weight) for one, weight in jobs if (cell := self.train_cell(one)) is not None]

    def sample_cell(self, job: Job) -> Cell:
        parts = [[cell.key, weight] for _, cell, weight in self.parts(job)]
        own = job.arm is not None and job.arm.trains
        inputs = {
            "adapter": parts[0][0] if own else parts or None, "column": job.column, "seed": job.seed,
            "candidates": self.candidates(job), "sampler": self.sampler_of(job.arm),
            "prompts": [[a.id, a.text, dict(a.labels)] for a in self.prompts(job.split)],
            "batch": self.experiment.batch, "model": description(self.experiment.model).get("revision"),
        }  # fmt: skip
        return Cell("sample", f"{job.split}-{job.column}-seed{job.seed}", inputs)

    def measure_cell(self, job: Job) -> Cell:
        inputs = {"videos": self.sample_cell(job).key, "world": self.world_digest, "metrics": self.metric_versions}
        return Cell("measure", f"{job.split}-{job.column}-seed{job.seed}", inputs)

    def finished(self, job: Job) -> bool:
        """Whether its videos are made and measured."""
        return self.ledger.record(self.measure_cell(job)) is not None

    def seconds(self, job: Job) -> list[float]:
        """What its finished cells took, by the clock; a killed one's record has only its last run."""
        cells = [*(cell for _, cell, _ in self.parts(job)), self.sample_cell(job), self.measure_cell(job)]
        return [record["seconds"] for cell in cells if (record := self.ledger.record(cell)) is not None]

    def candidates(self, job: Job) -> int:
        """Videos made for each prompt, of which one is kept: as many as cost what the costliest candidate for "ours" does."""
        if job.arm is None or not job.arm.best_of:
            return 1
        about, prompts = self.experiment, self.experiment.prompts["test"]

        def takes(arm: Arm, setting: Setting) -> int:
            one = about.train_config(arm, setting, seed=job.seed, output="-", world="-")
            return equal_compute(one.max_train_steps, one.train_batch_size, prompts, self.sampler, step_passes(one.objective))

        wanted = [about.parts(arm, {}) for arm in about.arms if arm.candidate]
        return max(1 + sum(takes(arm, setting) - 1 for arm, setting, _ in parts) for parts in wanted)

    def do(self, job: Job) -> None:
        """Train, sample and measure, as far as not done yet. Raises Busy when another process is at it."""
        parts = self.parts(job)
        for trained, cell, _ in parts:
            self.ledger.run(cell, partial(self._train, trained))
        adapters = [(self.ledger.folder(cell) / "adapter", weight) for _, cell, weight in parts]
        sampled = self.sample_cell(job)
        self.ledger.run(
            sampled,
            lambda folder: sample_column(
                folder, self.experiment.model, self.prompts(job.split), job.column,
                adapters=adapters, seed=job.seed,
                sampler=self.sampler_of(job.arm), batch=self.experiment.batch, candidates=self.candidates(job),
            ),
        )  # fmt: skip
        manifest = self.ledger.folder(sampled) / MANIFEST
        self.ledger.run(self.measure_cell(job), lambda folder: self.measure(read_samples([str(manifest)]), folder))

    def _train(self, job: Job, folder: Path) -> dict[str, Any]:
        from training.loop import train

        assert job.arm is not None
        config = self.experiment.train_config(
            job.arm, job.setting, seed=job.seed, output=str(folder / "adapter"), world=str(self.world)
        )
        train(config, progress=False)
        return {"steps": config.max_train_steps}

    def measure(self, samples: Sequence[VideoSample], folder: Path) -> dict[str, Any]:
        """Write the rows of every metric to a cell's folder; what its record says of them."""
        settings = Settings(flow="dis", options={OPTION: str(self.clean)})
        rows = Evaluator([info.key for info in self.infos], settings, folder).run(samples)
        return {"rows": len(rows), "failed": sum(row.status == "failed" for row in rows)}

    # the jobs of a stage

    def sweep_jobs(self) -> list[Job]:
        """The base loss first: all others are compared with it."""
        seed = self.experiment.sweep_seed
        return [Job(arm, setting, seed, "validation") for arm in self.experiment.swept() for setting in arm.combinations()]

    def test_jobs(self, choice: dict[str, Any]) -> list[Job]:
        """Seed by seed, so that a run that is stopped has whole seeds."""
        jobs = []
        for seed in self.experiment.seeds:
            jobs.append(Job(None, {}, seed, "test"))
            for arm in self.experiment.arms:
                jobs.append(Job(arm, chosen_setting(choice, arm), seed, "test"))
        return jobs

    def work(self, jobs: Sequence[Job]) -> None:
        """Do all jobs; those that other processes hold are waited for."""
        waiting = list(jobs)
        while waiting:
            busy = []
            for job in waiting:
                began = time.perf_counter()
                try:
                    self.do(job)
                except Busy:
                    busy.append(job)
                    continue
                if (seconds := time.perf_counter() - began) > 1:
                    log.info("%s %s %s seed %d: %.1f min", job.split, job.column, job.setting, job.seed, seconds / 60)
            if len(busy) == len(waiting):
                time.sleep(_POLL)
            waiting = busy

    def rows(self, jobs: Sequence[Job]) -> list[Row]:
        """The rows of finished jobs."""
        return [row for job in jobs for row in read_rows(self.ledger.folder(self.measure_cell(job)))]

    # the choice

    @property
    def choice_file(self) -> Path:
        """Named after all that the choice depends on, so that another sweep has another file."""
        cells = [self.measure_cell(job).key for job in self.sweep_jobs()]
        ablated = sorted((arm.name, arm.ablates) for arm in self.experiment.arms if arm.ablates)
        return Path(self.experiment.output_dir) / "choices" / f"{digest([cells, ablated])}.json"

    def choose(self) -> dict[str, Any]:
        """Judge the sweep and record the choice."""
        about = self.experiment
        judged: dict[str, list[Judgement]] = {}
        values: dict[str, str] = {}
        base = columns_of(self.rows([self.sweep_jobs()[0]]), self.infos)[about.base_loss.name]
        for arm in about.swept():
            judged[arm.name] = []
            for setting in arm.combinations():
                job = Job(arm, setting, about.sweep_seed, "validation")
                rows = self.rows([job])
                values[self.measure_cell(job).key] = digest([[row.sample, row.metric, row.value] for row in rows])
                column = columns_of(rows, self.infos)[arm.name]
                judged[arm.name].append(judge(base, column, setting, self.clean))
        candidates = [arm.name for arm in about.arms if arm.candidate]
        basis = {"sweep_seed": about.sweep_seed, "world": self.world_digest, "values": values}
        return record_choice(self.choice_file, choose(judged, candidates, basis))

    def recorded_choice(self) -> dict[str, Any]:
        """The choice. Raises ConfigError when none is recorded."""
        return read_choice(self.choice_file)
