"""HunyuanVideo 1.0 (Kong et al. 2024, arXiv:2412.03603) through diffusers' ``HunyuanVideoPipeline``.

Facts that are easy to get wrong, all kept here: the text features are the Llama hidden state -3 with the prompt template
cropped; masks are prefix lengths, so padding is on the right and a mask is never empty; the pooled CLIP embedding comes from
the bare caption; guidance is told to the transformer times 1000; latents are scaled but not shifted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from phys_pipeline.families.base import FamilySpec
from phys_pipeline.families.diffusers_family import DiffusersFamily, check_mask, rows
from phys_pipeline.families.tokenization import PROBE, WORD_PROBE
from phys_pipeline.noise_path import NoisePath, RectifiedFlow

_BLOCKS = r"(transformer_blocks|single_transformer_blocks)\.\d+\."
_ATTENTION = r"attn\.(to_q|to_k|to_v|to_out\.0|add_q_proj|add_k_proj|add_v_proj|to_add_out)"
_FEED_FORWARD = r"(ff|ff_context)\.net\.(0\.proj|2)|proj_mlp|proj_out"

LORA_ATTENTION = _BLOCKS + _ATTENTION
LORA_ATTENTION_AND_FEED_FORWARD = f"{_BLOCKS}({_ATTENTION}|{_FEED_FORWARD})"

# 61 frames (2.5 s) at the model's native 720p and 24 fps: half the 129 frames it can make, at well under half the cost.
GENERATION = {
    "prompt_template": None,
    "max_sequence_length": 256,
    "num_frames": 61,
    "height": 720,
    "width": 1280,
    "fps": 24,
    "num_inference_steps": 50,
    "guidance_scale": 6.0,
    "true_cfg_scale": 1.0,
    "negative_prompt": "",
}

SPEC = FamilySpec(
    name="hunyuan_video",
    pipeline_class="HunyuanVideoPipeline",
    transformer_class="HunyuanVideoTransformer3DModel",
    vae_class="AutoencoderKLHunyuanVideo",
    hub_id="hunyuanvideo-community/HunyuanVideo",
    lora_target_regex=LORA_ATTENTION,
    time_stride=4,
    size_multiple=16,
    native_fps=24.0,
    default_shift=7.0,
    default_guidance=6.0,
    latent_channels=16,
    frame_rule="4k+1 frames (1, 5, ..., 61, ..., 129): latent frame 0 is one pixel frame, every other one is four",
    generation=GENERATION,
    licence="Tencent Hunyuan Community (not for the EU, the UK and South Korea)",
    parameters=12.8,
    memory="26 GB of weights in bf16 for the transformer, by arithmetic",
    sizes="720x1280, 544x960 and others that are multiples of 16",
    comfyui=True,
)


class HunyuanVideoFamily(DiffusersFamily):
    """Text-to-video HunyuanVideo. Predicts ``noise - x0``; timestep is ``1000 * sigma``, never rounded.

    Its autoencoder's framewise encoding (on by default) blends windows of 17 frames every 12: a seam every three latent frames in
    clips longer than 17 frames, which a temporal spectrum sees.
    """

    text_parts = ("text_encoder", "tokenizer", "text_encoder_2", "tokenizer_2")
    probes: Mapping[str, str] = {"tokenizer": PROBE, "tokenizer_2": WORD_PROBE}

    def __init__(self) -> None:
        self.spec = SPEC
        self.path: NoisePath = RectifiedFlow(sign=1, time="noise", scale=1000.0)
        self.guidance_embeds = True

    def embed(self, pipeline: Any, captions: list[str], settings: Mapping[str, Any]) -> dict[str, Tensor]:
        """``prompt_embeds (B, L, D)``, ``prompt_attention_mask (B, L)``, ``pooled_prompt_embeds (B, P)``.

        Settings are ``prompt_template`` and ``max_sequence_length``. Raises ModelError if a caption has no token left (the token
        refiner would divide by zero) or padding is not on the right.
        """
        options = {"max_sequence_length": settings["max_sequence_length"]}
        if settings["prompt_template"] is not None:
            options["prompt_template"] = dict(settings["prompt_template"])
        embeds, pooled, mask = pipeline.encode_prompt(prompt=captions, **options)
        check_mask(mask, captions, "check the model's prompt_template crop")
        return {"prompt_embeds": embeds, "prompt_attention_mask": mask, "pooled_prompt_embeds": pooled}

    def uses_negative_prompt(self, settings: Mapping[str, Any]) -> bool:
        """Guidance is distilled into the model, so the negative prompt is for true classifier-free guidance alone."""
        return settings["true_cfg_scale"] > 1

    def sampling_arguments(
        self, conditioning: Mapping[str, Tensor], settings: Mapping[str, Any], noise: Tensor
    ) -> dict[str, Any]:  # noise: (1, C, T', H', W')
        """As in the base class, with ``true_cfg_scale``."""
        return {**super().sampling_arguments(conditioning, settings, noise), "true_cfg_scale": settings["true_cfg_scale"]}

    def inputs(
        self, x_t: Tensor, sigma: Tensor, conditioning: Mapping[str, Tensor], guidance: float | Tensor | None = None
    ) -> dict[str, Any]:  # (B, C, T', H', W'), (B,)
        """Forward arguments. Text tensors follow the dtype and device of ``x_t``; the timestep stays float32.

        ``guidance`` is the distilled guidance scale, one number or (B,) (default: the spec's 6.0). It is multiplied by 1000
        in ``x_t``'s dtype exactly as the sampling pipeline does, so that training and sampling tell the model the same
        value (6000, or 6016 in bfloat16). Left out where the transformer has no guidance embedding.
        """
        batch = x_t.shape[0]
        arguments: dict[str, Any] = {
            "hidden_states": x_t,
            "timestep": self.path.timestep(sigma).to(x_t.device),
            "encoder_hidden_states": conditioning["prompt_embeds"].to(x_t.device, x_t.dtype),
            "encoder_attention_mask": conditioning["prompt_attention_mask"].to(x_t.device, x_t.dtype),
            "pooled_projections": conditioning["pooled_prompt_embeds"].to(x_t.device, x_t.dtype),
            "return_dict": False,
        }
        rows(batch, {name: value for name, value in arguments.items() if isinstance(value, Tensor)})
        if self.guidance_embeds:
            scale = self.spec.default_guidance if guidance is None else guidance
            arguments["guidance"] = torch.as_tensor(scale, dtype=x_t.dtype, device=x_t.device).expand(batch) * 1000.0
        return arguments
