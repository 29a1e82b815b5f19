"""The training run, top to bottom: data, model, steps, validation, result.

Random numbers are functions of the step (training/schedule.py), what is trained and saved is in training/weights.py, what a step
minimises in training/objective.py, and what is done with held-out clips in training/validate.py.
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from phys_pipeline import __version__
from phys_pipeline.adapters import adapter_at, adapter_names
from phys_pipeline.atomic import atomic_file
from phys_pipeline.errors import ConfigError, ModelError
from phys_pipeline.families import VideoFamily
from phys_pipeline.spectral import SpectralConfig
from training.buckets import batch_indices, steps_of_epochs
from training.cache import CachedDataset
from training.checkpoint import (
    check_resume,
    clear_output,
    find_resume,
    finished_run,
    is_fresh,
    load_checkpoint,
    refuse_unfinished,
    run_states,
    save_checkpoint,
)
from training.config import PRIVATE, TrainConfig
from training.encoding import DTYPES
from training.filling import prepare_dataset
from training.launch import start_accelerator
from training.model_family import model_family
from training.objective import (
    Batch,
    Objective,
    StepLosses,
    build_objective,
    gradient_norm_ratio,
    share_below,
    spectral_config,
    step_numbers,
    step_record,
    training_losses,
)
from training.objectives.coherence_weighted import CoherenceWeights, calibration_samples
from training.optimizer import WeightAverage, check_optimizer
from training.placement import place
from training.quantization import check_quantization, quantize_blocks
from training.report import write_report
from training.schedule import generator, learning_rate, model_shift, noise_levels
from training.sharding import gathered, whole
from training.tracking import FreezingAlarm, RunLog, check_trackers
from training.validate import Validator, hold_out
from training.weights import attach, save_trained

log = logging.getLogger(__name__)

_RECORDED = (
    "objective", "motion_weight", "motion_form", "motion_space", "motion_preset", "frames", "height", "width", "fps",
    "max_train_steps", "seed", "base_quantization",
)  # fmt: skip


def train(config: TrainConfig, *, progress: bool = True) -> Path | None:
    """Train one adapter (or transformer); returns the path of the verified result (None on processes other than the main one).

    Raises PhysPipelineError, with one line, on expected trouble.
    """
    started = time.time()
    spectral = spectral_config(config)  # a wrong field or a missing package should fail before anything is loaded
    check_trackers(config.trackers)
    check_optimizer(config)
    check_quantization(config)
    from accelerate.utils import gather_object

    accelerator = start_accelerator(config)
    resumed = find_resume(config)
    fresh = is_fresh(config, resumed) and accelerator.is_main_process
    if fresh:
        refuse_unfinished(config)
    if not accelerator.is_main_process:
        logging.getLogger("training").setLevel(logging.WARNING)
    accelerator.wait_for_everyone()

    config, family = model_family(config)
    prepare = partial(
        prepare_dataset,
        family=family,
        device=accelerator.device,
        vae_dtype=DTYPES[config.vae_precision],
        text_dtype=DTYPES[config.precision],
        rank=accelerator.process_index,
        world_size=accelerator.num_processes,
        gather=gather_object,
    )
    dataset, vae = prepare(config)
    dataset, held_out = hold_out(config, dataset, prepare)
    config = steps_of_epochs(config, dataset.bucket_of, accelerator.num_processes)
    if (done := finished_run(config, dataset.digest())) is not None:
        log.info("already trained with these settings on these clips: %s", done)
        return done if accelerator.is_main_process else None
    if resumed is not None:
        check_resume(resumed, config, dataset.digest(), accelerator.num_processes)
    if fresh:
        clear_output(config)
    trainer = Trainer(config, accelerator, family, dataset, vae, spectral)
    trainer.describe()
    validator = None
    if held_out is not None or config.validation_prompts:
        validator = Validator(trainer, held_out)
        validator.run(None)  # nothing is trained yet: these are the base model's numbers
    if resumed is not None:
        load_checkpoint(resumed, trainer.bare_model, trainer.optimizer, accelerator.scaler, trainer.average)
        log.info("resumed from %s: %d of %d steps done", resumed.folder, resumed.step, config.max_train_steps)
    accelerator.wait_for_everyone()
    trainer.run(resumed.step if resumed else 0, validator, show_bar=progress)

    result = Path(config.output_dir)
    if accelerator.is_main_process:
        config.save(result / "config.yaml")
    if trainer.average is not None:
        with trainer.average.in_place():
            trainer.save(result / "ema")
    path = trainer.save(result)
    if accelerator.is_main_process:
        extend_provenance(result / "provenance.json", trainer, time.time() - started)
        log.info("wrote %s", write_report(result))
    accelerator.wait_for_everyone()
    return path


class Trainer:
    """Model, optimiser and data of one run; `run` does the steps."""

    def __init__(
        self,
        config: TrainConfig,
        accelerator: Any,
        family: VideoFamily,
        dataset: CachedDataset,
        vae: Any,
        spectral: SpectralConfig,
    ) -> None:
        self.config, self.accelerator, self.family, self.dataset = config, accelerator, family, dataset
        self.dtype = DTYPES[config.precision]
        self.shift = model_shift(config, family) if config.shift is None else config.shift
        self.guidance = family.spec.default_guidance if config.guidance is None else config.guidance
        self.global_batch = config.train_batch_size * config.gradient_accumulation_steps * accelerator.num_processes

        model = family.load("transformer", config.model, dtype=torch.float32 if config.rank is None else self.dtype)
        if config.base_quantization != "none":
            quantize_blocks(model, config.base_quantization, accelerator.device)
        parameters = attach(model, config, family)
        if config.gradient_checkpointing:
            model.enable_gradient_checkpointing()
        model.train()
        self.bare_model: nn.Module = model
        placed = place(model, parameters, config, accelerator)
        self.model, self.no_sync = placed.model, placed.no_sync
        self.parameters, self.optimizer = placed.parameters, placed.optimizer
        self.average = None if config.ema_decay is None else WeightAverage(self.parameters, config.ema_decay)
        self.vae = vae
        self.objective = self._objective(spectral, vae)

    def _objective(self, spectral: SpectralConfig, vae: Any) -> Objective:
        config, dataset = self.config, self.dataset
        for name in sorted({"preference", "sampled"} & set(config.active)):
            if not adapter_names(self.bare_model):
                raise ConfigError(f"objective={name} compares with the base model, which only an adapter leaves alone: set rank")
        if config.needs_vae:
            vae = vae.to(self.accelerator.device).requires_grad_(False)
            if config.gradient_checkpointing and getattr(vae, "_supports_gradient_checkpointing", False):
                vae.enable_gradient_checkpointing()
        shortest = dataset.shortest()
        latents = dataset.clean(shortest).shape
        usual = self.family.latent_shape(config.frames, config.height, config.width, vae)
        objective = build_objective(
            config,
            spectral,
            (dataset.samples[shortest].frames, latents[2] * config.height // usual[2]),
            tuple(latents),
            self.accelerator.device,
            decode=partial(self.family.decode_video, vae),
            encode=partial(self.family.encode_video, vae),
            path=self.family.path,
            shift=self.shift,
        )
        for weighting in objective.weightings.values():
            if isinstance(weighting, CoherenceWeights):
                some = calibration_samples(len(dataset))
                weighting.calibrate((i, dataset.clean(i).to(self.accelerator.device)) for i in some)
        return objective

    def describe(self) -> None:
        """Log what is about to be trained."""
        config, count = self.config, sum(p.numel() for p in self.parameters)
        log.info(
            "training %d parameters (%s of %s); %d samples per step: %d per process x %d accumulated x %d processes",
            count, f"LoRA of rank {config.rank}" if config.rank else "every weight", config.model,
            self.global_batch, config.train_batch_size,
            config.gradient_accumulation_steps, self.accelerator.num_processes,
        )  # fmt: skip
        if not config.active:
            log.info("motion_weight=0 or objective=none: the denoising loss alone")
            return
        log.info("objective: %s", ", ".join(f"{name} {config.weights[name]:g}" for name in config.active))
        if {"spectral", "anchored"} & set(config.active):
            form = f"{config.motion_form} form, " if "spectral" in config.active else ""
            log.info(
                "motion loss: %s, %s%s preset; %.0f %% of samples carry it (sigma_max=%g, %s, %s law, shift %g)",
                config.motion_space, form, config.motion_preset, 100 * share_below(config, self.shift, self.family.sigma_range),
                config.sigma_max, config.motion_sigma, config.sigma_law, self.shift,
            )  # fmt: skip

    def run(self, start: int, validator: Validator | None = None, *, show_bar: bool) -> None:
        """Steps `start` ... `max_train_steps` - 1."""
        config, main, records = self.config, self.accelerator.is_main_process, None
        steps = config.max_train_steps
        if main:
            records = RunLog(
                config.output_dir, start_step=start, max_steps=steps, show_bar=show_bar, trackers=config.trackers,
                config=config.to_dict(),
            )  # fmt: skip
        alarm = FreezingAlarm(records.past if records else ())
        try:
            for step in range(start, steps):
                record = self.step(step)
                done = step + 1
                if records is not None:
                    records.advance(record)
                    alarm.update(done, record["motion_energy_ratio"])
                    if done % config.log_every == 0 or done == steps:
                        records.write(done, record)
                if config.checkpoint_every and done % config.checkpoint_every == 0 and done < steps:
                    self.save_checkpoint(done)
                    self.accelerator.wait_for_everyone()
                if done == steps or (config.validate_every and done % config.validate_every == 0):
                    if validator is not None:
                        validator.run(done, records)
                    self.accelerator.wait_for_everyone()
        finally:
            if records is not None:
                records.close()

    def step(self, step: int) -> dict[str, float | None]:
        """One optimiser step; returns its numbers, averaged over the global batch."""
        began, config, accelerator = time.perf_counter(), self.config, self.accelerator
        rate = learning_rate(config, step)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        sigmas = noise_levels(self.family.path, config, self.shift, step, self.global_batch, self.family.sigma_range)
        terms = self.objective.names
        sums = torch.zeros(4 + 3 * len(terms), dtype=torch.float64)  # of step_numbers
        ratio, names = None, []
        measure = config.gradient_ratio_every and step % config.gradient_ratio_every == 0
        for micro in range(config.gradient_accumulation_steps):
            first = (micro * accelerator.num_processes + accelerator.process_index) * config.train_batch_size
            places = range(first, first + config.train_batch_size)
            torch.manual_seed(generator(config.seed, "layers", step, first).initial_seed())  # dropout inside layers, if any
            last = micro == config.gradient_accumulation_steps - 1
            with nullcontext() if last else self.no_sync():
                losses, used = self.losses(step, places, sigmas[first : first + config.train_batch_size])
                if measure and ratio is None:
                    ratio = gradient_norm_ratio(losses, self.parameters)
                accelerator.backward(losses.total / config.gradient_accumulation_steps)
            names += used
            sums += step_numbers(losses, terms)
        sums = accelerator.reduce(sums.to(accelerator.device, torch.float32), reduction="sum").double().cpu()
        micros = config.gradient_accumulation_steps * accelerator.num_processes
        if not math.isfinite(float(sums[0])):
            raise ModelError(
                f"step {step + 1}: the loss is not finite on {', '.join(names)}; lower learning_rate or use precision=fp32 "
                "(the last checkpoint is intact: resume=true)"
            )
        accelerator.unscale_gradients(self.optimizer)
        norm = float(whole(nn.utils.clip_grad_norm_(self.parameters, config.max_grad_norm, foreach=True)))
        if not math.isfinite(norm) and accelerator.scaler is None:  # the fp16 scaler skips such a step by itself
            raise ModelError(
                f"step {step + 1}: the gradient is not finite on {', '.join(names)}; lower learning_rate or motion_weight"
            )
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        if self.average is not None:
            self.average.update()
        means = step_record(sums, terms, self.global_batch)
        if means["motion_skipped"]:
            log.warning(
                "step %d: %d sample(s) without a finite added loss were left out of it", step + 1, means["motion_skipped"]
            )
        return {
            "denoising": float(sums[0]) / micros,
            "denoising_weighted": float(sums[1]) / micros if self.objective.weightings else None,
            **means,
            "gradient_norm": norm,
            "gradient_ratio": ratio,
            "learning_rate": rate,
            "sigma_mean": float(sigmas.mean()),
            "seconds": time.perf_counter() - began,
        }

    def losses(self, step: int, places: range, sigma: Tensor) -> tuple[StepLosses, list[str]]:  # sigma: (B,)
        """Losses of the samples at `places` of a step's global batch, and the samples' names."""
        config = self.config
        indices = batch_indices(self.dataset.bucket_of, config.seed, step, self.global_batch)[places.start : places.stop]
        x0 = torch.stack([self.dataset.clean(i) for i in indices])
        noise = torch.stack([torch.randn(x0.shape[1:], generator=generator(config.seed, "noise", step, p)) for p in places])
        chances = [float(torch.rand(1, generator=generator(config.seed, "drop", step, p))) for p in places]
        rows = [self._conditioning(i, drop=c < config.caption_dropout) for i, c in zip(indices, chances, strict=True)]
        conditioning = {name: torch.stack([row[name] for row in rows]) for name in rows[0]}
        batch = Batch(indices, [generator(config.seed, "objective", step, p).initial_seed() for p in places])
        return self.losses_of(x0, noise, sigma, conditioning, batch=batch), [self.dataset.samples[i].name for i in indices]

    def _conditioning(self, index: int, *, drop: bool) -> Mapping[str, Tensor]:
        """Encoded caption (no batch axis) of one sample, or what stands for it where it is dropped."""
        row = self.dataset.conditioning(index)
        return self.family.uncaptioned(row, self.dataset.conditioning(index, drop=True)) if drop else row

    def losses_of(
        self,
        x0: Tensor,  # (B, C, T, H, W)
        noise: Tensor,  # (B, C, T, H, W)
        sigma: Tensor,  # (B,)
        conditioning: dict[str, Tensor],  # (B, ...) each
        model: Any = None,
        batch: Batch | None = None,
    ) -> StepLosses:
        """Losses of a batch; tensors may be on any device. Without `batch` the clips are held out: the objective's terms alone.
        `model` may stand in for the one that talks to other processes."""
        device, model = self.accelerator.device, model or self.model
        conditioning = {name: value.to(device) for name, value in conditioning.items()}

        def predict(x_t: Tensor, sigma: Tensor) -> Tensor:
            inputs = self.family.inputs(x_t.to(self.dtype), sigma, conditioning, guidance=self.guidance)
            with self.accelerator.autocast():
                raw = model(**inputs)
            return self.family.prediction(raw, x_t)

        def base(x_t: Tensor, sigma: Tensor) -> Tensor:
            with adapter_at(self.bare_model, None):
                return predict(x_t, sigma)

        tensors = (x0.to(device), noise.to(device), sigma.to(device))
        if batch is None:
            return training_losses(predict, self.family.path, *tensors, self.objective.held_out)
        return training_losses(predict, self.family.path, *tensors, self.objective, replace(batch, base=base))

    def save(self, folder: Path) -> Path | None:
        """Write and verify what is trained; the main process does and returns its path, the others hand over their slices."""
        with gathered(self.bare_model, self.accelerator.is_main_process, frozen=self.config.rank is None):
            return self._write(folder) if self.accelerator.is_main_process else None

    def _write(self, folder: Path) -> Path:
        """What is trained, with what a reader needs to know in its provenance."""
        config = self.config
        about: dict[str, Any] = {name: getattr(config, name) for name in _RECORDED}
        if self.family.guidance_embeds:
            about["guidance"] = self.guidance
        if self.family.expert:
            about["expert"] = self.family.expert
        about |= {"shift": self.shift, "data": self.dataset.digest(), "phys_pipeline": __version__}
        folder.mkdir(exist_ok=True)
        return save_trained(self.bare_model, folder, config, self.family, about)

    def save_checkpoint(self, step: int) -> None:
        """Write the folder from which the run goes on after `step` steps: the main process does, all must call it."""
        main = self.accelerator.is_main_process
        states = whole(run_states(self.optimizer, self.accelerator.scaler, self.average), keep=main)
        with gathered(self.bare_model, keep=main):
            if main:
                about = (step, self.dataset.digest(), self.accelerator.num_processes)
                log.info("wrote %s", save_checkpoint(self.config, *about, self._write, states))


def extend_provenance(path: Path, trainer: Trainer, seconds: float) -> None:
    """Add clips, captions, settings and versions to the record that the adapter was saved with; it may be published: no paths."""
    record = json.loads(path.read_text(encoding="utf-8"))
    record |= {
        "seconds": round(seconds, 1),
        "processes": trainer.accelerator.num_processes,
        "device": trainer.accelerator.device.type,
        "trainable_parameters": sum(p.numel() for p in trainer.parameters),
        "clips": [{"name": c.name, "sha256": c.digest, "caption": c.caption} for c in trainer.dataset.clips],
        "config": {key: value for key, value in trainer.config.to_dict().items() if key not in PRIVATE},
    }
    with atomic_file(path) as temporary:
        temporary.write_text(json.dumps(record, indent=2, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")
