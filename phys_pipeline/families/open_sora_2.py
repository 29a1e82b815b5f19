"""Open-Sora 2.0 through diffusers' ``FluxTransformer2DModel`` and our ``OpenSora2Pipeline``.

Facts that are easy to get wrong, all kept here: the transformer takes packed tokens of 2x2 latents beside a condition, which for
text-to-video is zero but not absent; it is told sigma in [0, 1], not 1000 times that; T5's padding is not masked; captions end
with their frame rate and a motion score, the negative and the empty one don't. Training follows the straight path; the original
mixes in 1e-5 of the noise more, ``x_t = (1 - t) x0 + (1 - (1 - 1e-5) (1 - t)) noise``, which float32 barely tells apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from phys_pipeline.families.base import FamilySpec
from phys_pipeline.families.diffusers_family import DiffusersFamily, rows
from phys_pipeline.families.hunyuan_video import LORA_ATTENTION
from phys_pipeline.families.tokenization import WORD_PROBE
from phys_pipeline.models.open_sora_2 import (
    MAX_FRAMES,
    PATCH,
    SIZE_MULTIPLE,
    TIME_STRIDE,
    check_frames,
    condition,
    described,
    pack,
    positions,
    unpack,
    video_shift,
)
from phys_pipeline.noise_path import NoisePath, RectifiedFlow

# 61 frames at 16:9 of the small resolution: half the 129 frames it can make, at well under half the cost.
GENERATION: dict[str, Any] = {
    "max_sequence_length": 512,
    "num_frames": 61,
    "height": 192,
    "width": 336,
    "fps": 24,
    "motion_score": 4,
    "num_inference_steps": 50,
    "guidance_scale": 7.5,
    "negative_prompt": "",
}

SPEC = FamilySpec(
    name="open_sora_2",
    pipeline_class="OpenSora2Pipeline",
    transformer_class="FluxTransformer2DModel",
    vae_class="AutoencoderKLHunyuanVideo",
    hub_id="hpcai-tech/Open-Sora-v2",
    lora_target_regex=LORA_ATTENTION,
    time_stride=TIME_STRIDE,
    size_multiple=SIZE_MULTIPLE,
    native_fps=24.0,
    default_shift=video_shift(GENERATION["num_frames"], GENERATION["height"], GENERATION["width"]),
    default_guidance=GENERATION["guidance_scale"],
    latent_channels=16,
    frame_rule=f"4k+1 frames, at most {MAX_FRAMES}: latent frame 0 is one pixel frame, every other one is four",
    generation=GENERATION,
    licence="Apache-2.0; its autoencoder Tencent Hunyuan Community (not for the EU, the UK and South Korea)",
    parameters=11.9,
    memory="24 GB of weights in bf16 for the transformer, by arithmetic",
    sizes="192x336, 256x256, 576x1024, 768x768 and others that are multiples of 16",
    modules={"pipeline": "phys_pipeline.pipelines.open_sora_2"},
)


class OpenSora2Family(DiffusersFamily):
    """Text-to-video Open-Sora 2.0. Predicts ``noise - x0``; the timestep is sigma.

    Its autoencoder is HunyuanVideo's, with the same seams (see ``HunyuanVideoFamily``).
    """

    packing = PATCH
    text_parts = ("text_encoder", "tokenizer", "text_encoder_2", "tokenizer_2")
    probes: Mapping[str, str] = {"tokenizer": WORD_PROBE, "tokenizer_2": WORD_PROBE}

    def __init__(self) -> None:
        self.spec = SPEC
        self.path: NoisePath = RectifiedFlow(sign=1, time="noise", scale=1.0)

    def check_size(self, frames: int, height: int, width: int, vae: Any = None) -> None:
        """As every family's, and ConfigError for more frames than the model makes."""
        super().check_size(frames, height, width, vae)
        check_frames(frames)

    def timestep_shift(self, scheduler: Any, frames: int, height: int, width: int) -> float:
        """The shift that the pipeline computes from the size; the scheduler's own isn't used."""
        return video_shift(frames, height, width)

    def text_settings(self, generation: Mapping[str, Any]) -> dict[str, Any]:
        return {"fps": self.fps or generation["fps"], "motion_score": generation["motion_score"]}

    def encode_text(self, parts: Any, captions: Sequence[str], generation: Mapping[str, Any] | None = None) -> dict[str, Tensor]:
        """As every family's. Captions are told the frame rate of ``generation``, else of the clips that are trained on, else the
        model folder's; and the motion score."""
        rate = {"fps": self.fps} if self.fps else {}
        return super().encode_text(parts, captions, {**rate, **(generation or {})})

    def embed(self, pipeline: Any, captions: list[str], settings: Mapping[str, Any]) -> dict[str, Tensor]:
        """``prompt_embeds (B, L, D)`` and ``pooled_prompt_embeds (B, P)``. Settings: ``fps``, ``motion_score`` (None: not told),
        ``max_sequence_length``."""
        texts = [described(caption, settings["fps"], settings["motion_score"]) for caption in captions]
        embeds, pooled = pipeline.encode_prompt(texts, max_sequence_length=settings["max_sequence_length"])
        return {"prompt_embeds": embeds, "pooled_prompt_embeds": pooled}

    def uses_negative_prompt(self, settings: Mapping[str, Any]) -> bool:
        return settings["guidance_scale"] != 1

    def sampling_conditioning(
        self, parts: Any, prompt: str, settings: Mapping[str, Any], done: Callable[[], None] = lambda: None
    ) -> dict[str, Tensor]:
        """As every family's; the negative prompt is taken as it is."""
        conditioning = dict(self.encode_text(parts, [prompt], settings))
        done()
        if self.uses_negative_prompt(settings):
            bare = {**settings, "fps": None, "motion_score": None}
            unwanted = self.encode_text(parts, [settings["negative_prompt"]], bare)
            conditioning.update({f"negative_{key}": value for key, value in unwanted.items()})
            done()
        return conditioning

    def inputs(
        self, x_t: Tensor, sigma: Tensor, conditioning: Mapping[str, Tensor], guidance: float | Tensor | None = None
    ) -> dict[str, Any]:  # (B, C, T', H', W'), (B,)
        """Forward arguments, with nothing given in the condition. Text tensors follow ``x_t``; the timestep stays float32, but
        diffusers multiplies it by 1000 in the transformer's dtype. ``guidance`` is not told to this transformer."""
        tensors = {
            "hidden_states": torch.cat([pack(x_t), pack(condition(x_t))], dim=-1),
            "timestep": self.path.timestep(sigma).to(x_t.device),
            "encoder_hidden_states": conditioning["prompt_embeds"].to(x_t.device, x_t.dtype),
            "pooled_projections": conditioning["pooled_prompt_embeds"].to(x_t.device, x_t.dtype),
        }
        length = tensors["encoder_hidden_states"].shape[1]
        frames, height, width = x_t.shape[2:]
        return {
            **rows(len(x_t), tensors),
            "img_ids": positions(frames, height, width, device=x_t.device),
            "txt_ids": torch.zeros(length, 3, device=x_t.device),
            "return_dict": False,
        }

    def prediction(self, raw: Any, like: Tensor) -> Tensor:  # like: (B, C, T', H', W')
        """The velocity ``noise - x0``, unpacked to (B, C, T', H', W')."""
        tokens = raw if isinstance(raw, Tensor) else raw[0]
        frames, height, width = like.shape[2:]
        return super().prediction(unpack(tokens, frames, height, width), like)
