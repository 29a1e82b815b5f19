"""The accelerate object of a run, checked before anything is loaded."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

from phys_pipeline.errors import ConfigError
from training.config import TrainConfig


def check_devices(config: TrainConfig, processes: int) -> None:
    """Raise ConfigError where the settings about devices and memory don't go together, or need more processes."""
    if config.parallel == "fsdp2":
        if processes < 2:
            raise ConfigError("parallel=fsdp2 splits the model over processes: launch with --num_processes 2 or more, or use ddp")
        if config.precision == "fp16":
            raise ConfigError("parallel=fsdp2 has no loss scaling for fp16: use precision=bf16 or fp32")
        if config.optimizer == "adamw8bit":
            raise ConfigError("parallel=fsdp2 splits the optimiser's state, which adamw8bit can't: use optimizer=adamw")
        if config.gradient_ratio_every:
            raise ConfigError("gradient_ratio_every needs whole parameters: set it to 0 with parallel=fsdp2")
        if config.base_quantization != "none":
            raise ConfigError("parallel=fsdp2 can't split a quantised base: use parallel=ddp or base_quantization=none")
        if config.block_offload:
            raise ConfigError("block_offload and parallel=fsdp2 move the same weights: use one of them")
    if config.block_offload and not config.gradient_checkpointing:
        raise ConfigError("block_offload computes each block again in the backward pass: set gradient_checkpointing=true")
    if config.block_offload and config.base_quantization != "none":
        raise ConfigError("block_offload moves plain weights: use base_quantization=none, or no offload")
    for key, value in (("block_offload", config.block_offload), ("base_quantization", config.base_quantization != "none")):
        if value and config.rank is None:
            raise ConfigError(f"{key} is for frozen weights, and rank=null trains them: set rank")


def start_accelerator(config: TrainConfig) -> Any:
    """The accelerate object, after checks that precision, device and the number of processes are what was asked for."""
    from accelerate import Accelerator, AutocastKwargs, InitProcessGroupKwargs, PartialState
    from accelerate.utils import parse_flag_from_env

    patience = timedelta(hours=6)  # encoding a large set on one rank must not trip the others' time-out
    asked = int(os.environ.get("WORLD_SIZE", "1"))
    check_devices(config, asked)
    for name in ("FSDP", "DEEPSPEED", "MEGATRON_LM", "PARALLELISM_CONFIG"):
        if parse_flag_from_env(f"ACCELERATE_USE_{name}"):
            raise ConfigError(
                f"accelerate was told to use {name}, but the trainer splits the model itself: launch with --multi_gpu and "
                "without it, and set parallel=fsdp2"
            )
    state = PartialState(cpu=parse_flag_from_env("ACCELERATE_USE_CPU"), timeout=patience)
    # what is left of --num_processes 2 when accelerate's launcher of a single process was chosen
    alone = "ACCELERATE_MIXED_PRECISION" in os.environ and "MASTER_ADDR" in os.environ and "WORLD_SIZE" not in os.environ
    if alone and state.num_processes == 1:
        raise ConfigError(
            "accelerate launch was asked for several processes and started one: add --multi_gpu (on a CPU too, with "
            "ACCELERATE_USE_CPU=true), or unset MASTER_ADDR where one process is meant"
        )
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
    # autocast would keep a 16-bit copy of every float32 weight until the forward pass ends, though each is used once
    handlers = [InitProcessGroupKwargs(timeout=patience), AutocastKwargs(cache_enabled=False)]
    return Accelerator(mixed_precision=mixed, kwargs_handlers=handlers)
