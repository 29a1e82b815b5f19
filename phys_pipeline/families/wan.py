"""Wan 2.1 and 2.2 text-to-video (Wan team 2025, arXiv:2503.20314) through diffusers' ``WanPipeline``.

Facts that are easy to get wrong, all kept here: latents are (z - mean) / std per channel; text is 512 rows of UMT5 features with
zeros, not a mask, after the last token; Wan 2.2 14B has two transformers, one for the noise levels from ``boundary_ratio`` up
and one below, and only one is trained at a time, on its own levels; Wan 2.2 5B is told a time for every token and has an
autoencoder of 16 pixels a side.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from phys_pipeline.errors import ConfigError, ModelError
from phys_pipeline.families import sources
from phys_pipeline.families.base import FamilySpec, VideoFamily, compression
from phys_pipeline.families.diffusers_family import DiffusersFamily, per_channel, rows
from phys_pipeline.noise_path import NoisePath, RectifiedFlow

GENERATION: dict[str, Any] = {
    "max_sequence_length": 512,
    "num_frames": 81,
    "height": 480,
    "width": 832,
    "fps": 16,
    "num_inference_steps": 50,
    "guidance_scale": 5.0,
    "guidance_scale_2": None,  # of the low-noise expert; None: the same
    "negative_prompt": "",
}

SPEC = FamilySpec(
    name="wan",
    pipeline_class="WanPipeline",
    transformer_class="WanTransformer3DModel",
    vae_class="AutoencoderKLWan",
    hub_id="Wan-AI/Wan2.1-T2V-1.3B-Diffusers",
    lora_target_regex=r"blocks\.\d+\.attn[12]\.(to_q|to_k|to_v|to_out\.0)",
    time_stride=4,
    size_multiple=16,
    native_fps=16.0,
    default_shift=3.0,
    default_guidance=5.0,
    latent_channels=16,
    frame_rule="4k+1 frames (1, 5, ..., 81)",
    generation=GENERATION,
    comfyui=True,
    licence="Apache-2.0",
    parameters=1.4,
    memory="1.3B: 3 GB of weights in bf16 for the transformer and 11 GB for UMT5; 14B: 29 GB, 2.2 twice that; by arithmetic",
    sizes="480x832 (shift 3), 720x1280 (shift 5); 5B: 704x1280 at 24 fps; multiples of 16, 5B of 32",
)

EXPERTS = {"high": "transformer", "low": "transformer_2"}  # by noise level
_PATCH = 2  # latents per token, along height and along width


class WanFamily(DiffusersFamily):
    """Text-to-video Wan. Predicts ``noise - x0``; timestep is ``1000 * sigma``, for the 5B model one per token."""

    def __init__(self) -> None:
        self.spec = SPEC
        self.path: NoisePath = RectifiedFlow(sign=1, time="noise", scale=1000.0)
        self.per_token_time = False
        self.boundary: float | None = None
        self.two_experts = False

    def components(self, part: str) -> tuple[str, ...]:
        if part == "transformer":
            return (EXPERTS[self.expert or "high"],)
        names = super().components(part)
        return (*names, "transformer_2") if part == "pipeline" and self.two_experts else names

    def load(self, part: str, source: str | None = None, dtype: torch.dtype = torch.float32) -> Any:
        """As in the base class. A transformer is the high-noise expert's unless ``choose_expert`` chose the other."""
        self._note(sources.pipeline_settings(sources.local_folder(source, self.spec, ())))
        return super().load(part, source, dtype)

    def bind(self, transformer: Any) -> VideoFamily:
        if transformer.config.in_channels != transformer.config.out_channels:
            raise ModelError("this Wan transformer takes a picture beside the noise (image to video): give a text-to-video model")
        return super().bind(transformer)

    def bind_pipeline(self, pipeline: Any) -> None:
        self._note(pipeline.config)
        super().bind_pipeline(pipeline)

    def _note(self, settings: Mapping[str, Any]) -> None:
        self.per_token_time = bool(settings.get("expand_timesteps"))
        self.boundary = settings.get("boundary_ratio")
        self.two_experts = self.boundary is not None

    def choose_expert(self, name: str | None, source: str | Path | None) -> None:
        """Train the expert ``"high"`` or ``"low"`` on its own noise levels; None for a model with one transformer."""
        self._note(sources.pipeline_settings(sources.local_folder(source, self.spec, ())))
        if self.boundary is None:
            return super().choose_expert(name, str(source))
        if name not in EXPERTS:
            raise ConfigError(f"this model has an expert for each side of noise level {self.boundary:g}: set expert=high or low")
        self.expert = name
        self.sigma_range = (self.boundary, 1.0) if name == "high" else (0.0, self.boundary)
        return None

    def size_multiple(self, vae: Any = None) -> int:
        return compression(vae, "spatial", self.spec.space_stride) * _PATCH

    def timestep_shift(self, scheduler: Any, frames: int, height: int, width: int) -> float:
        """The scheduler's ``flow_shift`` (UniPC, as the released models have it) or ``shift`` (Euler)."""
        return float(scheduler.config.get("flow_shift") or scheduler.config.get("shift") or self.spec.default_shift)

    def normalised(self, vae: Any, latents: Tensor) -> Tensor:  # (B, C, T', H', W')
        return (latents - per_channel(vae.config.latents_mean, latents)) / per_channel(vae.config.latents_std, latents)

    def denormalised(self, vae: Any, latents: Tensor) -> Tensor:  # (B, C, T', H', W')
        return latents * per_channel(vae.config.latents_std, latents) + per_channel(vae.config.latents_mean, latents)

    def sampling_arguments(
        self, conditioning: Mapping[str, Tensor], settings: Mapping[str, Any], noise: Tensor
    ) -> dict[str, Any]:  # noise: (1, C, T', H', W')
        arguments = super().sampling_arguments(conditioning, settings, noise)
        second = settings.get("guidance_scale_2")
        return arguments if second is None else {**arguments, "guidance_scale_2": second}

    def inputs(
        self, x_t: Tensor, sigma: Tensor, conditioning: Mapping[str, Tensor], guidance: float | Tensor | None = None
    ) -> dict[str, Any]:  # (B, C, T', H', W'), (B,)
        """Forward arguments. Text follows the dtype and device of ``x_t``; the timestep stays float32. No guidance is taken."""
        batch, _, frames, height, width = x_t.shape
        timestep = self.path.timestep(sigma).to(x_t.device)
        if self.per_token_time:
            timestep = timestep[:, None].expand(batch, frames * -(-height // _PATCH) * -(-width // _PATCH))
        tensors = {"timestep": timestep, "encoder_hidden_states": conditioning["prompt_embeds"].to(x_t.device, x_t.dtype)}
        return {"hidden_states": x_t, **rows(batch, tensors), "return_dict": False}
