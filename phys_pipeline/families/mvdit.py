"""MVDiT of OpenVid-1M (Nan et al. 2024, arXiv:2407.02371) through our own pipeline and transformer.

Facts that are easy to get wrong, all kept here: the network predicts the noise of a discrete variance-preserving path, and twice
as many channels as that, the second half about the variance; the timestep is a whole number; the latents are those of a picture
autoencoder, frame by frame, times 0.18215; no caption is a learned tensor read with the dropped caption's mask, not the
embedding of the empty text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from phys_pipeline.families.base import FamilySpec
from phys_pipeline.families.diffusers_family import NullCaptionFamily, rows
from phys_pipeline.models.mvdit_conversion import SCHEDULER
from phys_pipeline.models.picture_vae import SCALING_FACTOR, decode_frames, encode_frames
from phys_pipeline.noise_path import NoisePath, VariancePreserving

_LAYERS = r"(to_q|to_k|to_v|to_out\.0)"
LORA_ATTENTION = rf"transformer_blocks\.\d+\.(attn1|attn_temp|attn2)\.{_LAYERS}"
LORA_TEMPORAL = rf"transformer_blocks\.\d+\.attn_temp\.{_LAYERS}"
# Without ff_text: the last block's gets no gradient, and a layer that isn't used stops distributed training.
LORA_ATTENTION_AND_FEED_FORWARD = rf"{LORA_ATTENTION}|transformer_blocks\.\d+\.ff\.net\.(0\.proj|2)"

GENERATION = {
    "max_sequence_length": 120,
    "num_frames": 16,
    "height": 512,
    "width": 512,
    "fps": 8,
    "num_inference_steps": 100,
    "guidance_scale": 7.0,
    "cfg_channels": 4,
}

SPEC = FamilySpec(
    name="mvdit",
    pipeline_class="MVDiTPipeline",
    transformer_class="MVDiTTransformer3DModel",
    vae_class="AutoencoderKL",
    hub_id="nkp37/OpenVid-1M",
    lora_target_regex=LORA_ATTENTION,
    time_stride=1,
    size_multiple=16,
    native_fps=8.0,
    default_shift=1.0,
    default_guidance=7.0,
    latent_channels=4,
    frame_rule="any number of frames, each its own latent frame; the released weights were trained at 16",
    generation=GENERATION,
    prediction="epsilon",
    licence="CC-BY-4.0 (weights)",
    parameters=1.07,
    memory="2.1 GB of weights in bf16 for the transformer and 9.5 GB for T5, by arithmetic",
    sizes="512x512 (trained); any multiples of 16",
    modules={"pipeline": "phys_pipeline.pipelines.mvdit", "transformer": "phys_pipeline.models.mvdit"},
)

_TILES = ("tile_sample_min_size", "tile_latent_min_size")  # of a picture autoencoder


class MVDiTFamily(NullCaptionFamily):
    """Text-to-video MVDiT. Predicts the noise; sigma is the place on the schedule, so the timestep is ``round(999 * sigma)``.

    x0-hat is read back as ``(x_t - sqrt(1 - abar) * noise) / sqrt(abar)``, which multiplies the network's error by
    ``sqrt((1 - abar) / abar)``: 2.4 at sigma 0.43, 12 at 0.7, 157 at 1. Rectified flow has a noise-to-signal ratio of 2.3 at
    sigma 0.7, so ``sigma_max: 0.43`` is to this family what 0.7 is to those; the motion loss is zero above.
    """

    def __init__(self) -> None:
        self.spec = SPEC
        first, last, steps = (SCHEDULER[name] for name in ("beta_start", "beta_end", "num_train_timesteps"))
        betas = torch.linspace(first, last, steps, dtype=torch.float64)
        self.path: NoisePath = VariancePreserving((1 - betas).cumprod(dim=0), prediction="eps")

    def encode_video(self, vae: Any, pixels: Tensor, generator: torch.Generator | None = None) -> Tensor:  # (B, 3, T, H, W)
        """Pixels in [0, 1] to float32 latents (B, 4, T, H/8, W/8), times 0.18215.

        Without ``generator`` the posterior's mode is taken (repeatable), with one a sample. Errors as in ``signed_pixels``.
        """
        signed = self.signed_pixels(vae, pixels)
        with torch.no_grad():
            return encode_frames(vae, signed, generator).float() * SCALING_FACTOR

    def decode_video(self, vae: Any, latents: Tensor) -> Tensor:  # (B, C, T, H', W')
        """Latents to float32 pixels (B, 3, T, H, W) in [0, 1]. Differentiable; values outside [0, 1] are clamped."""
        decoded = decode_frames(vae, (latents / SCALING_FACTOR).to(vae.device, vae.dtype))
        return (decoded.float() / 2 + 0.5).clamp(0, 1)

    def encoding_settings(self, vae: Any) -> dict[str, Any]:
        return {**super().encoding_settings(vae), **{name: getattr(vae, name) for name in _TILES if hasattr(vae, name)}}

    def embed(self, pipeline: Any, captions: list[str], settings: Mapping[str, Any]) -> dict[str, Tensor]:
        """``prompt_embeds (B, L, D)`` and ``prompt_attention_mask (B, L)`` of the captions, cleaned as in the model's training.

        The empty caption is the one token that ends a text; captions are cut after ``max_sequence_length`` tokens.
        """
        embeds, mask = pipeline.encode_prompt(captions, max_sequence_length=settings["max_sequence_length"])
        return {"prompt_embeds": embeds, "prompt_attention_mask": mask}

    def text_tokens(self, settings: Mapping[str, Any]) -> int:
        """Every frame has a copy of the text of its own."""
        return super().text_tokens(settings) * settings["num_frames"]

    def sampling_arguments(
        self, conditioning: Mapping[str, Tensor], settings: Mapping[str, Any], noise: Tensor
    ) -> dict[str, Any]:  # noise: (1, C, T', H', W') float32
        """As in the base class, with ``cfg_channels``, and a generator for the noise of the steps that the start noise seeds."""
        digest = hashlib.sha256(noise.cpu().contiguous().numpy().tobytes()).digest()
        generator = torch.Generator("cpu").manual_seed(int.from_bytes(digest[:8], "little", signed=True))
        steps = {"cfg_channels": settings["cfg_channels"], "generator": generator}
        return {**super().sampling_arguments(conditioning, settings, noise), **steps}

    def inputs(
        self, x_t: Tensor, sigma: Tensor, conditioning: Mapping[str, Tensor], guidance: float | Tensor | None = None
    ) -> dict[str, Any]:  # (B, C, T', H', W'), (B,)
        """Forward arguments. Text features follow the dtype and device of ``x_t``; ``guidance`` isn't told to this model."""
        told = {
            "timestep": self.path.timestep(sigma).to(x_t.device),
            "encoder_hidden_states": conditioning["prompt_embeds"].to(x_t.device, x_t.dtype),
            "encoder_attention_mask": conditioning["prompt_attention_mask"].to(x_t.device),
        }
        return {"hidden_states": x_t, **rows(len(x_t), told), "return_dict": False}

    def prediction(self, raw: Any, like: Tensor) -> Tensor:  # like: (B, C, T', H', W')
        """The predicted noise, (B, C, T', H', W'): the first half of the output's channels."""
        output: Tensor = raw if isinstance(raw, Tensor) else raw[0]
        return super().prediction(output[:, : like.shape[1]], like)
