"""OpenVid-1M's MVDiT files (nkp37/OpenVid-1M, ``model_weights/MVDiT-16×512×512.pt``) as a diffusers folder.

The repository's STDiT files have one stream only and are refused. The files come without a configuration: what their tensors
don't tell is that of the released model, or is read from a ``config.json`` beside the file with the original names.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from phys_pipeline.errors import ConfigError
from phys_pipeline.models.conversion import Conversion, Shapes
from phys_pipeline.models.key_map import KeyMap, Rule

_NUM_HEADS = 16  # of the released model; the tensors don't tell
_SIDE_AT_SCALE_1 = 64  # latents; the authors' space_scale is 0.5 for 32 (256 pixels) and 1.0 for 64
SCHEDULER = {  # with what MVDiT was trained; respaced to N steps it keeps timesteps 0 and 999
    "num_train_timesteps": 1000,
    "beta_start": 1e-4,
    "beta_end": 0.02,
    "beta_schedule": "linear",
    "prediction_type": "epsilon",
    "variance_type": "learned_range",
    "clip_sample": False,
    "timestep_spacing": "linspace",
}
_TABLES = ("scale_shift_table", "scale_shift_table_y", "scale_shift_table_temp", "scale_shift_table_y_temp")


def _self_attention_rules(old: str, new: str) -> tuple[Rule, ...]:
    source, target = f"blocks.{{i}}.{old}.", f"transformer_blocks.{{i}}.{new}."
    return (
        Rule(f"{source}qkv.{{p}}", tuple(f"{target}{name}.{{p}}" for name in ("to_q", "to_k", "to_v"))),
        Rule(f"{source}proj.{{p}}", f"{target}to_out.0.{{p}}"),
    )


def _mlp_rules(old: str, new: str) -> tuple[Rule, ...]:
    source, target = f"blocks.{{i}}.{old}.", f"transformer_blocks.{{i}}.{new}."
    return (Rule(f"{source}fc1.{{p}}", f"{target}net.0.proj.{{p}}"), Rule(f"{source}fc2.{{p}}", f"{target}net.2.{{p}}"))


_CROSS, _CROSS_TARGET = "blocks.{i}.cross_attn.", "transformer_blocks.{i}.attn2."
TRANSFORMER_KEYS = KeyMap(
    rules=(
        Rule("x_embedder.proj.{p}", "patch_embed.proj.{p}"),
        Rule("t_embedder.mlp.0.{p}", "time_embed.linear_1.{p}"),
        Rule("t_embedder.mlp.2.{p}", "time_embed.linear_2.{p}"),
        *(Rule(f"t_block{kind}.1.{{p}}", f"time_proj{kind}.{{p}}") for kind in ("", "_y", "_temp", "_y_temp")),
        Rule("y_embedder.y_embedding", "null_caption"),
        Rule("y_embedder.y_proj.fc1.{p}", "caption_projection.linear_1.{p}"),
        Rule("y_embedder.y_proj.fc2.{p}", "caption_projection.linear_2.{p}"),
        *(Rule(f"blocks.{{i}}.{name}", f"transformer_blocks.{{i}}.{name}") for name in _TABLES),
        *_self_attention_rules("attn", "attn1"),
        *_self_attention_rules("attn_temp", "attn_temp"),
        Rule(f"{_CROSS}q_linear.{{p}}", f"{_CROSS_TARGET}to_q.{{p}}"),
        Rule(f"{_CROSS}kv_linear.{{p}}", (f"{_CROSS_TARGET}to_k.{{p}}", f"{_CROSS_TARGET}to_v.{{p}}")),
        Rule(f"{_CROSS}proj.{{p}}", f"{_CROSS_TARGET}to_out.0.{{p}}"),
        *_mlp_rules("mlp", "ff"),
        *_mlp_rules("mlp_y", "ff_text"),
        Rule("final_layer.scale_shift_table", "scale_shift_table"),
        Rule("final_layer.linear.{p}", "proj_out.{p}"),
    ),
    ignored=("pos_embed", "pos_embed_temporal"),  # made for the input at hand
)


def transformer_settings(shapes: Shapes, config: Mapping[str, Any]) -> dict[str, Any]:
    """Settings read off the tensors, completed by the original configuration's names where there is one.

    Raises ConfigError if tensors that tell them are missing or the configuration contradicts them.
    """
    width, in_channels, *patch = _shape(shapes, "x_embedder.proj.weight", 5)
    caption_length, caption_channels = _shape(shapes, "y_embedder.y_embedding", 2)
    heads = config.get("num_heads", _NUM_HEADS)
    if width % heads:
        raise ConfigError(f"{heads} heads don't divide {width} channels: put the num_heads it was trained with into config.json")
    found = {
        "in_channels": in_channels,
        "patch_size": patch,
        "hidden_size": width,
        "depth": sum(name.startswith("blocks.") and name.endswith(".attn_temp.qkv.weight") for name in shapes),
        "mlp_ratio": _shape(shapes, "blocks.0.mlp.fc1.weight", 2)[0] / width,
        "caption_channels": caption_channels,
        "model_max_length": caption_length,
        "pred_sigma": True,
    }
    for name, value in found.items():
        if config.get(name, value) != value:
            raise ConfigError(f"config.json says {name}={config[name]} but the tensors say {value}: one is of another model")
    frames, height, width_in_latents = config.get("input_size") or _input_size(shapes, patch[1])
    return {
        "num_attention_heads": heads,
        "attention_head_dim": width // heads,
        "num_layers": found["depth"],
        "in_channels": in_channels,
        "out_channels": 2 * in_channels,
        "patch_size": tuple(patch),
        "mlp_ratio": found["mlp_ratio"],
        "caption_channels": caption_channels,
        "max_sequence_length": caption_length,
        "sample_frames": frames,
        "sample_height": height,
        "sample_width": width_in_latents,
        "space_scale": config.get("space_scale", height / _SIDE_AT_SCALE_1),
        "time_scale": config.get("time_scale", 1.0),
    }


def _input_size(shapes: Shapes, patch: int) -> tuple[int, int, int]:
    """Frames, height and width in latents that the position tables were made for: those of a square, as the released one."""
    _, patches, _ = _shape(shapes, "pos_embed", 3)
    _, frames, _ = _shape(shapes, "pos_embed_temporal", 3)
    side = math.isqrt(patches)
    if side**2 != patches:
        raise ConfigError(f"{patches} patches make no square: put input_size [frames, height, width] in latents and space_scale "
                          "into a config.json beside the file")  # fmt: skip
    return frames, side * patch, side * patch


def _shape(shapes: Shapes, name: str, dimensions: int) -> tuple[int, ...]:
    shape = shapes.get(name)
    if shape is None or len(shape) != dimensions:
        raise ConfigError(f"{name} is {'missing' if shape is None else f'of shape {shape}'}: this is not MVDiT, or not whole")
    return shape


CONVERSIONS = (
    Conversion(
        part="transformer",
        model_class="phys_pipeline.models.mvdit:MVDiTTransformer3DModel",
        marker="t_block_y_temp.1.weight",
        key_map=TRANSFORMER_KEYS,
        config=transformer_settings,
    ),
)

FILES: Mapping[str, Mapping[str, Any]] = {
    "model_index.json": {
        "_class_name": "MVDiTPipeline",
        "scheduler": ["diffusers", "DDPMScheduler"],
        "text_encoder": ["transformers", "T5EncoderModel"],
        "tokenizer": ["transformers", "T5Tokenizer"],
        "transformer": ["phys_pipeline.models.mvdit", "MVDiTTransformer3DModel"],
        "vae": ["diffusers", "AutoencoderKL"],
    },
    "scheduler/scheduler_config.json": {"_class_name": "DDPMScheduler", **SCHEDULER},
    "phys_pipeline.json": {"family": "mvdit"},
}
PARTS: Mapping[str, str] = {
    "transformer": "phys-pipeline convert of nkp37/OpenVid-1M, model_weights/MVDiT-16×512×512.pt",
    "vae": "the config.json and .safetensors of stabilityai/sd-vae-ft-ema",
    "text_encoder": "the weights and config.json of DeepFloyd/t5-v1_1-xxl",
    "tokenizer": "the tokenizer files of DeepFloyd/t5-v1_1-xxl",
}
