"""Where the model lies while it trains: whole on every process (DDP), split over them (FSDP2), or with its blocks on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import nn

from training.config import TrainConfig
from training.offload import BlockOffload
from training.optimizer import make_optimizer
from training.sharding import shard, without_reduction


@dataclass(frozen=True)
class Placed:
    """A model on its device or devices: `model` is what a training step calls, `parameters` are what this process trains of it.

    Backward passes inside `no_sync()` leave the gradients of the processes apart.
    """

    model: Any
    parameters: list[nn.Parameter]
    optimizer: Any
    no_sync: Callable[[], AbstractContextManager[Any]]


def place(model: nn.Module, parameters: list[nn.Parameter], config: TrainConfig, accelerator: Any) -> Placed:
    """Move `model` as `parallel` and `block_offload` say and make the optimiser of its trained `parameters`."""
    if config.parallel == "fsdp2":
        parameters = shard(model, accelerator.device)
        optimizer = accelerator.prepare(make_optimizer(parameters, config))
        return Placed(model, parameters, optimizer, partial(without_reduction, model))
    if config.block_offload:
        BlockOffload(model, accelerator.device)
    frozen = [name for name, p in model.named_parameters() if not p.requires_grad]  # equal everywhere: read from the same files
    nn.parallel.DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, frozen)
    optimizer = make_optimizer(parameters, config)
    prepared, optimizer = accelerator.prepare(model, optimizer, device_placement=[not config.block_offload, True])
    return Placed(prepared, parameters, optimizer, partial(accelerator.no_sync, prepared))
