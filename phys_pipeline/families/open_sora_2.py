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

from phys_pipeline.errors import ConfigError
from phys_pipeline.families.base import FamilySpec, VideoFamily
from phys_pipeline.families.hunyuan_video import LORA_ATTENTION, HunyuanVideoFamily
from phys_pipeline.models.open_sora_2 import (
    MAX_FRAMES,
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


class OpenSora2Family(HunyuanVideoFamily):
    """Text-to-video Open-Sora 2.0. Predicts ``noise - x0``. It has HunyuanVideo's autoencoder, and parts of the same names."""

    tokenizer_probe = "A red ball falls, then it bounces 2 times."  # T5 makes a space of a line's end, by design

    def __init__(self) -> None:
        super().__init__()
        self.spec = SPEC
        self.path: NoisePath = RectifiedFlow(sign=1, time="noise", scale=1.0)
        self.guidance_embeds = False

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
        """``prompt_embeds (B, L, D)`` and ``pooled_prompt_embeds (B, P)`` of the captions with frame rate and motion score.

        ``parts`` as for HunyuanVideo. The rate is that of ``generation``, else of the clips that are trained on (``fps``), else
        the model folder's.
        """
        pipeline, settings = self._parts_and_settings(parts, generation)
        rate = (generation or {}).get("fps") or self.fps or settings["fps"]
        return _encoded(pipeline, [described(text, rate, settings["motion_score"]) for text in _listed(captions)], settings)

    def uses_negative_prompt(self, settings: Mapping[str, Any]) -> bool:
        return settings["guidance_scale"] != 1

    def sampling_conditioning(
        self, parts: Any, prompt: str, settings: Mapping[str, Any], done: Callable[[], None] = lambda: None
    ) -> dict[str, Tensor]:
        """As every family's; the negative prompt is taken as it is."""
        conditioning = dict(self.encode_text(parts, [prompt], settings))
        done()
        if self.uses_negative_prompt(settings):
            pipeline, settings = self._parts_and_settings(parts, settings)
            unwanted = _encoded(pipeline, [settings["negative_prompt"]], settings)
            conditioning.update({f"negative_{key}": value for key, value in unwanted.items()})
            done()
        return conditioning

    def sampling_arguments(
        self, conditioning: Mapping[str, Tensor], settings: Mapping[str, Any], noise: Tensor
    ) -> dict[str, Any]:  # noise: (1, C, T', H', W')
        """As every family's; HunyuanVideo's own ``true_cfg_scale`` isn't there."""
        return VideoFamily.sampling_arguments(self, conditioning, settings, noise)

    def inputs(
        self, x_t: Tensor, sigma: Tensor, conditioning: Mapping[str, Tensor], guidance: float | Tensor | None = None
    ) -> dict[str, Any]:  # (B, C, T', H', W'), (B,)
        """Forward arguments, with nothing given in the condition. Text tensors follow ``x_t``; the timestep stays float32, but
        diffusers multiplies it by 1000 in the transformer's dtype. ``guidance`` is not told to this transformer."""
        text, pooled = (conditioning[name].to(x_t.device, x_t.dtype) for name in ("prompt_embeds", "pooled_prompt_embeds"))
        if not len(text) == len(pooled) == len(sigma) == len(x_t):
            raise ConfigError(f"{len(text)} texts and {len(sigma)} noise levels for a batch of {len(x_t)}: give one per sample")
        return {
            "hidden_states": torch.cat([pack(x_t), pack(condition(x_t))], dim=-1),
            "timestep": self.path.timestep(sigma).to(x_t.device),
            "encoder_hidden_states": text,
            "pooled_projections": pooled,
            "img_ids": positions(*x_t.shape[2:], device=x_t.device),
            "txt_ids": torch.zeros(text.shape[1], 3, device=x_t.device),
            "return_dict": False,
        }

    def prediction(self, raw: Any, like: Tensor) -> Tensor:  # like: (B, C, T', H', W')
        """The velocity ``noise - x0``, unpacked to (B, C, T', H', W')."""
        tokens = raw if isinstance(raw, Tensor) else raw[0]
        return unpack(tokens, *like.shape[2:])


def _listed(captions: str | Sequence[str]) -> list[str]:
    return [captions] if isinstance(captions, str) else list(captions)


def _encoded(pipeline: Any, texts: list[str], settings: Mapping[str, Any]) -> dict[str, Tensor]:
    if not texts:
        raise ConfigError("no caption given: pass a list with at least one")
    embeds, pooled = pipeline.encode_prompt(texts, max_sequence_length=settings["max_sequence_length"])
    return {"prompt_embeds": embeds, "pooled_prompt_embeds": pooled}
