"""LTX-Video (HaCohen et al. 2024, arXiv:2501.00103) through diffusers' ``LTXPipeline``.

Facts that are easy to get wrong, all kept here: one latent frame is eight pixel frames and 32 pixels a side; latents are
(z - mean) / std per channel and enter the network as a row of tokens; the rotary positions are in seconds, so the network needs
the frame rate; the timestep shift grows with the number of tokens; the autoencoder may take a timestep and noise of its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from phys_pipeline.errors import ConfigError
from phys_pipeline.families.base import FamilySpec, VideoFamily
from phys_pipeline.families.diffusers_family import DiffusersFamily, masked_t5, per_channel, rows
from phys_pipeline.noise_path import NoisePath, RectifiedFlow

GENERATION: dict[str, Any] = {
    "max_sequence_length": 128,
    "num_frames": 161,
    "height": 512,
    "width": 704,
    "fps": 25,
    "num_inference_steps": 50,
    "guidance_scale": 3.0,
    "negative_prompt": "",
    "decode_timestep": 0.05,  # of autoencoders that take one (0.9.1 and later)
    "decode_noise_scale": 0.025,
}

SPEC = FamilySpec(
    name="ltx_video",
    pipeline_class="LTXPipeline",
    transformer_class="LTXVideoTransformer3DModel",
    vae_class="AutoencoderKLLTXVideo",
    hub_id="Lightricks/LTX-Video",
    lora_target_regex=r"transformer_blocks\.\d+\.attn[12]\.(to_q|to_k|to_v|to_out\.0)",
    time_stride=8,
    size_multiple=32,
    native_fps=25.0,
    default_shift=1.0,
    default_guidance=3.0,
    latent_channels=128,
    frame_rule="8k+1 frames (9, 17, ..., 161, ..., 257)",
    generation=GENERATION,
    space_stride=32,
    licence="by version, OpenRAIL-M or LTX-Video Open Weights: see the model card",
    parameters=1.9,
    memory="4 GB of weights in bf16 for the transformer and 10 GB for T5, by arithmetic",
    sizes="512x704 and others that are multiples of 32",
)


class LTXVideoFamily(DiffusersFamily):
    """Text-to-video LTX-Video. Predicts ``noise - x0``; timestep is ``1000 * sigma``."""

    def __init__(self) -> None:
        self.spec = SPEC
        self.path: NoisePath = RectifiedFlow(sign=1, time="noise", scale=1000.0)
        self.patch = (1, 1)

    embed = staticmethod(masked_t5)

    def bind(self, transformer: Any) -> VideoFamily:
        self.patch = (transformer.config.patch_size_t, transformer.config.patch_size)
        return super().bind(transformer)

    def timestep_shift(self, scheduler: Any, frames: int, height: int, width: int) -> float:
        """With dynamic shifting exp(mu), where mu is linear in the number of latent places, as the pipeline computes it."""
        settings = scheduler.config
        if not settings.get("use_dynamic_shifting"):
            return super().timestep_shift(scheduler, frames, height, width)
        _, *places = self.latent_shape(frames, height, width)
        few, many = settings.get("base_image_seq_len", 256), settings.get("max_image_seq_len", 4096)
        low, high = settings.get("base_shift", 0.5), settings.get("max_shift", 1.15)
        return math.exp(low + (high - low) * (math.prod(places) - few) / (many - few))

    def normalised(self, vae: Any, latents: Tensor) -> Tensor:  # (B, C, T', H', W')
        scale = vae.config.scaling_factor
        return (latents - per_channel(vae.latents_mean, latents)) * scale / per_channel(vae.latents_std, latents)

    def denormalised(self, vae: Any, latents: Tensor) -> Tensor:  # (B, C, T', H', W')
        scale = vae.config.scaling_factor
        return latents * per_channel(vae.latents_std, latents) / scale + per_channel(vae.latents_mean, latents)

    def decode_video(self, vae: Any, latents: Tensor) -> Tensor:  # (B, C, T', H', W')
        """As in the base class. An autoencoder that takes a timestep gets the default one, but no noise: results repeat."""
        latents = self.denormalised(vae, latents.to(vae.device)).to(vae.dtype)
        time = None
        if vae.config.timestep_conditioning:
            time = torch.full((len(latents),), GENERATION["decode_timestep"], device=vae.device, dtype=vae.dtype)
        return (vae.decode(latents, time, return_dict=False)[0].float() / 2 + 0.5).clamp(0, 1)

    def sampling_arguments(
        self, conditioning: Mapping[str, Tensor], settings: Mapping[str, Any], noise: Tensor
    ) -> dict[str, Any]:  # noise: (1, C, T', H', W')
        """As in the base class, with the noise as tokens and the frame rate; the autoencoder's own noise is always the same."""
        if settings["num_inference_steps"] < 2:
            raise ConfigError("num_inference_steps is 1: LTX-Video's scheduler needs at least 2")
        names = ("decode_timestep", "decode_noise_scale")
        return {
            **super().sampling_arguments(conditioning, settings, self._tokens(noise)),
            "frame_rate": settings["fps"],
            "generator": torch.Generator().manual_seed(0),
            **{name: settings[name] for name in names},
        }

    def inputs(
        self, x_t: Tensor, sigma: Tensor, conditioning: Mapping[str, Tensor], guidance: float | Tensor | None = None
    ) -> dict[str, Any]:  # (B, C, T', H', W'), (B,)
        """Forward arguments, video as tokens (B, T'H'W', C). No guidance is taken; the frame rate is ``fps``."""
        batch, _, frames, height, width = x_t.shape
        tensors = {
            "timestep": self.path.timestep(sigma).to(x_t.device),
            "encoder_hidden_states": conditioning["prompt_embeds"].to(x_t.device, x_t.dtype),
            "encoder_attention_mask": conditioning["prompt_attention_mask"].to(x_t.device),
        }
        rate, space = self.fps or self.spec.native_fps, self.spec.space_stride
        return {
            "hidden_states": self._tokens(x_t),
            **rows(batch, tensors),
            "num_frames": frames,
            "height": height,
            "width": width,
            "rope_interpolation_scale": (self.spec.time_stride / rate, space, space),
            "return_dict": False,
        }

    def prediction(self, raw: Any, like: Tensor) -> Tensor:  # like: (B, C, T', H', W')
        from diffusers import LTXPipeline

        predicted: Tensor = raw if isinstance(raw, Tensor) else raw[0]
        if predicted.numel() != like.numel():
            raise ConfigError(f"the transformer returned {tuple(predicted.shape)} for {tuple(like.shape)}: sizes must be "
                              "multiples of its patch size")  # fmt: skip
        time, side = self.patch
        places = (like.shape[2] // time, like.shape[3] // side, like.shape[4] // side)
        return super().prediction(LTXPipeline._unpack_latents(predicted, *places, side, time), like)

    def _tokens(self, latents: Tensor) -> Tensor:  # (B, C, T', H', W') -> (B, T'H'W', C)
        from diffusers import LTXPipeline

        time, side = self.patch
        return LTXPipeline._pack_latents(latents, side, time)
