"""Open-Sora 1.2 (Zheng et al. 2024, arXiv:2412.20404) through our own ``OpenSoraPipeline``.

Facts that are easy to get wrong: it predicts ``x0 - noise``; its output's second half is meaningless; no caption is a learned
tensor read with the dropped caption's mask, not the features of ""; 17 frames become 5 latents, in chunks; the transformer wants
to know the frame rate and the size in pixels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from phys_pipeline.errors import ConfigError, ModelError
from phys_pipeline.families import sources
from phys_pipeline.families.base import FamilySpec, LoadedModel, VideoFamily, compression, pipeline_source
from phys_pipeline.families.tokenization import WORD_PROBE, load_tokenizer
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
_TEXT = ("text_encoder", "tokenizer")
_COMPONENTS = {
    "pipeline": (*_TEXT, "transformer", "vae", "scheduler"),
    "text": _TEXT,
    "transformer": ("transformer",),
    "vae": ("vae",),
    "scheduler": ("scheduler",),
}


class OpenSora12Family(VideoFamily):
    """Text-to-video Open-Sora 1.2. Predicts ``x0 - noise``; timestep is ``1000 * sigma``, never rounded."""

    def __init__(self) -> None:
        self.spec = SPEC
        self.path: NoisePath = RectifiedFlow(sign=-1, time="noise", scale=1000.0)
        self.null_caption: Tensor | None = None  # (L, D), of the transformer that was bound

    def bind(self, transformer: Any) -> VideoFamily:
        super().bind(transformer)
        self.null_caption = transformer.null_caption.detach()
        return self

    def components(self, part: str) -> tuple[str, ...]:
        return _COMPONENTS[part]

    def _load_from(self, part: str, folder: Path, dtype: torch.dtype) -> Any:
        if part in ("scheduler", "transformer", "vae"):
            return sources.load_component(folder, part, None if part == "scheduler" else dtype)
        parts: dict[str, Any] = {}
        for name in _COMPONENTS[part]:
            if name == "tokenizer":
                parts[name] = load_tokenizer(folder / name, WORD_PROBE)
            else:
                parts[name] = sources.load_component(folder, name, None if name == "scheduler" else dtype)
        return self.assemble(parts, folder)

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

    def encode_video(self, vae: Any, pixels: Tensor, generator: torch.Generator | None = None) -> Tensor:  # (B, 3, F, H, W)
        """Pixels in [0, 1] to float32 latents (B, C, T', H', W'), normalised per channel.

        Without ``generator`` the posterior's mode is taken (repeatable), with one a sample. Errors as in ``signed_pixels``.
        """
        signed = self.signed_pixels(vae, pixels)
        with torch.no_grad():
            posterior = vae.encode(signed).latent_dist
        return vae.normalise(posterior.mode() if generator is None else posterior.sample(generator))

    def decode_video(self, vae: Any, latents: Tensor) -> Tensor:  # (B, C, T', H', W')
        """Latents to float32 pixels (B, 3, F, H, W) in [0, 1]. Differentiable; values outside [0, 1] are clamped."""
        decoded = vae.decode(vae.denormalise(latents).to(vae.dtype), return_dict=False)[0]
        return (decoded.float() / 2 + 0.5).clamp(0, 1)

    def encoding_settings(self, vae: Any) -> dict[str, Any]:
        """Whether pictures are cut into tiles. There is a seam every 17 frames (5 latents) whatever is set."""
        return {"use_tiling": vae.spatial_vae.use_tiling}

    def text_settings(self, generation: Mapping[str, Any]) -> dict[str, Any]:
        """The scores that are written behind every caption."""
        return {name: generation.get(name) for name in _SCORES}

    def encode_text(self, parts: Any, captions: Sequence[str], generation: Mapping[str, Any] | None = None) -> dict[str, Tensor]:
        """``prompt_embeds (B, L, D)`` and ``prompt_attention_mask (B, L)`` of the captions with their scores, cleaned.

        ``parts`` is a pipeline (whole, or the text part alone) or a LoadedModel; ``generation`` may hold ``max_sequence_length``
        and the scores. The empty caption is its scores alone; captions are cut after L tokens.
        """
        captions = [captions] if isinstance(captions, str) else list(captions)
        if not captions:
            raise ConfigError("no caption given: pass a list with at least one")
        if isinstance(parts, LoadedModel):
            settings, parts = {**parts.defaults, **(generation or {})}, parts.pipeline
        else:
            folder = pipeline_source(parts)
            defaults = self.spec.generation if folder is None else self.generation_defaults(folder)
            settings = {**defaults, **(generation or {})}
        scores = {name: settings.get(name) for name in _SCORES}
        embeds, mask = parts.encode_prompt(captions, max_sequence_length=settings["max_sequence_length"], **scores)
        return {"prompt_embeds": embeds, "prompt_attention_mask": mask}

    def uncaptioned(self, conditioning: Mapping[str, Tensor], empty: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The learned null caption under the dropped caption's own mask, as the model was trained and is guided."""
        if self.null_caption is None:
            raise ModelError("no transformer is bound, so there is no null caption: load the transformer before")
        return {**conditioning, "prompt_embeds": self.null_caption.to(conditioning["prompt_embeds"])}

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
        embeds, mask = conditioning["prompt_embeds"], conditioning["prompt_attention_mask"]
        for name, value in (("sigma", sigma), ("prompt_embeds", embeds), ("prompt_attention_mask", mask)):
            if value.shape[0] != batch:
                raise ConfigError(f"{name} has {value.shape[0]} rows for a batch of {batch}: give one per sample")
        fps = PICTURE_FPS if frames == 1 else self.fps or self.spec.native_fps
        return {
            "hidden_states": x_t,
            "timestep": self.path.timestep(sigma).to(x_t.device),
            "encoder_hidden_states": embeds.to(x_t.device, x_t.dtype),
            "encoder_attention_mask": mask.to(x_t.device),
            "fps": torch.full((batch,), float(fps), device=x_t.device),
            "height": float(height * self.spec.space_stride),
            "width": float(width * self.spec.space_stride),
            "return_dict": False,
        }

    def prediction(self, raw: Any, like: Tensor) -> Tensor:  # like: (B, C, T', H', W')
        """The velocity ``x0 - noise``: the first half of the channels, the rest was never trained."""
        output = raw if isinstance(raw, Tensor) else raw[0]
        velocity = output[:, : like.shape[1]]
        if velocity.shape != like.shape or output.shape[1] != 2 * like.shape[1]:
            raise ConfigError(f"the transformer returned {tuple(output.shape)} for {tuple(like.shape)}: this is another model")
        return velocity


def _fits(frames: int) -> bool:
    """Whether decoding gives back as many frames as were encoded when only the latents are known."""
    return frames >= 1 and (frames % CHUNK_FRAMES == 0 or frames % CHUNK_FRAMES % TIME_STRIDE == 1)
