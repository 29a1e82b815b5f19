"""Everything about a run that can be known before a large weight is loaded: checks, counts, memory, disk, noise levels.

Memory of one device while training (the rest of the program, the motion loss and fragmentation come on top):

    weights       every parameter of the transformer: 2 bytes in bf16 or fp16, 4 in fp32 and where all are trained
                  with base_quantization the linear layers of the blocks: 1 byte (int8) or 0.5625 (nf4)
                  with block_offload the largest block and what lies outside the blocks
    adapter       4 bytes for each trained parameter (LoRA only; the others are counted above)
    gradients     4 bytes for each trained parameter
    optimiser     8 bytes for each trained parameter (adamw8bit: 2), and 4 for its average with ema_decay
    activations   34 N d bytes for each block at 16 bits, twice that in fp32: N tokens of all samples on the device, width d
                  (Korthikanti et al. 2022, arXiv:2205.05198, with attention that stores no scores)
                  with gradient_checkpointing: 2 N d for each block, and 34 N d for the one that is computed again

With parallel=fsdp2 weights, adapter, gradients and optimiser are divided by the number of processes, and two whole blocks come on
top: the one in use and the one that is being collected.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from phys_pipeline.adapters.layers import linear_layers
from phys_pipeline.errors import ConfigError, DataError, ModelError, first_line
from phys_pipeline.families import VideoFamily
from phys_pipeline.families.sources import TINY, tiny_folder
from training.buckets import config_buckets, steps_of_epochs
from training.checkpoint import check_resume, find_resume, finished_run, is_fresh, refuse_unfinished
from training.config import TrainConfig
from training.data import SkipClip, plan_windows
from training.launch import check_devices
from training.model_family import model_family
from training.objective import check_scored_frames, share_below, spectral_config
from training.optimizer import check_optimizer
from training.quantization import BYTES, check_quantization
from training.schedule import model_shift, noise_levels
from training.sharding import transformer_blocks
from training.sources import Clip, Skipped, find_clips, reason_table
from training.tracking import check_trackers
from training.validate import check_apart, held_out_digests
from training.weights import attach

_BINS = 10
_HISTOGRAM_STEPS = 2000


@dataclass(frozen=True)
class Memory:
    """Estimated bytes on one device, by the formula above."""

    weights: int
    adapter: int
    gradients: int
    optimizer: int
    activations: int
    activations_checkpointed: int

    def total(self, checkpointing: bool) -> int:
        """Their sum with or without gradient checkpointing."""
        fixed = self.weights + self.adapter + self.gradients + self.optimizer
        return fixed + (self.activations_checkpointed if checkpointing else self.activations)


def dry_run(config: TrainConfig) -> str:
    """Check a run and describe it. Raises PhysPipelineError, with one line, where it would fail."""
    open_points: list[str] = []
    spectral_config(config)
    check_trackers(config.trackers)
    check_optimizer(config)
    check_quantization(config)
    config, family = model_family(config, open_points)
    processes = config.num_processes or int(os.environ.get("WORLD_SIZE", "1"))
    check_devices(config, processes)
    vae = empty_part("vae", config, family, open_points)
    transformer = empty_part("transformer", config, family, open_points)
    for bucket in config_buckets(config):
        family.check_size(*bucket, vae)
    channels, *latent = family.latent_shape(config.frames, config.height, config.width, vae)
    check_scored_frames(config, config.frames, latent[0])
    family.bind(transformer)
    clips, skipped, windows = count_samples(config)
    out = held_out_digests(config, {clip.digest for clip in clips}) if config.validation_split else set()
    bucket_of = [bucket for clip, own in zip(clips, windows, strict=True) if clip.digest not in out for bucket in own]
    samples = len(bucket_of)
    held_out = sum(map(len, windows)) - samples
    if config.validation_data:
        others, _, windows = count_samples(config.for_validation())
        check_apart(clips, others)
        held_out = sum(map(len, windows))
    captions = {clip.caption for clip in clips}
    config = steps_of_epochs(config, bucket_of, processes)
    batch = config.train_batch_size * config.gradient_accumulation_steps * processes
    lines = [
        f"clips: {len(clips)} usable, {len(skipped)} skipped; {samples} samples to train on, {held_out} held out",
        *(f"  skipped {s.name}: {s.reason}" for s in skipped),
        f"captions: {len(captions)} different ones, the longest of {max(len(caption.split()) for caption in captions)} words",
        f"steps: {config.max_train_steps} of {batch} samples ({config.train_batch_size} per process x "
        f"{config.gradient_accumulation_steps} accumulated x {processes} processes): "
        f"{config.max_train_steps * batch / samples:.2f} epochs of {samples / batch:.1f} steps",
        f"resume: {_resume(config, processes)}",
    ]
    text = family.text_tokens(family.generation_defaults(config.model))
    video = math.prod(latent) // (_patch(transformer.config) * family.packing**2)
    lines.append(
        f"sample: {config.frames}x{config.height}x{config.width} pixels = {channels}x{'x'.join(map(str, latent))} latents = "
        f"{video} tokens, and up to {text} of text"
    )
    parameters = sum(p.numel() for p in transformer.parameters())
    trained = sum(p.numel() for p in attach(transformer, config, family))
    what = f"LoRA of rank {config.rank}" if config.rank else "every weight"
    lines.append(f"trainable parameters: {trained:,} ({what}) of a transformer of {parameters:,}")
    memory = estimate_memory(config, transformer, parameters, trained, config.train_batch_size * (video + text), processes)
    lines += _memory_lines(memory, config)
    lines.append(_disk(config, trained, samples * math.prod((channels, *latent)) * 4))
    lines += _histogram(config, family, open_points)
    if config.needs_vae:
        open_points.append("memory of decoding in training steps (motion_space=pixel, flow) is not in the estimate")
    open_points.append("clips were judged by the times in their files: frames that don't decode show when they are encoded")
    return "\n".join([*lines, *(f"not checked: {point}" for point in open_points), "nothing was loaded, encoded or written"])


def empty_part(part: str, config: TrainConfig, family: VideoFamily, open_points: list[str]) -> Any:
    """A model part without its weights, on the meta device, from the folder's or the Hub's config.json.

    Notes in `open_points` what is missing; without any config it takes the class's own defaults. Raises ModelError for a wrong
    folder.
    """
    folder: Path | None = tiny_folder() if config.model == TINY else Path(config.model)
    class_name = family.spec.transformer_class if part == "transformer" else family.spec.vae_class
    library = family.spec.modules.get(part, "diffusers")
    if folder is not None and folder.is_dir():
        try:
            library, class_name = json.loads((folder / "model_index.json").read_text(encoding="utf-8"))[part]
        except (OSError, ValueError, KeyError, TypeError):
            if not (folder / part / "config.json").is_file():
                raise ModelError(f"{folder} has no usable model_index.json: give a model in the diffusers layout") from None
        file = folder / part / "config.json"
        if not any((folder / part).glob("*.safetensors")):
            open_points.append(f"no weights of the {part} in {folder}")
    elif config.model.count("/") == 1 and not Path(config.model).exists():
        from huggingface_hub import hf_hub_download

        try:
            file = Path(hf_hub_download(config.model, f"{part}/config.json"))
            open_points.append(f"whether the weights of the {part} can be fetched from {config.model}")
        except Exception as error:  # network, gated, missing: classes differ between hub versions
            open_points.append(f"{config.model}: {part}/config.json can't be had ({first_line(error).partition('.')[0]}); the "
                               f"defaults of {class_name} were taken")  # fmt: skip
            file = None
    else:
        raise ModelError(f"there is no model folder {config.model}: give a local folder, a Hub id or 'tiny'")
    cls = getattr(importlib.import_module(library), class_name)
    with torch.device("meta"):
        return cls() if file is None else cls.from_config(json.loads(file.read_text(encoding="utf-8")))


def count_samples(config: TrainConfig) -> tuple[list[Clip], list[Skipped], list[list[int]]]:
    """Usable clips, the others with the reason, and each of the former's windows' buckets, without decoding pictures.

    Raises DataError when no clip is usable.
    """
    clips, skipped = find_clips(config)
    usable, windows, buckets = [], [], config_buckets(config)
    for clip in clips:
        try:
            plan = plan_windows(clip, config)
            windows.append(len(plan.windows) * [buckets.index(plan.bucket)])
            usable.append(clip)
        except SkipClip as reason:
            skipped.append(Skipped(clip.name, str(reason)))
    if not usable:
        raise DataError(f"no usable clip in {config.data}: {reason_table(skipped) or 'it holds no clip'}")
    return usable, skipped, windows


def estimate_memory(
    config: TrainConfig, transformer: Any, parameters: int, trained: int, tokens: int, processes: int = 1
) -> Memory:
    """Bytes on one device; `tokens` are those of all samples of one forward pass, text included."""
    settings = transformer.config
    width = settings.get("hidden_size") or settings.num_attention_heads * settings.attention_head_dim
    blocks = len(transformer_blocks(transformer))
    full = config.rank is None
    per_value = 2 if config.precision == "fp32" else 1
    block = 34 * tokens * width * per_value
    parts = 1 if config.parallel == "ddp" else processes
    return Memory(
        weights=_weight_bytes(config, transformer, parameters, parts),
        adapter=0 if full else 4 * trained // parts,
        gradients=4 * trained // parts,
        optimizer=trained * ((2 if config.optimizer == "adamw8bit" else 8) + (4 if config.ema_decay else 0)) // parts,
        activations=blocks * block,
        activations_checkpointed=blocks * 2 * tokens * width * per_value + block,
    )


def _patch(settings: Any) -> int:
    """Latent places in one token."""
    side = settings.get("patch_size") or 1
    return math.prod(side) if isinstance(side, (list, tuple)) else side**2 * (settings.get("patch_size_t") or 1)


def _weight_bytes(config: TrainConfig, transformer: Any, parameters: int, parts: int) -> int:
    """Bytes of the frozen weights (or of all, where all are trained) on one of `parts` devices."""
    each = 4 if config.rank is None or config.precision == "fp32" else 2
    sizes = [sum(p.numel() for p in block.parameters() if config.rank is None or not p.requires_grad)
             for block in transformer_blocks(transformer)]  # fmt: skip
    if config.block_offload:
        return (parameters - sum(sizes) + max(sizes)) * each
    if config.base_quantization != "none":
        linear = sum(layer.weight.numel() for block in transformer_blocks(transformer) for layer in linear_layers(block).values())
        return (parameters - linear) * each + round(linear * BYTES[config.base_quantization])
    return parameters * each // parts + (2 * max(sizes) * each if parts > 1 else 0)


def _memory_lines(memory: Memory, config: TrainConfig) -> list[str]:
    with_, without = memory.total(True), memory.total(False)
    chosen = "with" if config.gradient_checkpointing else "without"
    return [
        "memory per device, estimated (formula: python -c 'import training.dry_run as d; print(d.__doc__)'):",
        f"  weights {_gb(memory.weights)}, adapter {_gb(memory.adapter)}, gradients {_gb(memory.gradients)}, "
        f"optimiser {_gb(memory.optimizer)}",
        f"  activations {_gb(memory.activations)}, with gradient_checkpointing {_gb(memory.activations_checkpointed)}",
        f"  total {_gb(without)}, with gradient_checkpointing {_gb(with_)}; this run is {chosen} it",
    ]


def _gb(count: int) -> str:
    return f"{count / 1e9:.3g} GB"


def _resume(config: TrainConfig, processes: int) -> str:
    resumed = find_resume(config)
    if is_fresh(config, resumed):
        refuse_unfinished(config)
    if resumed is None:
        return "no, from step 0"
    if resumed.data is not None and finished_run(config, resumed.data) is not None:
        return f"already trained: {config.output_dir}"
    check_resume(resumed, config, resumed.data or "", processes)
    return f"from {resumed.folder}, {resumed.step} of {config.max_train_steps} steps done (same clips: not compared)"


def _disk(config: TrainConfig, trained: int, cache: int) -> str:
    """Space for checkpoints and cache. Raises ConfigError where the disk has less."""
    kept = (config.checkpoint_limit + 1 if config.checkpoint_limit else config.max_train_steps // config.checkpoint_every) + 1
    run = kept * trained * (12 + (4 if config.ema_decay else 0)) if config.checkpoint_every else 4 * trained
    for folder, need in ((config.output_dir, run), (config.cache_dir, cache)):
        place = Path(folder).absolute()
        place = next(p for p in (place, *place.parents) if p.exists())
        if not (place.is_dir() and os.access(place, os.W_OK)):
            raise ConfigError(f"{place} can't be written to: choose another output_dir or cache_dir")
        free = shutil.disk_usage(place).free
        if free < need:
            raise ConfigError(f"{folder} needs about {_gb(need)}, {_gb(free)} are free: make room or lower checkpoint_limit")
    return f"disk: about {_gb(run)} in output_dir, {_gb(cache)} of latents in cache_dir; both fit"


def _histogram(config: TrainConfig, family: VideoFamily, open_points: list[str]) -> list[str]:
    """The noise levels of the first steps as bars, and the share that carries the motion loss."""
    shift = config.shift
    if shift is None:
        try:
            shift = model_shift(config, family)
        except ModelError:
            shift = family.spec.default_shift
            open_points.append(f"the scheduler's shift: the family's {shift:g} was taken")
    steps = min(config.max_train_steps, _HISTOGRAM_STEPS)
    batch, span = config.train_batch_size, family.sigma_range
    levels = torch.cat([noise_levels(family.path, config, shift, step, batch, span) for step in range(steps)])
    counts = torch.histc(levels, bins=_BINS, min=0, max=1)
    lines = [f"noise levels of {len(levels)} samples ({config.sigma_law} law, shift {shift:g}):"]
    for index, count in enumerate(counts.tolist()):
        lines.append(f"  sigma {index / _BINS:.1f}-{(index + 1) / _BINS:.1f} {'#' * round(50 * count / len(levels)):50s} "
                     f"{100 * count / len(levels):5.1f} %")  # fmt: skip
    if {"spectral", "anchored"} & set(config.active):
        share = 100 * share_below(config, shift, span)
        lines.append(f"  below sigma_max={config.sigma_max:g}, so with a motion loss: {share:.1f} % expected, "
                     f"{100 * (levels < config.sigma_max).float().mean():.1f} % of these")  # fmt: skip
    return lines
