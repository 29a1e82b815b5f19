"""Is the trained model better than the base on what it was not trained on? The same clips, noise levels and noise for both.

Each validation writes `validation/base/` or `validation/step-N/` in the run's folder: `results.json` with the losses of every
held-out sample and noise level and the motion scores of the generated videos, and the videos.
"""

from __future__ import annotations

import copy
import hashlib
import json
import logging
import statistics
import tempfile
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from phys_pipeline.atomic import atomic_folder
from phys_pipeline.errors import ConfigError, MediaError
from phys_pipeline.families import LoadedModel
from phys_pipeline.families.sources import local_folder
from phys_pipeline.media import Video, read_video, side_by_side, write_video
from phys_pipeline.noise_path import sigma_at
from phys_pipeline.pipelines.ab import encode_prompt, generate
from phys_pipeline.scoring import score_video
from training.cache import CachedDataset
from training.config import TrainConfig
from training.schedule import generator
from training.sources import Clip
from training.tracking import RunLog, warn_if_freezing

if TYPE_CHECKING:
    from training.loop import Trainer

log = logging.getLogger(__name__)
T = TypeVar("T")

RESULTS_FILE = "results.json"


@dataclass(frozen=True)
class HeldOutLoss:
    """Losses of one held-out sample at one noise level; `motion` is None where the level carries no motion loss.

    `motion_energy` is that of x0-hat over the clip's, None for a still clip.
    """

    sample: str
    clip: str
    sigma: float
    denoising: float
    motion: float | None
    motion_energy: float | None


@dataclass(frozen=True)
class GeneratedVideo:
    """A video made for a prompt, and its motion report's main numbers (None for a clip too short to score)."""

    prompt: str
    seed: int
    file: str
    pair: str | None  # beside the base model's video
    scores: dict[str, float] | None


def hold_out(
    config: TrainConfig, dataset: CachedDataset, prepare: Callable[[TrainConfig], tuple[CachedDataset, Any]]
) -> tuple[CachedDataset, CachedDataset | None]:
    """The clips to train on and those held out: a share of the clips, or another folder, which `prepare` encodes.

    Clips with the same bytes fall on the same side. Raises ConfigError when nothing is left to train on, or when a held-out
    clip is also trained on.
    """
    if config.validation_data is not None:
        held_out, _ = prepare(config.for_validation())
        check_apart(dataset.clips, held_out.clips)
        return dataset, held_out
    if not config.validation_split:
        return dataset, None
    out = held_out_digests(config, {c.digest for c in dataset.clips})
    held_out = _subset(dataset, {c.name for c in dataset.clips if c.digest in out})
    log.info("held out: %s", ", ".join(c.name for c in held_out.clips))
    return _subset(dataset, {c.name for c in dataset.clips if c.digest not in out}), held_out


def check_apart(clips: list[Clip], held_out: list[Clip]) -> None:
    """Raise ConfigError where a clip is trained on and held out."""
    own = {clip.digest for clip in clips}
    shared = {clip.digest: clip.name for clip in held_out if clip.digest in own}
    if shared:
        name = next(iter(shared.values()))
        raise ConfigError(f"{len(shared)} clip(s) of validation_data are also in data, such as {name}: remove them from one")


def held_out_digests(config: TrainConfig, digests: set[str]) -> set[str]:
    """Those of the clips' digests that `validation_split` holds out. Raises ConfigError when that is all of them."""
    shuffled = sorted(digests, key=lambda d: hashlib.sha256(f"{config.seed}:{d}".encode()).digest())
    count = max(1, round(config.validation_split * len(shuffled)))
    if count >= len(shuffled):
        raise ConfigError(
            f"validation_split={config.validation_split} leaves none of {len(shuffled)} clips to train on: lower it"
        )
    return set(shuffled[:count])


def clip_of(sample: str, names: set[str]) -> str | None:
    """The clip among `names` that a sample is a window of."""
    whole = sample.rpartition("#")[0]
    return sample if sample in names else whole if whole in names else None


def _subset(dataset: CachedDataset, names: set[str]) -> CachedDataset:
    part = copy.copy(dataset)
    part.clips = [c for c in dataset.clips if c.name in names]
    part.samples = [s for s in dataset.samples if clip_of(s.name, names) is not None]
    part.bucket_of = tuple(s.bucket for s in part.samples)
    return part


def sigma_quantiles(config: TrainConfig, shift: float, span: tuple[float, float] = (0.0, 1.0)) -> Tensor:
    """Sigma (n,) float32 at the middles of `validation_quantiles` equal slices of the training law in `span`, rising."""
    shares = (torch.arange(config.validation_quantiles) + 0.5) / config.validation_quantiles
    return sigma_at(shares, config.sigma_law, shift, span)


def motion_kept(now: list[HeldOutLoss], base: list[HeldOutLoss], sigma_max: float) -> float | None:
    """Geometric mean, over clips and low noise levels, of x0-hat's motion energy over that of the base model's x0-hat on the same
    noise; None without a moving clip.

    Low is below `sigma_max`, or the lowest level. Noise blurs the base model's x0-hat too, so 1 is no change, exactly.
    """
    levels = {x.sigma for x in base}
    low = {sigma for sigma in levels if sigma < sigma_max} or {min(levels)}
    ratios = [
        max(a.motion_energy, 1e-12) / max(b.motion_energy, 1e-12)
        for a, b in zip(now, base, strict=True)
        if a.sigma in low and a.motion_energy is not None and b.motion_energy is not None
    ]
    return statistics.geometric_mean(ratios) if ratios else None


class Validator:
    """Scores the model of a trainer as it is; first called before anything is trained, for the base model's numbers.

    Samples and videos are shared out over the processes, which must all call `run`; the main one writes the results. Every
    process computes equally many, the last one perhaps twice: the slices of a sharded model are collected in every forward pass.
    """

    def __init__(self, trainer: Trainer, held_out: CachedDataset | None) -> None:
        self.trainer, self.held_out, self.config = trainer, held_out, trainer.config
        self.folder = Path(self.config.output_dir) / "validation"
        self.sigmas = sigma_quantiles(self.config, trainer.shift, trainer.family.sigma_range)
        self.base: list[HeldOutLoss] = []
        self.prompts: dict[str, dict[str, Tensor]] = {}
        self.sampler = self._sampler() if self.config.validation_prompts else None

    def run(self, step: int | None, records: RunLog | None = None) -> None:
        """Write the results of step `step` (None: of the base model) and send their means to the trackers."""
        from accelerate.utils import broadcast_object_list

        model, accelerator = self.trainer.bare_model, self.trainer.accelerator
        final = self.folder / ("base" if step is None else f"step-{step}")
        model.eval()
        try:
            with torch.no_grad(), atomic_folder(final) if accelerator.is_main_process else nullcontext() as own:
                (folder,) = broadcast_object_list([own])
                losses = self._losses()
                videos = self._videos(folder, step)
                if accelerator.is_main_process:
                    content = {
                        "step": step or 0, "held_out": [asdict(x) for x in losses], "videos": [asdict(x) for x in videos],
                    }  # fmt: skip
                    (folder / RESULTS_FILE).write_text(json.dumps(content, indent=1), encoding="utf-8")
        finally:
            model.train()
        if not accelerator.is_main_process:
            return
        values: dict[str, float] = {}
        if losses:
            values["validation/denoising"] = statistics.fmean(x.denoising for x in losses)
        if step is None:
            self.base = losses
        elif losses and (kept := motion_kept(losses, self.base, self.config.sigma_max)) is not None:
            values["validation/motion_energy_kept"] = kept
            warn_if_freezing(step, kept)
        if motion := [x.motion for x in losses if x.motion is not None]:
            values["validation/motion"] = statistics.fmean(motion)
        if scored := [x.scores["composite"] for x in videos if x.scores]:
            values["validation/generated_motion_loss"] = statistics.fmean(scored)
        log.info("validation, %s: %s", "base" if step is None else f"step {step}",
                 ", ".join(f"{name.partition('/')[2]} {value:.5f}" for name, value in values.items()))  # fmt: skip
        if records is not None and step is not None:
            records.track(values, step)
            for video in videos:
                self._animate(final, video, step, records)

    def _shared(self, count: int, compute: Callable[[int], T]) -> list[T]:
        """`compute(0)` ... `compute(count - 1)` on all processes, each doing every n-th; the list is everyone's."""
        from accelerate.utils import gather_object

        accelerator = self.trainer.accelerator
        rank, processes = accelerator.process_index, accelerator.num_processes
        own = [compute(min(first + rank, count - 1)) for first in range(0, count, processes)]
        everyone = gather_object([own])
        return [everyone[index % processes][index // processes] for index in range(count)]

    def _losses(self) -> list[HeldOutLoss]:
        """One sample and one noise level at a time, so that they may have any size and no batch changes a number."""
        if self.held_out is None:
            return []
        rows = self._shared(len(self.held_out.samples), self._sample_losses)
        return [loss for row in rows for loss in row]

    def _sample_losses(self, index: int) -> list[HeldOutLoss]:
        assert self.held_out is not None
        sample, results = self.held_out.samples[index], []
        clip = clip_of(sample.name, {c.name for c in self.held_out.clips}) or sample.name
        x0 = self.held_out.clean(index)[None]
        conditioning = {name: value[None] for name, value in self.held_out.conditioning(index).items()}
        for place, sigma in enumerate(self.sigmas):
            noise = torch.randn(x0.shape, generator=generator(self.config.seed, "validation", sample.name, place))
            losses = self.trainer.losses_of(x0, noise, sigma[None], conditioning, self.trainer.bare_model)
            motion = None if losses.motion is None or not len(losses.motion.values) else float(losses.motion.values[0])
            energy = float(losses.energy_ratio[0]) if len(losses.energy_ratio) else None
            results.append(HeldOutLoss(sample.name, clip, float(sigma), float(losses.denoising), motion, energy))
        return results

    def _sampler(self) -> LoadedModel:
        """A pipeline around the model in training; its text encoders are loaded once, for the prompts, and dropped."""
        trainer, config = self.trainer, self.config
        family, device = trainer.family, trainer.accelerator.device
        encoders = family.load("text", config.model, dtype=trainer.dtype).to(device)
        defaults = family.generation_defaults(config.model)
        size = {"num_frames": config.frames, "height": config.height, "width": config.width, "fps": config.fps}
        loaded = LoadedModel(encoders, family, config.model, None, {**defaults, **size})
        for prompt in config.validation_prompts:
            self.prompts[prompt] = encode_prompt(loaded, prompt)
        parts = {name: part for name, part in encoders.components.items() if name.startswith("tokenizer")}
        parts |= {"transformer": trainer.bare_model, "vae": trainer.vae, "scheduler": family.load("scheduler", config.model)}
        folder = local_folder(config.model, family.spec, ())
        return replace(loaded, pipeline=family.assemble(parts, folder))

    def _videos(self, folder: Path, step: int | None) -> list[GeneratedVideo]:
        if self.sampler is None:
            return []
        vae, config = self.trainer.vae, self.config
        home = vae.device
        vae.to(self.trainer.accelerator.device)
        jobs = [(number, seed) for number in range(len(config.validation_prompts)) for seed in config.validation_seeds]
        try:
            return self._shared(len(jobs), lambda place: self._video(folder, *jobs[place], step))
        finally:
            vae.to(home)

    def _video(self, folder: Path, number: int, seed: int, step: int | None) -> GeneratedVideo:
        """Make and score one video; a repeated one is written again, byte for byte."""
        prompt, name = self.config.validation_prompts[number], f"prompt-{number}-seed-{seed}"
        assert self.sampler is not None
        video = generate(self.sampler, prompt, seed, conditioning=self.prompts[prompt])
        write_video(folder / f"{name}.mp4", video)
        if step is not None:
            base = read_video(self.folder / "base" / f"{name}.mp4")
            both = side_by_side(base, video, labels=("base", f"step {step}"), height=max(16, video.height))
            write_video(folder / f"{name}-pair.mp4", both)
        return GeneratedVideo(prompt, seed, f"{name}.mp4", None if step is None else f"{name}-pair.mp4", _scores(video))

    def _animate(self, folder: Path, video: GeneratedVideo, step: int, records: RunLog) -> None:
        """Send a pair of videos to the trackers, which show GIFs."""
        assert video.pair is not None
        with tempfile.TemporaryDirectory() as scratch:
            file = write_video(Path(scratch) / "pair.gif", read_video(folder / video.pair))
            records.animation(f"validation/{Path(video.file).stem}", file, step)


def _scores(video: Video) -> dict[str, float] | None:
    try:
        report = score_video(video)
    except MediaError:  # fewer than three frames
        return None
    return {**{name: float(value) for name, value in report.loss.items()}, "dynamic_degree": float(report.dynamic_degree)}
