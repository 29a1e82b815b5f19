"""The accelerate object of a run, checked before anything is loaded."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

from phys_pipeline.errors import ConfigError
from training.config import TrainConfig


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


def check_motion_frames(config: TrainConfig, latent_frames: int) -> None:
    """Raise ConfigError when the motion loss would see fewer than three frames of latents (the first is left out)."""
    seen = latent_frames - (latent_frames < config.frames)
    if {"spectral", "anchored", "repaired"} & set(config.active) and config.motion_space == "latent" and seen < 3:
        raise ConfigError(
            f"motion_space=latent leaves {seen} of {config.frames} frames, too few for motion: "
            "use more frames, motion_space=pixel or motion_weight=0"
        )
