"""Open-Sora 1.2 (Zheng et al. 2024, arXiv:2412.20404) through our own ``OpenSoraPipeline``.

Facts that are easy to get wrong: it predicts ``x0 - noise``; its output's second half is meaningless; no caption is a learned
tensor read with the dropped caption's mask, not the features of ""; 17 frames become 5 latents, in chunks; the transformer wants
to know the frame rate and the size in pixels.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from phys_pipeline.errors import ConfigError
from phys_pipeline.families.base import FamilySpec, compression
from phys_pipeline.families.diffusers_family import NullCaptionFamily, rows
from phys_pipeline.models.open_sora_sizes import PICTURE_FPS, timestep_shift
from phys_pipeline.models.open_sora_vae import CHUNK_FRAMES, TIME_STRIDE, latent_frames
from phys_pipeline.noise_path import NoisePath, RectifiedFlow

LORA_ATTENTION = r"(temporal_)?transformer_blocks\.\d+\.attn[12]\.(to_q|to_k|to_v|to_out\.0)"
LORA_TEMPORAL = r"temporal_transformer_blocks\.\d+\.attn[12]\.(to_q|to_k|to_v|to_out\.0)"

SPEC = FamilySpec(
    name="open_sora_1_2",
    pipeline_class="OpenSoraPipeline",
    transformer_class="STDiT3Transformer3DModel",
    vae_class="AutoencoderKLOpenSora",
    hub_id="hpcai-tech/OpenSora-STDiT-v3",
    lora_target_regex=LORA_ATTENTION,
    time_stride=TIME_STRIDE,
    size_multiple=8,
    native_fps=24.0,
    default_shift=timestep_shift(51, 480, 848),
    default_guidance=7.0,
    latent_channels=4,
    frame_rule="1, or at least 17: 17a + 4b+1 or 17a frames (17, 34, 51, 102, 204, 408); every 17 frames are 5 latents",
    generation={
        "max_sequence_length": 300,
        "num_frames": 51,
        "height": 480,
        "width": 848,
        "fps": 24,
        "num_inference_steps": 30,
        "guidance_scale": 7.0,
        "aesthetic_score": 6.5,
        "motion_score": None,
        "camera_motion": None,
    },
    prediction="x0 - noise",
    licence="Apache-2.0 (weights and code)",
    parameters=1.2,
    memory="2.4 GB for the transformer, 9.5 GB for T5 in bf16, by arithmetic",
    sizes="144p to 720p, any aspect ratio, multiples of 8",
    modules={
        "pipeline": "phys_pipeline.pipelines.open_sora",
        "transformer": "phys_pipeline.models.stdit3",
        "vae": "phys_pipeline.models.open_sora_vae",
    },
)

_SCORES = ("aesthetic_score", "motion_score", "camera_motion")


class OpenSora12Family(NullCaptionFamily):
    """Text-to-video Open-Sora 1.2. Predicts ``x0 - noise``; timestep is ``1000 * sigma``, never rounded."""

    def __init__(self) -> None:
        self.spec = SPEC
        self.path: NoisePath = RectifiedFlow(sign=-1, time="noise", scale=1000.0)

    def check_size(self, frames: int, height: int, width: int, vae: Any = None) -> None:
        """As in the base class, with this family's frame rule."""
        timestep_shift(frames, max(height, 1), max(width, 1))  # refuses 2 to 16 frames
        self._check_fit(frames, height, width, vae)

    def _check_fit(self, frames: int, height: int, width: int, vae: Any) -> None:
        super().check_size(1, height, width, vae)
        if not _fits(frames):
            lower = next((n for n in range(frames, 0, -1) if _fits(n)), 1)
            upper = next(n for n in range(frames, frames + CHUNK_FRAMES) if _fits(n))
            raise ConfigError(
                f"{frames} frames do not fit {self.spec.name}, which takes whole chunks of 17 frames, then 4k+1: "
                f"use {lower} or {upper}"
            )

    def latent_shape(self, frames: int, height: int, width: int, vae: Any = None) -> tuple[int, int, int, int]:
        """(C, T', H', W') of a video's latents: 5 for every 17 frames. Here 2 to 16 frames do no harm: they need no schedule."""
        self._check_fit(frames, height, width, vae)
        space = compression(vae, "spatial", self.spec.space_stride)
        return self.spec.latent_channels, latent_frames(frames), height // space, width // space

    def timestep_shift(self, scheduler: Any, frames: int, height: int, width: int) -> float:
        """By size and length; the scheduler's own is not used."""
        return timestep_shift(frames, height, width)

    def normalised(self, vae: Any, latents: Tensor) -> Tensor:  # (B, C, T', H', W') float32
        return vae.normalise(latents)

    def denormalised(self, vae: Any, latents: Tensor) -> Tensor:  # (B, C, T', H', W')
        return vae.denormalise(latents)

    def encoding_settings(self, vae: Any) -> dict[str, Any]:
        """Whether pictures are cut into tiles. There is a seam every 17 frames (5 latents) whatever is set."""
        return {"use_tiling": vae.spatial_vae.use_tiling}

    def text_settings(self, generation: Mapping[str, Any]) -> dict[str, Any]:
        """The scores that are written behind every caption."""
        return {name: generation.get(name) for name in _SCORES}

    def embed(self, pipeline: Any, captions: list[str], settings: Mapping[str, Any]) -> dict[str, Tensor]:
        """``prompt_embeds (B, L, D)`` and ``prompt_attention_mask (B, L)`` of the captions with their scores, cleaned.

        The empty caption is its scores alone; captions are cut after ``max_sequence_length`` tokens.
        """
        scores = {name: settings.get(name) for name in _SCORES}
        embeds, mask = pipeline.encode_prompt(captions, max_sequence_length=settings["max_sequence_length"], **scores)
        return {"prompt_embeds": embeds, "prompt_attention_mask": mask}

    def sampling_arguments(
        self, conditioning: Mapping[str, Tensor], settings: Mapping[str, Any], noise: Tensor
    ) -> dict[str, Any]:  # noise: (1, C, T', H', W') float32
        """As in the base class, with the frame rate, which the model is told."""
        return {**super().sampling_arguments(conditioning, settings, noise), "fps": float(settings["fps"])}

    def inputs(
        self, x_t: Tensor, sigma: Tensor, conditioning: Mapping[str, Tensor], guidance: float | Tensor | None = None
    ) -> dict[str, Any]:  # (B, C, T', H', W'), (B,)
        """Forward arguments; ``guidance`` isn't told to this model. The size in pixels is that of the latents times 8."""
        batch, _, frames, height, width = x_t.shape
        told = {
            "timestep": self.path.timestep(sigma).to(x_t.device),
            "encoder_hidden_states": conditioning["prompt_embeds"].to(x_t.device, x_t.dtype),
            "encoder_attention_mask": conditioning["prompt_attention_mask"].to(x_t.device),
        }
        fps = PICTURE_FPS if frames == 1 else self.fps or self.spec.native_fps
        return {
            "hidden_states": x_t,
            **rows(batch, told),
            "fps": torch.full((batch,), float(fps), device=x_t.device),
            "height": float(height * self.spec.space_stride),
            "width": float(width * self.spec.space_stride),
            "return_dict": False,
        }

    def prediction(self, raw: Any, like: Tensor) -> Tensor:  # like: (B, C, T', H', W')
        """The velocity ``x0 - noise``: the first half of the channels, the rest was never trained."""
        output: Tensor = raw if isinstance(raw, Tensor) else raw[0]
        if output.shape[1] != 2 * like.shape[1]:
            raise ConfigError(f"the transformer returned {tuple(output.shape)} for {tuple(like.shape)}: this is another model")
        return super().prediction(output[:, : like.shape[1]], like)


def _fits(frames: int) -> bool:
    """Whether decoding gives back as many frames as were encoded when only the latents are known."""
    return frames >= 1 and (frames % CHUNK_FRAMES == 0 or frames % CHUNK_FRAMES % TIME_STRIDE == 1)
