"""Frozen weights of transformer blocks that wait on the CPU and are on the device only while their block computes.

With gradient checkpointing a block runs twice, forward and again in the backward pass. Each time its weights are copied in before
it starts and the former block's are dropped: there is never more than one block on the device. Trained parameters stay there.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from training.sharding import transformer_blocks


class BlockOffload:
    """Moves `model` to `device` but for the frozen parameters of its blocks, which from then on come and go.

    The parameters stay the same objects on the device; their storage has size 0 while the block is away. Autograd holds no copy
    of them, because a checkpointed block keeps nothing for the backward pass.
    """

    def __init__(self, model: nn.Module, device: torch.device) -> None:
        self.resident: nn.Module | None = None
        self.masters: dict[nn.Module, list[tuple[nn.Parameter, Tensor]]] = {}
        self.blocks = transformer_blocks(model)
        frozen = {p for block in self.blocks for p in block.parameters() if not p.requires_grad}
        for module in model.modules():  # everything else first, tensor by tensor: the whole model needn't fit
            for parameter in module.parameters(recurse=False):
                if parameter not in frozen:
                    parameter.data = parameter.data.to(device)
            for name, buffer in module.named_buffers(recurse=False):
                module._buffers[name] = buffer.to(device)
        for block in self.blocks:
            self.masters[block] = [(p, _master(p.data, device)) for p in block.parameters() if p in frozen]
            for parameter, _ in self.masters[block]:
                parameter.data = torch.empty_like(parameter.data, device=device)
                parameter.untyped_storage().resize_(0)
            block.register_forward_pre_hook(partial(_before, self))
            block.register_forward_hook(partial(_after, self), always_call=True)

    def load(self, block: nn.Module) -> None:
        """Bring a block's weights to the device; those of another block leave it."""
        if self.resident is block:
            return
        self.release()
        self.resident = block
        for parameter, master in self.masters[block]:
            parameter.untyped_storage().resize_(master.untyped_storage().size())
            parameter.data.copy_(master, non_blocking=True)

    def release(self) -> None:
        """Free the weights of the block that is on the device."""
        if self.resident is not None:
            for parameter, _ in self.masters[self.resident]:
                parameter.untyped_storage().resize_(0)
            self.resident = None


def _master(value: Tensor, device: torch.device) -> Tensor:
    """The weights' lasting copy on the CPU, in memory that a CUDA device reads at full speed."""
    copy = value.detach().cpu().clone()
    return copy.pin_memory() if device.type == "cuda" else copy


def _in_backward() -> bool:
    return torch._C._current_graph_task_id() != -1


def _before(offload: BlockOffload, block: nn.Module, _: Any) -> None:
    if _in_backward():  # the checkpoint computes the block again; its backward follows, so the weights stay until another comes
        torch.autograd.Variable._execution_engine.queue_callback(offload.release)
    offload.load(block)


def _after(offload: BlockOffload, _: nn.Module, __: Any, ___: Any) -> None:
    if not _in_backward():
        offload.release()
