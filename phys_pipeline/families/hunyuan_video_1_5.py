"""HunyuanVideo-1.5 text-to-video (Tencent 2025, arXiv:2511.18870) through diffusers' ``HunyuanVideo15Pipeline``.

Facts that are easy to get wrong, all kept here: the input has, beside the latents, as many channels for a condition picture and
one for its mask, all zero for text to video; picture embeddings are zeros too, and the network tells text to video by that; the
second text encoder reads only what stands between quotation marks in the caption, so its mask is often empty; guidance is a part
of the pipeline with a scale of its own, not a setting of the call; the timestep follows the latents' dtype, as in the pipeline.
The pipeline has no LoRA methods: load an adapter with ``pipeline.transformer.load_lora_adapter(file, prefix="transformer")``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from phys_pipeline.errors import ModelError
from phys_pipeline.families import sources
from phys_pipeline.families.base import FamilySpec, VideoFamily
from phys_pipeline.families.diffusers_family import DiffusersFamily, check_mask, rows
from phys_pipeline.families.tokenization import PROBE
from phys_pipeline.noise_path import NoisePath, RectifiedFlow

GENERATION: dict[str, Any] = {
    "num_frames": 121,
    "height": 480,
    "width": 848,
    "fps": 24,
    "num_inference_steps": 50,
    "negative_prompt": "",
}

SPEC = FamilySpec(
    name="hunyuan_video_1_5",
    pipeline_class="HunyuanVideo15Pipeline",
    transformer_class="HunyuanVideo15Transformer3DModel",
    vae_class="AutoencoderKLHunyuanVideo15",
    hub_id="hunyuanvideo-community/HunyuanVideo-1.5-480p_t2v",
    lora_target_regex=r"transformer_blocks\.\d+\.attn\.(to_q|to_k|to_v|to_out\.0|add_q_proj|add_k_proj|add_v_proj|to_add_out)",
    time_stride=4,
    size_multiple=16,
    native_fps=24.0,
    default_shift=5.0,
    default_guidance=6.0,
    latent_channels=32,
    frame_rule="4k+1 frames (1, 5, ..., 121)",
    generation=GENERATION,
    space_stride=16,
    licence="Tencent Hunyuan Community (not for the EU, the UK and South Korea)",
    parameters=8.3,
    memory="17 GB of weights in bf16 for the transformer and 15 GB for Qwen2.5-VL, by arithmetic",
    sizes="480x848 (shift 5), 720x1280 (shift 9)",
)

_PICTURE_TOKENS = 729  # rows of picture embeddings that the pipeline always gives
_TEXT_TOKENS = (1000, 256)  # of the caption and of its quoted words, as the pipeline pads them
_TEXT = (("prompt_embeds", "encoder_hidden_states"), ("prompt_embeds_mask", "encoder_attention_mask"))


class HunyuanVideo15Family(DiffusersFamily):
    """Text-to-video HunyuanVideo-1.5. Predicts ``noise - x0``; timestep is ``1000 * sigma``."""

    text_parts = ("text_encoder", "tokenizer", "text_encoder_2", "tokenizer_2")
    other_parts = ("guider",)
    probes: Mapping[str, str] = {"tokenizer": PROBE, "tokenizer_2": PROBE}
    optional_masks = ("prompt_embeds_mask_2",)

    def __init__(self) -> None:
        self.spec = SPEC
        self.path: NoisePath = RectifiedFlow(sign=1, time="noise", scale=1000.0)
        self.picture_width: int | None = None

    def bind(self, transformer: Any) -> VideoFamily:
        settings = transformer.config
        if settings.get("task_type") == "i2v":
            raise ModelError("this HunyuanVideo-1.5 transformer is for image to video: give a text-to-video model")
        if settings.get("use_meanflow"):
            raise ModelError(
                "this HunyuanVideo-1.5 transformer is a distilled one that takes two timesteps: give the plain model"
            )
        self.picture_width = settings.image_embed_dim
        return super().bind(transformer)

    def assemble(self, parts: Mapping[str, Any], folder: str | Path) -> Any:
        """As in the base class, with the folder's guider. The class can't be made without an autoencoder, so one without
        weights stands in for it where there is none."""
        from diffusers import AutoencoderKLHunyuanVideo15

        parts = dict(parts)
        if parts.get("guider") is None:
            parts["guider"] = sources.load_component(Path(folder), "guider")
        missing = parts.get("vae") is None
        if missing:
            with torch.device("meta"):
                parts["vae"] = AutoencoderKLHunyuanVideo15(block_out_channels=(32, 32, 32, 32, 32), layers_per_block=1)
        pipeline = super().assemble(parts, folder)
        if missing:
            pipeline.register_modules(vae=None)
        return pipeline

    def components(self, part: str) -> tuple[str, ...]:
        return (*self.text_parts, *self.other_parts) if part == "text" else super().components(part)

    def embed(self, pipeline: Any, captions: list[str], settings: Mapping[str, Any]) -> dict[str, Tensor]:
        """``prompt_embeds`` (B, 1000, D) and ``prompt_embeds_mask``; those of the quoted words, (B, 256, E), end in ``_2``."""
        embeds, mask, quoted, quoted_mask = pipeline.encode_prompt(captions, batch_size=len(captions))
        check_mask(mask, captions, "check the tokenizer's chat template")
        return {
            "prompt_embeds": embeds,
            "prompt_embeds_mask": mask,
            "prompt_embeds_2": quoted,
            "prompt_embeds_mask_2": quoted_mask,
        }

    def text_tokens(self, settings: Mapping[str, Any]) -> int:
        return sum(_TEXT_TOKENS) + _PICTURE_TOKENS

    def uses_negative_prompt(self, settings: Mapping[str, Any]) -> bool:
        """The guider decides in the pipeline, so the negative prompt is always at hand."""
        return True

    def sampling_arguments(
        self, conditioning: Mapping[str, Tensor], settings: Mapping[str, Any], noise: Tensor
    ) -> dict[str, Any]:  # noise: (1, C, T', H', W')
        names = ("height", "width", "num_frames", "num_inference_steps")
        return {**conditioning, "latents": noise, **{name: settings[name] for name in names}}

    def inputs(
        self, x_t: Tensor, sigma: Tensor, conditioning: Mapping[str, Tensor], guidance: float | Tensor | None = None
    ) -> dict[str, Any]:  # (B, C, T', H', W'), (B,)
        """Forward arguments, all in the dtype and on the device of ``x_t``. ``bind`` must have seen the transformer."""
        if self.picture_width is None:
            raise ModelError("the transformer isn't known yet: load it with this family, or bind it")
        batch = x_t.shape[0]
        tensors = {"timestep": self.path.timestep(sigma).to(x_t.device, x_t.dtype)}
        for suffix in ("", "_2"):
            tensors |= {f"{to}{suffix}": conditioning[f"{of}{suffix}"].to(x_t.device, x_t.dtype) for of, to in _TEXT}
        picture = torch.zeros_like(x_t), torch.zeros_like(x_t[:, :1])
        return {
            "hidden_states": torch.cat([x_t, *picture], dim=1),
            "image_embeds": x_t.new_zeros(batch, _PICTURE_TOKENS, self.picture_width),
            **rows(batch, tensors),
            "return_dict": False,
        }
