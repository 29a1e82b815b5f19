"""Official files of Open-Sora 1.2 (hpcai-tech/OpenSora-STDiT-v3, hpcai-tech/OpenSora-VAE-v1.2) as diffusers folders.

The same names with other shapes are Open-Sora 1.3 (window attention, 16 latent channels), which this refuses.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from phys_pipeline.errors import ConfigError
from phys_pipeline.models.conversion import Conversion, Shapes
from phys_pipeline.models.key_map import KeyMap, Rule
from phys_pipeline.models.open_sora_vae import CHUNK_FRAMES

_NEWER = ("kernel_size", "use_spatial_rope")  # settings that only Open-Sora 1.3 has
_BLOCKS = (("spatial_blocks", "transformer_blocks"), ("temporal_blocks", "temporal_transformer_blocks"))
_QUERY_KEY_VALUE = ("to_q", "to_k", "to_v")


def _block_rules(old: str, new: str) -> tuple[Rule, ...]:
    source, target = f"{old}.{{i}}.", f"{new}.{{i}}."
    return (
        Rule(f"{source}scale_shift_table", f"{target}scale_shift_table"),
        Rule(f"{source}attn.qkv.{{p}}", tuple(f"{target}attn1.{name}.{{p}}" for name in _QUERY_KEY_VALUE)),
        Rule(f"{source}attn.q_norm.weight", f"{target}attn1.norm_q.weight"),
        Rule(f"{source}attn.k_norm.weight", f"{target}attn1.norm_k.weight"),
        Rule(f"{source}attn.proj.{{p}}", f"{target}attn1.to_out.0.{{p}}"),
        Rule(f"{source}cross_attn.q_linear.{{p}}", f"{target}attn2.to_q.{{p}}"),
        Rule(f"{source}cross_attn.kv_linear.{{p}}", (f"{target}attn2.to_k.{{p}}", f"{target}attn2.to_v.{{p}}")),
        Rule(f"{source}cross_attn.proj.{{p}}", f"{target}attn2.to_out.0.{{p}}"),
        Rule(f"{source}mlp.fc1.{{p}}", f"{target}ff.net.0.proj.{{p}}"),
        Rule(f"{source}mlp.fc2.{{p}}", f"{target}ff.net.2.{{p}}"),
    )


TRANSFORMER_KEYS = KeyMap(
    rules=(
        Rule("x_embedder.proj.{p}", "patch_embed.proj.{p}"),
        Rule("t_embedder.mlp.0.{p}", "time_embed.linear_1.{p}"),
        Rule("t_embedder.mlp.2.{p}", "time_embed.linear_2.{p}"),
        Rule("fps_embedder.mlp.0.{p}", "fps_embed.linear_1.{p}"),
        Rule("fps_embedder.mlp.2.{p}", "fps_embed.linear_2.{p}"),
        Rule("t_block.1.{p}", "time_proj.{p}"),
        Rule("y_embedder.y_embedding", "null_caption"),
        Rule("y_embedder.y_proj.fc1.{p}", "caption_projection.linear_1.{p}"),
        Rule("y_embedder.y_proj.fc2.{p}", "caption_projection.linear_2.{p}"),
        Rule("final_layer.scale_shift_table", "scale_shift_table"),
        Rule("final_layer.linear.{p}", "proj_out.{p}"),
        *(rule for names in _BLOCKS for rule in _block_rules(*names)),
    ),
    ignored=("rope.freqs",),
)

VAE_KEYS = KeyMap(
    rules=(
        Rule("spatial_vae.module.{rest}", "spatial_vae.{rest}"),
        Rule("temporal_vae.{rest}", "temporal_vae.{rest}"),
        Rule("scale", "latents_scale"),
        Rule("shift", "latents_shift"),
    )
)


def transformer_settings(shapes: Shapes, config: Mapping[str, Any]) -> dict[str, Any]:
    """Settings read off the tensors, and checked against the original config.json where there is one."""
    if newer := [name for name in _NEWER if config.get(name) is not None]:
        raise ConfigError(f"config.json has {newer[0]}, which only Open-Sora 1.3 has: fetch hpcai-tech/OpenSora-STDiT-v3 (1.2)")
    width, in_channels, _, patch, _ = _shape(shapes, "x_embedder.proj.weight", 5)
    (head_dim,) = _shape(shapes, "spatial_blocks.0.attn.q_norm.weight", 1)
    caption_length, caption_channels = _shape(shapes, "y_embedder.y_embedding", 2)
    if in_channels != 4:
        raise ConfigError(
            f"the model takes latents of {in_channels} channels, Open-Sora 1.2 takes 4: this is Open-Sora 1.3 or another model"
        )
    depth = sum(name.startswith("spatial_blocks.") and name.endswith(".attn.qkv.weight") for name in shapes)
    found = {
        "in_channels": in_channels,
        "num_heads": width // head_dim,
        "hidden_size": width,
        "depth": depth,
        "patch_size": (1, patch, patch),
        "mlp_ratio": _shape(shapes, "spatial_blocks.0.mlp.fc1.weight", 2)[0] / width,
        "caption_channels": caption_channels,
        "model_max_length": caption_length,
        "pred_sigma": _shape(shapes, "final_layer.linear.weight", 2)[0] == patch**2 * in_channels * 2,
        "qk_norm": True,
        "skip_y_embedder": False,
    }
    for name, value in found.items():
        stated = config.get(name, value)
        if (tuple(stated) if isinstance(stated, list) else stated) != value:
            raise ConfigError(f"config.json says {name}={stated} but the tensors say {value}: they are not of the same model")
    return {
        "in_channels": in_channels,
        "out_channels": _shape(shapes, "final_layer.linear.weight", 2)[0] // patch**2,
        "num_attention_heads": found["num_heads"],
        "attention_head_dim": head_dim,
        "num_layers": depth,
        "patch_size": patch,
        "mlp_ratio": found["mlp_ratio"],
        "caption_channels": caption_channels,
        "caption_length": caption_length,
        "base_size": config.get("input_sq_size", 512),
    }


def vae_settings(shapes: Shapes, config: Mapping[str, Any]) -> dict[str, Any]:
    """The released settings; the tensors' shapes prove that they are meant."""
    if newer := [name for name in _NEWER if config.get(name) is not None]:
        raise ConfigError(f"config.json has {newer[0]}, which only Open-Sora 1.3 has: fetch hpcai-tech/OpenSora-VAE-v1.2")
    if config.get("micro_frame_size", CHUNK_FRAMES) != CHUNK_FRAMES:
        raise ConfigError(f"config.json says micro_frame_size={config['micro_frame_size']}: this is not Open-Sora 1.2")
    return {}


def _shape(shapes: Shapes, name: str, dimensions: int) -> tuple[int, ...]:
    shape = shapes.get(name)
    if shape is None or len(shape) != dimensions:
        raise ConfigError(f"{name} is {'missing' if shape is None else f'of shape {shape}'}: this is not Open-Sora 1.2")
    return shape


CONVERSIONS = (
    Conversion(
        part="transformer",
        model_class="phys_pipeline.models.stdit3:STDiT3Transformer3DModel",
        marker="spatial_blocks.0.attn.qkv.weight",
        key_map=TRANSFORMER_KEYS,
        config=transformer_settings,
    ),
    Conversion(
        part="vae",
        model_class="phys_pipeline.models.open_sora_vae:AutoencoderKLOpenSora",
        marker="temporal_vae.encoder.conv_in.conv.weight",
        key_map=VAE_KEYS,
        config=vae_settings,
    ),
)

FILES: Mapping[str, Mapping[str, Any]] = {
    "model_index.json": {
        "_class_name": "OpenSoraPipeline",
        "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"],
        "text_encoder": ["transformers", "T5EncoderModel"],
        "tokenizer": ["transformers", "T5Tokenizer"],
        "transformer": ["phys_pipeline.models.stdit3", "STDiT3Transformer3DModel"],
        "vae": ["phys_pipeline.models.open_sora_vae", "AutoencoderKLOpenSora"],
    },
    "scheduler/scheduler_config.json": {
        "_class_name": "FlowMatchEulerDiscreteScheduler",
        "num_train_timesteps": 1000,
        "shift": 1.0,
    },
    "phys_pipeline.json": {"family": "open_sora_1_2"},
}
PARTS: Mapping[str, str] = {
    "transformer": "phys-pipeline convert of hpcai-tech/OpenSora-STDiT-v3",
    "vae": "phys-pipeline convert of hpcai-tech/OpenSora-VAE-v1.2",
    "text_encoder": "the weights and config.json of DeepFloyd/t5-v1_1-xxl",
    "tokenizer": "the tokenizer files of DeepFloyd/t5-v1_1-xxl",
}
