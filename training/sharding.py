"""Parameters split over the processes by torch's FSDP2 (Zhao et al. 2023, arXiv:2304.11277), and whole again.

Every process holds a slice of every parameter, gradient and optimiser state, and collects a transformer block's parameters only
while it computes the block. What makes tensors whole talks to the other processes: all must call it, in the same order.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from phys_pipeline.errors import ConfigError


def transformer_blocks(model: nn.Module) -> list[nn.Module]:
    """The blocks of a diffusers transformer: what its lists of modules hold, list by list.

    Raises ConfigError when it has none.
    """
    blocks = [block for child in model.children() if isinstance(child, nn.ModuleList) for block in child]
    if not blocks:
        raise ConfigError(f"{type(model).__name__} has no list of blocks: use parallel=ddp and block_offload=false")
    return blocks


def shard(model: nn.Module, device: torch.device) -> list[nn.Parameter]:
    """Split `model` over all processes, each block by itself and the rest with the root; returns this process's trained slices.

    A block's frozen bfloat16 and trained float32 parameters may be mixed. Nothing stays whole after a forward pass.
    """
    from torch.distributed import get_world_size
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(device.type, (get_world_size(),))
    for module in (*transformer_blocks(model), model):
        fully_shard(module, mesh=mesh, reshard_after_forward=True)
    return [p for p in model.parameters() if p.requires_grad]


@contextmanager
def without_reduction(model: Any) -> Iterator[None]:
    """Backward passes inside add to this process's gradients without averaging them over the processes."""
    model.set_requires_gradient_sync(False)
    try:
        yield
    finally:
        model.set_requires_gradient_sync(True)


def whole(value: Any, keep: bool = True) -> Any:
    """`value` (a tensor, or dicts and lists of them) with its sharded tensors whole on the CPU; None for each without `keep`."""
    if isinstance(value, dict):
        return {name: whole(item, keep) for name, item in value.items()}
    if isinstance(value, list):
        return [whole(item, keep) for item in value]
    if not hasattr(value, "full_tensor"):
        return value
    full = value.full_tensor()
    return full.cpu() if keep else None


def placed_like(value: Tensor, pattern: Tensor) -> Tensor:
    """A whole tensor that every process has, split as `pattern` is; unchanged where that isn't sharded."""
    if not hasattr(pattern, "full_tensor"):
        return value
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(value.to(pattern.device), pattern.device_mesh, pattern.placements, src_data_rank=None)  # type: ignore[attr-defined]


@contextmanager
def gathered(model: nn.Module, keep: bool, frozen: bool = False) -> Iterator[None]:
    """Inside, the trained parameters are whole and on the CPU where `keep` is true, and the model is of its own class again.

    With `frozen` all others are too: a model that is saved as a whole may have some (`unused_parameters`).
    """
    cls, swapped = type(model), []
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            if not ((parameter.requires_grad or frozen) and hasattr(parameter, "full_tensor")):
                continue
            full = whole(parameter.detach(), keep)
            if keep:
                swapped.append((module, name, parameter))
                module._parameters[name] = nn.Parameter(full, parameter.requires_grad)
    if swapped:  # fully_shard made the class FSDP<name>(FSDPModule, <name>)
        model.__class__ = cls.__mro__[2]
    try:
        yield
    finally:
        model.__class__ = cls
        for module, name, parameter in swapped:
            module._parameters[name] = parameter
