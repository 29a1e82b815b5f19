"""What our own pipelines have in common: checks, start noise, callbacks, and the learned caption that stands for no text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from diffusers import DiffusionPipeline
from diffusers.utils import BaseOutput
from diffusers.utils.torch_utils import randn_tensor
from torch import Tensor

from phys_pipeline.errors import ConfigError
from phys_pipeline.pipelines.lora_loading import TransformerLoraMixin

StepEnded = Callable[[Any, int, Tensor, dict[str, Any]], dict[str, Any] | None]  # (pipeline, step, timestep, tensors) -> changed
Generators = torch.Generator | list[torch.Generator] | None


@dataclass
class VideoPipelineOutput(BaseOutput):
    """``frames``: videos as (B, T, 3, H, W) tensor, (B, T, H, W, 3) array, lists of pictures, or latents (B, C, T', H', W')."""

    frames: Any


class VideoPipeline(DiffusionPipeline, TransformerLoraMixin):
    """Base of the pipelines here. ``_callback_tensor_inputs`` names the tensors that a callback may ask for."""

    _callback_tensor_inputs: tuple[str, ...] = ()
    _interrupt = False
    _num_timesteps = 0
    scheduler: Any
    transformer: Any

    @property
    def num_timesteps(self) -> int:
        return self._num_timesteps

    @property
    def interrupt(self) -> bool:
        """Set ``pipeline._interrupt`` in a callback to leave out the steps that remain."""
        return self._interrupt

    def _check_call(self, prompt: Any, callback_tensors: Sequence[str], **embeddings: Tensor | None) -> None:
        """ConfigError unless there is either a prompt or all of ``embeddings``, and callbacks ask for tensors there are."""
        if any((value is None) == (prompt is None) for value in embeddings.values()):
            raise ConfigError(f"pass either prompt, or {' and '.join(embeddings)}")
        if unknown := sorted(set(callback_tensors) - set(self._callback_tensor_inputs)):
            raise ConfigError(f"no callback tensor {unknown[0]!r}: use {', '.join(self._callback_tensor_inputs)}")

    def _start(self, latents: Tensor | None, shape: Sequence[int], generator: Generators) -> Tensor:
        """Start noise of ``shape`` (B, C, T', H', W'), float32: drawn, or ``latents``. ConfigError if their shape is another."""
        device = self._execution_device
        if latents is None:
            return randn_tensor(tuple(shape), generator=generator, device=device, dtype=torch.float32)
        if tuple(latents.shape) != tuple(shape):
            raise ConfigError(f"latents are {tuple(latents.shape)}, these settings need {tuple(shape)}")
        return latents.to(device, torch.float32)

    def _step_ended(
        self, callback: StepEnded | None, names: Sequence[str], step: int, timestep: Tensor, tensors: dict[str, Any]
    ) -> None:
        """Show the callback the tensors it asks for; what it returns takes their place."""
        if callback is not None:
            tensors |= callback(self, step, timestep, {name: tensors[name] for name in names}) or {}

    def _null_caption(self) -> Tensor:
        """The transformer's learned features of no caption, (L, D), also where sequential offload keeps the weights in a hook."""
        caption = self.transformer.null_caption
        if caption.is_meta:
            hook = self.transformer._hf_hook
            maps = (getattr(h, "weights_map", None) for h in getattr(hook, "hooks", (hook,)))
            caption = next(weights["null_caption"] for weights in maps if weights)
        return caption
