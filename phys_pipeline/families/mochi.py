"""Mochi 1 (Genmo 2024) through diffusers' ``MochiPipeline``.

Facts that are easy to get wrong, all kept here: the network predicts ``x0 - noise`` and its time grows towards the clean clip,
1000 (1 - sigma); one latent frame is six pixel frames; latents are (z - mean) / std per channel; the timestep follows the dtype
of the latents, as in the pipeline.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from phys_pipeline.families.base import FamilySpec
from phys_pipeline.families.diffusers_family import DiffusersFamily, masked_t5, per_channel, rows
from phys_pipeline.noise_path import NoisePath, RectifiedFlow

GENERATION: dict[str, Any] = {
    "max_sequence_length": 256,
    "num_frames": 85,
    "height": 480,
    "width": 848,
    "fps": 30,
    "num_inference_steps": 64,
    "guidance_scale": 4.5,
    "negative_prompt": "",
}

SPEC = FamilySpec(
    name="mochi",
    pipeline_class="MochiPipeline",
    transformer_class="MochiTransformer3DModel",
    vae_class="AutoencoderKLMochi",
    hub_id="genmo/mochi-1-preview",
    lora_target_regex=r"transformer_blocks\.\d+\.attn1\.(to_q|to_k|to_v|to_out\.0|add_q_proj|add_k_proj|add_v_proj|to_add_out)",
    time_stride=6,
    size_multiple=16,
    native_fps=30.0,
    default_shift=1.0,
    default_guidance=4.5,
    latent_channels=12,
    frame_rule="6k+1 frames (7, 13, ..., 85, ..., 163)",
    generation=GENERATION,
    prediction="x0 - noise",
    licence="Apache-2.0",
    parameters=10.0,
    memory="20 GB of weights in bf16 for the transformer and 10 GB for T5, by arithmetic",
    sizes="480x848",
)


class MochiFamily(DiffusersFamily):
    """Text-to-video Mochi. Predicts ``x0 - noise``; timestep is ``1000 * (1 - sigma)``."""

    def __init__(self) -> None:
        self.spec = SPEC
        self.path: NoisePath = RectifiedFlow(sign=-1, time="data", scale=1000.0)

    embed = staticmethod(masked_t5)

    def normalised(self, vae: Any, latents: Tensor) -> Tensor:  # (B, C, T', H', W')
        mean, std = (per_channel(values, latents) for values in (vae.config.latents_mean, vae.config.latents_std))
        return (latents - mean) * vae.config.scaling_factor / std

    def denormalised(self, vae: Any, latents: Tensor) -> Tensor:  # (B, C, T', H', W')
        mean, std = (per_channel(values, latents) for values in (vae.config.latents_mean, vae.config.latents_std))
        return latents * std / vae.config.scaling_factor + mean

    def inputs(
        self, x_t: Tensor, sigma: Tensor, conditioning: Mapping[str, Tensor], guidance: float | Tensor | None = None
    ) -> dict[str, Any]:  # (B, C, T', H', W'), (B,)
        """Forward arguments; text and timestep follow the dtype and device of ``x_t``. No guidance is taken."""
        tensors = {
            "timestep": self.path.timestep(sigma).to(x_t.device, x_t.dtype),
            "encoder_hidden_states": conditioning["prompt_embeds"].to(x_t.device, x_t.dtype),
            "encoder_attention_mask": conditioning["prompt_attention_mask"].to(x_t.device),
        }
        return {"hidden_states": x_t, **rows(x_t.shape[0], tensors), "return_dict": False}
