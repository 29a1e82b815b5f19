"""OpenVid-1M's MVDiT files (nkp37/OpenVid-1M, ``model_weights/MVDiT-16×512×512.pt``) as a diffusers folder.

The repository's STDiT files have one stream only and are refused. The files come without a configuration: what their tensors
don't tell is that of the released model, or is read from a ``config.json`` beside the file with the original names.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from phys_pipeline.errors import ConfigError
from phys_pipeline.models.conversion import Conversion, Shapes, shape_of
from phys_pipeline.models.key_map import KeyMap, Rule
from phys_pipeline.models.pixart_keys import OUTER_RULES, cross_attention_rules, feed_forward_rules, self_attention_rules

_NUM_HEADS = 16  # of the released model; the tensors don't tell
_SIDE_AT_SCALE_1 = 64  # latents; the authors' space_scale is 0.5 for 32 (256 pixels) and 1.0 for 64
SCHEDULER: Mapping[str, Any] = {  # with what MVDiT was trained; respaced to N steps it keeps timesteps 0 and 999
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


_SOURCE, _TARGET = "blocks.{i}", "transformer_blocks.{i}"
TRANSFORMER_KEYS = KeyMap(
    rules=(
        *OUTER_RULES,
        *(Rule(f"t_block{kind}.1.{{p}}", f"time_proj{kind}.{{p}}") for kind in ("", "_y", "_temp", "_y_temp")),
        *(Rule(f"{_SOURCE}.{name}", f"{_TARGET}.{name}") for name in _TABLES),
        *self_attention_rules(f"{_SOURCE}.attn", f"{_TARGET}.attn1"),
        *self_attention_rules(f"{_SOURCE}.attn_temp", f"{_TARGET}.attn_temp"),
        *cross_attention_rules(f"{_SOURCE}.cross_attn", f"{_TARGET}.attn2"),
        *feed_forward_rules(f"{_SOURCE}.mlp", f"{_TARGET}.ff"),
        *feed_forward_rules(f"{_SOURCE}.mlp_y", f"{_TARGET}.ff_text"),
    ),
    ignored=("pos_embed", "pos_embed_temporal"),  # made for the input at hand
)


def transformer_settings(shapes: Shapes, config: Mapping[str, Any]) -> dict[str, Any]:
    """Settings read off the tensors, completed by the original configuration's names where there is one.

    Raises ConfigError if tensors that tell them are missing or the configuration contradicts them.
    """
    width, in_channels, *patch = shape_of(shapes, "x_embedder.proj.weight", 5, "MVDiT")
    caption_length, caption_channels = shape_of(shapes, "y_embedder.y_embedding", 2, "MVDiT")
    heads = config.get("num_heads", _NUM_HEADS)
    if width % heads:
        raise ConfigError(f"{heads} heads don't divide {width} channels: put the num_heads it was trained with into config.json")
    found = {
        "in_channels": in_channels,
        "patch_size": patch,
        "hidden_size": width,
        "depth": sum(name.startswith("blocks.") and name.endswith(".attn_temp.qkv.weight") for name in shapes),
        "mlp_ratio": shape_of(shapes, "blocks.0.mlp.fc1.weight", 2, "MVDiT")[0] / width,
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
    _, patches, _ = shape_of(shapes, "pos_embed", 3, "MVDiT")
    _, frames, _ = shape_of(shapes, "pos_embed_temporal", 3, "MVDiT")
    side = math.isqrt(patches)
    if side**2 != patches:
        raise ConfigError(f"{patches} patches make no square: put input_size [frames, height, width] in latents and space_scale "
                          "into a config.json beside the file")  # fmt: skip
    return frames, side * patch, side * patch


CONVERSIONS = (
    Conversion(
        part="transformer",
        model_class="phys_pipeline.models.mvdit:MVDiTTransformer3DModel",
        marker="t_block_y_temp.1.weight",
        key_map=TRANSFORMER_KEYS,
        config=transformer_settings,
    ),
)

HUB_FILES = ("model_weights/MVDiT-16×512×512.pt",)  # the repository's other files are of other models, and its videos
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
    "transformer": "phys-pipeline convert of nkp37/OpenVid-1M",
    "vae": "the config.json and .safetensors of stabilityai/sd-vae-ft-ema",
    "text_encoder": "the weights and config.json of DeepFloyd/t5-v1_1-xxl",
    "tokenizer": "the tokenizer files of DeepFloyd/t5-v1_1-xxl",
}
