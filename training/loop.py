"""The training run, top to bottom: data, model, steps, adapter.

Every random number comes from a generator seeded by what it is for (seed, purpose, step, place in the global batch). So a resumed
run needs no saved random state, and two processes with one sample each see the same data and noise as one process with two.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import tempfile
import time
from contextlib import nullcontext
from datetime import timedelta
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from phys_pipeline import __version__
from phys_pipeline.adapters import adapter_at, adapter_names, inject_lora, save_adapter
from phys_pipeline.atomic import atomic_file
from phys_pipeline.errors import ConfigError, ModelError
from phys_pipeline.families import LoadedModel, VideoFamily, get_family
from phys_pipeline.families.sources import description
from phys_pipeline.noise_path import NoisePath
from phys_pipeline.spectral import SpectralConfig
from training.cache import CachedDataset, prepare_dataset
from training.checkpoint import (
    ADAPTER_FILE,
    check_resume,
    clear_output,
    find_resume,
    finished_run,
    load_checkpoint,
    refuse_unfinished,
    save_checkpoint,
)
from training.config import TrainConfig
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
from training.objectives.coherence_weighted import CoherenceWeights
from training.tracking import FreezingAlarm, RunLog

log = logging.getLogger(__name__)

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
_RECORDED = (
    "objective",
    "motion_weight",
    "motion_form",
    "motion_space",
    "motion_preset",
    "frames",
    "height",
    "width",
    "fps",
    "max_train_steps",
    "seed",
)
_CALIBRATION = 32  # samples, evenly over the data set, whose mean coherence weight is 1
_SIGMA_BLOCK = 16  # noise levels are stratified over at least this many samples, across steps if need be


def train(config: TrainConfig, *, progress: bool = True) -> Path | None:
    """Train one adapter; returns the path of its verified file (None on processes other than the main one).

    Raises PhysPipelineError, with one line, on expected trouble.
    """
    started = time.time()
    spectral = spectral_config(config)  # a wrong field should fail before anything is loaded
    from accelerate.utils import gather_object

    accelerator = start_accelerator(config)
    resumed = find_resume(config)
    fresh = resumed is None and accelerator.is_main_process
    if fresh:
        refuse_unfinished(config)
    if not accelerator.is_main_process:
        logging.getLogger("training").setLevel(logging.WARNING)
    accelerator.wait_for_everyone()

    family = get_family(config.family)
    dataset, vae = prepare_dataset(
        config,
        family,
        device=accelerator.device,
        vae_dtype=DTYPES[config.vae_precision],
        text_dtype=DTYPES[config.precision],
        rank=accelerator.process_index,
        world_size=accelerator.num_processes,
        gather=gather_object,
    )
    if (done := finished_run(config, dataset.digest())) is not None:
        log.info("already trained with these settings on these clips: %s", done)
        return done if accelerator.is_main_process else None
    if resumed is not None:
        check_resume(resumed, config, dataset.digest())
    if fresh:
        clear_output(config)
    trainer = Trainer(config, accelerator, family, dataset, vae, spectral)
    if resumed is not None:
        load_checkpoint(resumed, trainer.bare_model, trainer.optimizer, accelerator.scaler)
        log.info("resumed from %s: %d of %d steps done", resumed.folder, resumed.step, config.max_train_steps)
    trainer.describe()
    trainer.run(resumed.step if resumed else 0, show_bar=progress)

    result, path = Path(config.output_dir), None
    if accelerator.is_main_process:
        config.save(result / "config.yaml")
        path = trainer.save_adapter(result)
        extend_provenance(result / "provenance.json", trainer, time.time() - started)
    accelerator.wait_for_everyone()
    return path


def start_accelerator(config: TrainConfig) -> Any:
    """The accelerate object, after checks that precision, device and the number of processes are what was asked for."""
    from accelerate import Accelerator, InitProcessGroupKwargs, PartialState
    from accelerate.utils import parse_flag_from_env

    patience = timedelta(hours=6)  # encoding a large set on one rank must not trip the others' time-out
    asked = int(os.environ.get("WORLD_SIZE", "1"))
    state = PartialState(cpu=parse_flag_from_env("ACCELERATE_USE_CPU"), timeout=patience)
    if state.num_processes != asked or config.num_processes not in (None, state.num_processes):
        wanted = config.num_processes or asked
        raise ConfigError(
            f"{wanted} processes were asked for, accelerate runs {state.num_processes}: launch with --num_processes {wanted} "
            "(on a CPU with ACCELERATE_USE_CPU=true and --multi_gpu), or set num_processes=null"
        )
    if state.device.type == "cpu":
        for key in ("precision", "vae_precision"):
            if getattr(config, key) == "fp16":
                raise ConfigError(f"{key}=fp16 doesn't train on a CPU: use bf16 or fp32")
    mixed = "no" if config.precision == "fp32" else config.precision
    return Accelerator(mixed_precision=mixed, kwargs_handlers=[InitProcessGroupKwargs(timeout=patience)])


def model_shift(config: TrainConfig, family: VideoFamily) -> float:
    """The timestep shift that the base model is sampled with: its scheduler's, else the family's."""
    scheduler = family.load("scheduler", config.model)
    return float(getattr(scheduler.config, "shift", None) or family.spec.default_shift)


def generator(*purpose: Any) -> torch.Generator:
    """A CPU generator seeded by what it is for."""
    digest = hashlib.sha256(":".join(map(str, purpose)).encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)


def sample_order(count: int, seed: int, first: int, number: int) -> list[int]:
    """Dataset indices of the global samples first ... first + number - 1: a new permutation each epoch, no state."""
    indices = []
    for position in range(first, first + number):
        epoch, place = divmod(position, count)
        indices.append(int(torch.randperm(count, generator=generator(seed, "order", epoch))[place]))
    return indices


def noise_levels(path: NoisePath, config: TrainConfig, shift: float, step: int, batch: int) -> Tensor:
    """Sigma (batch,) float32 of one step's global batch, stratified over blocks of steps that hold at least 16 samples."""
    steps = math.ceil(_SIGMA_BLOCK / batch) if config.sigma_law == "stratified" else 1
    block, place = divmod(step, steps)
    drawn = path.sample(batch * steps, generator(config.seed, "sigma", block), law=config.sigma_law, shift=shift)  # type: ignore[arg-type]
    return drawn[place * batch : (place + 1) * batch]


def learning_rate(config: TrainConfig, step: int) -> float:
    """Linear warm-up, then a cosine down to 0 at `max_train_steps`: a function of the step, so resuming can't lose it."""
    warmup = min(config.lr_warmup_steps, config.max_train_steps)
    if step < warmup:
        return config.learning_rate * (step + 1) / (warmup + 1)
    progress = (step - warmup) / max(1, config.max_train_steps - warmup)
    return config.learning_rate * 0.5 * (1.0 + math.cos(math.pi * min(progress, 1.0)))


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

        model = family.load("transformer", config.model, dtype=self.dtype)
        targets = config.lora_targets or family.spec.lora_target_regex
        self.parameters = inject_lora(model, rank=config.rank, alpha=config.lora_alpha, regex=targets, seed=config.seed)
        if config.gradient_checkpointing:
            model.enable_gradient_checkpointing()
        model.train()
        self.bare_model: nn.Module = model
        optimizer = torch.optim.AdamW(self.parameters, lr=config.learning_rate, weight_decay=config.weight_decay)
        self.model, self.optimizer = accelerator.prepare(model, optimizer)
        self.objective = self._objective(spectral, vae)

    def _objective(self, spectral: SpectralConfig, vae: Any) -> Objective:
        config, dataset = self.config, self.dataset
        if "preference" in config.active and not adapter_names(self.bare_model):
            raise ConfigError("objective=preference compares with the base model, which only an adapter leaves alone: set rank")
        if config.needs_vae:
            vae = vae.to(self.accelerator.device).requires_grad_(False)
            if config.gradient_checkpointing and getattr(vae, "_supports_gradient_checkpointing", False):
                vae.enable_gradient_checkpointing()
        objective = build_objective(
            config,
            spectral,
            (config.frames, config.height),
            tuple(dataset.clean(0).shape),
            self.accelerator.device,
            decode=partial(self.family.decode_video, vae),
            encode=partial(self.family.encode_video, vae),
        )
        for weighting in objective.weightings.values():
            if isinstance(weighting, CoherenceWeights):
                count = min(_CALIBRATION, len(dataset))
                some = [place * len(dataset) // count for place in range(count)]
                weighting.calibrate((i, dataset.clean(i).to(self.accelerator.device)) for i in some)
        return objective

    def describe(self) -> None:
        """Log what is about to be trained."""
        config, count = self.config, sum(p.numel() for p in self.parameters)
        log.info(
            "training %d parameters (LoRA rank %d on %s); %d samples per step: %d per process x %d accumulated x %d processes",
            count, config.rank, config.model, self.global_batch, config.train_batch_size,
            config.gradient_accumulation_steps, self.accelerator.num_processes,
        )  # fmt: skip
        if not config.active:
            log.info("motion_weight=0 or objective=none: the denoising loss alone")
            return
        log.info("objective: %s", ", ".join(f"{name} {config.weights[name]:g}" for name in config.active))
        if {"spectral", "anchored"} & set(config.active):
            log.info(
                "motion loss: %s, %s form, %s preset; %.0f %% of samples carry it (sigma_max=%g, %s, %s law, shift %g)",
                config.motion_space, config.motion_form, config.motion_preset, 100 * share_below(config, self.shift),
                config.sigma_max, config.motion_sigma, config.sigma_law, self.shift,
            )  # fmt: skip

    def run(self, start: int, *, show_bar: bool) -> None:
        """Steps `start` ... `max_train_steps` - 1."""
        main = self.accelerator.is_main_process
        steps = self.config.max_train_steps
        records = RunLog(self.config.output_dir, start_step=start, max_steps=steps, show_bar=show_bar) if main else None
        alarm = FreezingAlarm()
        try:
            for step in range(start, steps):
                record = self.step(step)
                done = step + 1
                if records is not None:
                    records.advance(record)
                    alarm.update(done, record["motion_energy_ratio"])
                    if done % self.config.log_every == 0 or done == steps:
                        records.write(done, record)
                if self.config.checkpoint_every and done % self.config.checkpoint_every == 0 and done < steps:
                    if main:
                        folder = save_checkpoint(
                            self.config, done, self.dataset.digest(), self.save_adapter, self.optimizer, self.accelerator.scaler
                        )
                        log.info("wrote %s", folder)
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
        sigmas = noise_levels(self.family.path, config, self.shift, step, self.global_batch)
        terms = self.objective.names
        sums = torch.zeros(4 + 3 * len(terms), dtype=torch.float64)  # of step_numbers
        ratio, names = None, []
        measure = config.gradient_ratio_every and step % config.gradient_ratio_every == 0
        for micro in range(config.gradient_accumulation_steps):
            first = (micro * accelerator.num_processes + accelerator.process_index) * config.train_batch_size
            places = range(first, first + config.train_batch_size)
            torch.manual_seed(generator(config.seed, "layers", step, first).initial_seed())  # dropout inside layers, if any
            last = micro == config.gradient_accumulation_steps - 1
            with nullcontext() if last else accelerator.no_sync(self.model):
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
        norm = float(accelerator.clip_grad_norm_(self.parameters, config.max_grad_norm))
        if not math.isfinite(norm) and accelerator.scaler is None:  # the fp16 scaler skips such a step by itself
            raise ModelError(
                f"step {step + 1}: the gradient is not finite on {', '.join(names)}; lower learning_rate or motion_weight"
            )
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
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
        config, device = self.config, self.accelerator.device
        indices = sample_order(len(self.dataset), config.seed, step * self.global_batch + places[0], len(places))
        x0 = torch.stack([self.dataset.clean(i) for i in indices])
        noise = torch.stack([torch.randn(x0.shape[1:], generator=generator(config.seed, "noise", step, p)) for p in places])
        chances = [float(torch.rand(1, generator=generator(config.seed, "drop", step, p))) for p in places]
        rows = [self.dataset.conditioning(i, drop=c < config.caption_dropout) for i, c in zip(indices, chances, strict=True)]
        conditioning = {name: torch.stack([row[name] for row in rows]).to(device) for name in rows[0]}

        def predict(x_t: Tensor, sigma: Tensor) -> Tensor:
            inputs = self.family.inputs(x_t.to(self.dtype), sigma, conditioning, guidance=self.guidance)
            with self.accelerator.autocast():
                raw = self.model(**inputs)
            return self.family.prediction(raw, x_t)

        def base(x_t: Tensor, sigma: Tensor) -> Tensor:
            with adapter_at(self.bare_model, None):
                return predict(x_t, sigma)

        seeds = [generator(config.seed, "objective", step, p).initial_seed() for p in places]
        tensors = (x0.to(device), noise.to(device), sigma.to(device))
        losses = training_losses(predict, self.family.path, *tensors, self.objective, Batch(indices, seeds, base))
        return losses, [self.dataset.samples[i].name for i in indices]

    def save_adapter(self, folder: Path) -> Path:
        """Write and verify the adapter, with what a reader needs to know in its metadata, and move its files into `folder`."""
        config = self.config
        about: dict[str, Any] = {name: getattr(config, name) for name in _RECORDED}
        about |= {"guidance": self.guidance, "shift": self.shift, "data": self.dataset.digest(), "phys_pipeline": __version__}
        base = LoadedModel(None, self.family, config.model, description(config.model).get("revision"))
        with tempfile.TemporaryDirectory(prefix=".adapter.", suffix=".partial", dir=folder) as scratch:
            new = Path(scratch) / "adapter"
            save_adapter(self.bare_model, new, family=self.family, base_model=base, extra_metadata=about)
            for file in new.iterdir():
                os.replace(file, folder / file.name)
        return folder / ADAPTER_FILE


def extend_provenance(path: Path, trainer: Trainer, seconds: float) -> None:
    """Add clips, captions, settings and versions to the record that the adapter was saved with; it may be published: no paths."""
    record = json.loads(path.read_text(encoding="utf-8"))
    private = ("model", "data", "output_dir", "cache_dir", "resume")
    record |= {
        "seconds": round(seconds, 1),
        "processes": trainer.accelerator.num_processes,
        "device": trainer.accelerator.device.type,
        "trainable_parameters": sum(p.numel() for p in trainer.parameters),
        "versions": {name: metadata.version(name) for name in ("torch", "diffusers", "transformers", "peft", "accelerate")},
        "clips": [{"name": c.name, "sha256": c.digest, "caption": c.caption} for c in trainer.dataset.clips],
        "config": {key: value for key, value in trainer.config.to_dict().items() if key not in private},
    }
    with atomic_file(path) as temporary:
        temporary.write_text(json.dumps(record, indent=2, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")
