"""Official files of Open-Sora 1.2 (hpcai-tech/OpenSora-STDiT-v3, hpcai-tech/OpenSora-VAE-v1.2) as diffusers folders.

The same names with other shapes are Open-Sora 1.3 (window attention, 16 latent channels), which this refuses.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from phys_pipeline.errors import ConfigError
from phys_pipeline.models.conversion import Conversion, Shapes, shape_of
from phys_pipeline.models.key_map import KeyMap, Rule
from phys_pipeline.models.open_sora_vae import CHUNK_FRAMES
from phys_pipeline.models.pixart_keys import OUTER_RULES, cross_attention_rules, feed_forward_rules, self_attention_rules

_NEWER = ("kernel_size", "use_spatial_rope")  # settings that only Open-Sora 1.3 has
_BLOCKS = (("spatial_blocks", "transformer_blocks"), ("temporal_blocks", "temporal_transformer_blocks"))


def _block_rules(old: str, new: str) -> tuple[Rule, ...]:
    source, target = f"{old}.{{i}}", f"{new}.{{i}}"
    return (
        Rule(f"{source}.scale_shift_table", f"{target}.scale_shift_table"),
        *self_attention_rules(f"{source}.attn", f"{target}.attn1"),
        Rule(f"{source}.attn.q_norm.weight", f"{target}.attn1.norm_q.weight"),
        Rule(f"{source}.attn.k_norm.weight", f"{target}.attn1.norm_k.weight"),
        *cross_attention_rules(f"{source}.cross_attn", f"{target}.attn2"),
        *feed_forward_rules(f"{source}.mlp", f"{target}.ff"),
    )


TRANSFORMER_KEYS = KeyMap(
    rules=(
        *OUTER_RULES,
        Rule("fps_embedder.mlp.0.{p}", "fps_embed.linear_1.{p}"),
        Rule("fps_embedder.mlp.2.{p}", "fps_embed.linear_2.{p}"),
        Rule("t_block.1.{p}", "time_proj.{p}"),
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
    width, in_channels, _, patch, _ = shape_of(shapes, "x_embedder.proj.weight", 5, "Open-Sora 1.2")
    (head_dim,) = shape_of(shapes, "spatial_blocks.0.attn.q_norm.weight", 1, "Open-Sora 1.2")
    caption_length, caption_channels = shape_of(shapes, "y_embedder.y_embedding", 2, "Open-Sora 1.2")
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
        "mlp_ratio": shape_of(shapes, "spatial_blocks.0.mlp.fc1.weight", 2, "Open-Sora 1.2")[0] / width,
        "caption_channels": caption_channels,
        "model_max_length": caption_length,
        "pred_sigma": shape_of(shapes, "final_layer.linear.weight", 2, "Open-Sora 1.2")[0] == patch**2 * in_channels * 2,
        "qk_norm": True,
        "skip_y_embedder": False,
    }
    for name, value in found.items():
        stated = config.get(name, value)
        if (tuple(stated) if isinstance(stated, list) else stated) != value:
            raise ConfigError(f"config.json says {name}={stated} but the tensors say {value}: they are not of the same model")
    return {
        "in_channels": in_channels,
        "out_channels": shape_of(shapes, "final_layer.linear.weight", 2, "Open-Sora 1.2")[0] // patch**2,
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
