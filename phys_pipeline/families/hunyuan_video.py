"""HunyuanVideo 1.0 (Kong et al. 2024, arXiv:2412.03603) through diffusers' ``HunyuanVideoPipeline``.

Facts that are easy to get wrong, all kept here: the text features are the Llama hidden state -3 with the prompt template
cropped; masks are prefix lengths, so padding is on the right and a mask is never empty; the pooled CLIP embedding comes from
the bare caption; guidance is told to the transformer times 1000; latents are scaled but not shifted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from phys_pipeline.errors import ConfigError, ModelError
from phys_pipeline.families import sources
from phys_pipeline.families.base import FamilySpec, LoadedModel, VideoFamily, pipeline_source
from phys_pipeline.families.tokenization import PROBE, WORD_PROBE, load_tokenizer
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

_TEXT = ("text_encoder", "tokenizer", "text_encoder_2", "tokenizer_2")
_COMPONENTS = {
    "pipeline": (*_TEXT, "transformer", "vae", "scheduler"),
    "text": _TEXT,
    "transformer": ("transformer",),
    "vae": ("vae",),
    "scheduler": ("scheduler",),
}
_ENCODING_FLAGS = (
    "use_slicing", "use_tiling", "use_framewise_encoding", "tile_sample_min_height", "tile_sample_min_width",
    "tile_sample_min_num_frames", "tile_sample_stride_height", "tile_sample_stride_width", "tile_sample_stride_num_frames",
)  # fmt: skip


class HunyuanVideoFamily(VideoFamily):
    """Text-to-video HunyuanVideo. Predicts ``noise - x0``; timestep is ``1000 * sigma``, never rounded."""

    tokenizer_probe = PROBE

    def __init__(self) -> None:
        self.spec = SPEC
        self.path: NoisePath = RectifiedFlow(sign=1, time="noise", scale=1000.0)
        self.guidance_embeds = True

    def components(self, part: str) -> tuple[str, ...]:
        return _COMPONENTS[part]

    def _load_from(self, part: str, folder: Path, dtype: torch.dtype) -> Any:
        if part == "scheduler":
            return sources.load_component(folder, "scheduler")
        if part in ("transformer", "vae"):
            return sources.load_component(folder, part, dtype)
        parts: dict[str, Any] = {}
        for name in _COMPONENTS[part]:
            if name == "tokenizer":
                parts[name] = load_tokenizer(
                    folder / name, sources.description(folder).get("tokenizer_probe", self.tokenizer_probe)
                )
            elif name == "tokenizer_2":
                parts[name] = load_tokenizer(folder / name, sources.description(folder).get("tokenizer_2_probe", WORD_PROBE))
            elif name == "scheduler":
                parts[name] = sources.load_component(folder, name)
            else:
                parts[name] = sources.load_component(folder, name, dtype)
        return self.assemble(parts, folder)

    def encode_video(self, vae: Any, pixels: Tensor, generator: torch.Generator | None = None) -> Tensor:  # (B, 3, T, H, W)
        """Pixels in [0, 1] to float32 latents (B, C, T', H', W'), times the autoencoder's scaling factor.

        Without ``generator`` the posterior's mode is taken (repeatable), with one a sample. Errors as in ``signed_pixels``.
        """
        signed = self.signed_pixels(vae, pixels)
        with torch.no_grad():
            encoded = vae.encode(signed)
        posterior = encoded.latent_dist
        latents = posterior.mode() if generator is None else posterior.sample(generator)
        return latents.float() * vae.config.scaling_factor

    def decode_video(self, vae: Any, latents: Tensor) -> Tensor:  # (B, C, T', H', W')
        """Latents to float32 pixels (B, 3, T, H, W) in [0, 1]. Differentiable; values outside [0, 1] are clamped."""
        decoded = vae.decode((latents / vae.config.scaling_factor).to(vae.device, vae.dtype), return_dict=False)[0]
        return (decoded.float() / 2 + 0.5).clamp(0, 1)

    def encoding_settings(self, vae: Any) -> dict[str, Any]:
        """Tiling flags of the autoencoder. Framewise encoding (on by default) blends windows of 17 frames every 12: a seam
        every three latent frames in clips longer than 17 frames, which a temporal spectrum sees."""
        return {name: getattr(vae, name) for name in _ENCODING_FLAGS if hasattr(vae, name)}

    def encode_text(self, parts: Any, captions: Sequence[str], generation: Mapping[str, Any] | None = None) -> dict[str, Tensor]:
        """``prompt_embeds (B, L, D)``, ``prompt_attention_mask (B, L)``, ``pooled_prompt_embeds (B, P)`` of the captions.

        ``parts`` is a pipeline (whole, or the text part alone) or a LoadedModel; ``generation`` may hold
        ``prompt_template`` and ``max_sequence_length``, otherwise those of the model folder are used. Raises ModelError if
        a caption has no token left (the token refiner would divide by zero) or padding is not on the right.
        """
        captions = [captions] if isinstance(captions, str) else list(captions)
        if not captions:
            raise ConfigError("no caption given: pass a list with at least one")
        parts, settings = self._parts_and_settings(parts, generation)
        options = {"max_sequence_length": settings["max_sequence_length"]}
        if settings["prompt_template"] is not None:
            options["prompt_template"] = dict(settings["prompt_template"])
        with torch.no_grad():
            embeds, pooled, mask = parts.encode_prompt(prompt=captions, **options)
        _check_mask(mask, captions)
        return {"prompt_embeds": embeds, "prompt_attention_mask": mask, "pooled_prompt_embeds": pooled}

    def _parts_and_settings(self, parts: Any, generation: Mapping[str, Any] | None) -> tuple[Any, dict[str, Any]]:
        """The pipeline in ``parts``, and its settings: the model folder's, replaced where ``generation`` has a value."""
        if isinstance(parts, LoadedModel):
            return parts.pipeline, {**parts.defaults, **(generation or {})}
        return parts, {**self.generation_defaults_of(parts), **(generation or {})}

    def generation_defaults_of(self, pipeline: Any) -> dict[str, Any]:
        """Sampling defaults of a pipeline: those of the folder it was loaded from, or the spec's if built in memory."""
        source = pipeline_source(pipeline)
        return dict(self.spec.generation) if source is None else self.generation_defaults(source)

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
        for name in ("timestep", "encoder_hidden_states", "encoder_attention_mask", "pooled_projections"):
            if arguments[name].shape[0] != batch:
                raise ConfigError(f"{name} has {arguments[name].shape[0]} rows for a batch of {batch}: give one per sample")
        if self.guidance_embeds:
            scale = self.spec.default_guidance if guidance is None else guidance
            arguments["guidance"] = torch.as_tensor(scale, dtype=x_t.dtype, device=x_t.device).expand(batch) * 1000.0
        return arguments

    def prediction(self, raw: Any, like: Tensor) -> Tensor:  # like: (B, C, T', H', W')
        """The predicted velocity ``noise - x0``, (B, C, T', H', W'). Raises ConfigError if its shape isn't that of ``like``."""
        velocity = raw if isinstance(raw, Tensor) else raw[0]
        if velocity.shape != like.shape:
            raise ConfigError(
                f"the transformer returned {tuple(velocity.shape)} for {tuple(like.shape)}: latent height and width must be "
                "multiples of its patch size"
            )
        return velocity


def _check_mask(mask: Tensor, captions: Sequence[str]) -> None:  # (B, L)
    kept = mask.bool()
    empty = (~kept.any(dim=1)).nonzero().flatten().tolist()
    if empty:
        raise ModelError(f"caption {captions[empty[0]]!r} has no token left for the model: write a few words, or check the "
                         "model's prompt_template crop")  # fmt: skip
    if bool((kept[:, 1:] & ~kept[:, :-1]).any()):
        raise ModelError("the tokenizer pads on the left, which HunyuanVideo misreads: set tokenizer.padding_side = 'right'")
