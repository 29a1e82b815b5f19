"""What happens at which step, as pure functions of the step: random numbers, order of the samples, noise levels, learning rate.

Every random number comes from a generator seeded by what it is for (seed, purpose, step, place in the global batch). So a resumed
run needs no saved random state, and two processes with one sample each see the same data and noise as one process with two.
"""

from __future__ import annotations

import hashlib
import math
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from phys_pipeline.families import VideoFamily
from phys_pipeline.noise_path import NoisePath
from training.config import TrainConfig

_SIGMA_BLOCK = 16  # noise levels are stratified over at least this many samples, across steps if need be


def generator(*purpose: Any) -> torch.Generator:
    """A CPU generator seeded by what it is for."""
    digest = hashlib.sha256(":".join(map(str, purpose)).encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)


@lru_cache(maxsize=16)
def permutation(count: int, *purpose: Any) -> list[int]:
    """A permutation of range(count), seeded by what it is for."""
    return torch.randperm(count, generator=generator(*purpose)).tolist()


def noise_levels(
    path: NoisePath, config: TrainConfig, shift: float, step: int, batch: int, span: tuple[float, float] = (0.0, 1.0)
) -> Tensor:
    """Sigma (batch,) float32 of one step's global batch, stratified over blocks of steps that hold at least 16 samples.

    ``span``: between these values alone.
    """
    steps = math.ceil(_SIGMA_BLOCK / batch) if config.sigma_law == "stratified" else 1
    block, place = divmod(step, steps)
    law = (config.sigma_law, shift, span)
    return _sigma_block(path, batch * steps, config.seed, block, *law)[place * batch : (place + 1) * batch]


@lru_cache(maxsize=2)
def _sigma_block(path: NoisePath, count: int, seed: int, block: int, law: str, shift: float, span: tuple[float, float]) -> Tensor:
    return path.sample(count, generator(seed, "sigma", block), law=law, shift=shift, span=span)  # type: ignore[arg-type]


def model_shift(config: TrainConfig, family: VideoFamily) -> float:
    """The timestep shift that the base model is sampled with at the clips' size: its scheduler's, else the family's."""
    return family.timestep_shift(family.load("scheduler", config.model), config.frames, config.height, config.width)


def learning_rate(config: TrainConfig, step: int) -> float:
    """Linear warm-up, then a cosine down to 0 at `max_train_steps`: a function of the step, so resuming can't lose it."""
    warmup = min(config.lr_warmup_steps, config.max_train_steps)
    if step < warmup:
        return config.learning_rate * (step + 1) / (warmup + 1)
    progress = (step - warmup) / max(1, config.max_train_steps - warmup)
    return config.learning_rate * 0.5 * (1.0 + math.cos(math.pi * min(progress, 1.0)))
