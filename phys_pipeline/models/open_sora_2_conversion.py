"""Open-Sora 2.0's official files in the layouts of diffusers' ``FluxTransformer2DModel`` and ``AutoencoderKLHunyuanVideo``.

Three layouts differ beside the names. The rotary embedding turns channel i with i + 64 of each head, diffusers' turns 2i with
2i + 1: so the rows of queries, keys and their norms are reordered within each head (a model left as it is gives plausible
garbage). The last modulation's halves are (shift, scale), diffusers' (scale, shift). Two input layers, whose outputs are added,
are one here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from phys_pipeline.errors import ConfigError
from phys_pipeline.models.conversion import Conversion, Shapes
from phys_pipeline.models.key_map import KeyMap, Rule, interleave, swap_halves
from phys_pipeline.models.open_sora_2 import TRANSFORMER_CONFIG

_CHANNELS = 16
_DEEP_COMPRESSION_INPUT = 128  # the variant with the deep-compression autoencoder: 128 latent channels, one latent a token


def transformer_key_map(head_dim: int = 128, latent_channels: int = _CHANNELS, mlp_ratio: int = 4) -> KeyMap:
    """Rules from the official names to diffusers'."""
    rotary = interleave(head_dim)
    columns = (latent_channels, latent_channels + 1)
    rules = [
        Rule(("img_in.weight", "cond_in.weight"), "x_embedder.weight", shares=columns, join="columns"),
        Rule(("img_in.bias", "cond_in.bias"), "x_embedder.bias", join="sum"),
        Rule("txt_in.{p}", "context_embedder.{p}"),
        Rule("final_layer.adaLN_modulation.1.{p}", "norm_out.linear.{p}", order=swap_halves()),
        Rule("final_layer.linear.{p}", "proj_out.{p}"),
    ]
    for original, embedder in (("time_in", "timestep_embedder"), ("vector_in", "text_embedder")):
        rules += [
            Rule(f"{original}.in_layer.{{p}}", f"time_text_embed.{embedder}.linear_1.{{p}}"),
            Rule(f"{original}.out_layer.{{p}}", f"time_text_embed.{embedder}.linear_2.{{p}}"),
        ]
    for side, names, norm, out, feed_forward, modulation in (
        ("img", "to_{}", "norm_{}", "to_out.0", "ff", "norm1"),
        ("txt", "add_{}_proj", "norm_added_{}", "to_add_out", "ff_context", "norm1_context"),
    ):
        own, block = f"double_blocks.{{i}}.{side}", "transformer_blocks.{i}"
        query, key, value = (f"{block}.attn.{names.format(name)}.{{p}}" for name in "qkv")
        rules += [
            Rule(f"{own}_mod.lin.{{p}}", f"{block}.{modulation}.linear.{{p}}"),
            Rule(f"{own}_attn.q_proj.{{p}}", query, order=rotary),
            Rule(f"{own}_attn.k_proj.{{p}}", key, order=rotary),
            Rule(f"{own}_attn.v_proj.{{p}}", value),
            Rule(f"{own}_attn.norm.query_norm.scale", f"{block}.attn.{norm.format('q')}.weight", order=rotary),
            Rule(f"{own}_attn.norm.key_norm.scale", f"{block}.attn.{norm.format('k')}.weight", order=rotary),
            Rule(f"{own}_attn.proj.{{p}}", f"{block}.attn.{out}.{{p}}"),
            Rule(f"{own}_mlp.0.{{p}}", f"{block}.{feed_forward}.net.0.proj.{{p}}"),
            Rule(f"{own}_mlp.2.{{p}}", f"{block}.{feed_forward}.net.2.{{p}}"),
        ]
    own, block = "single_blocks.{i}", "single_transformer_blocks.{i}"
    rules += [
        Rule(f"{own}.modulation.lin.{{p}}", f"{block}.norm.linear.{{p}}"),
        Rule(f"{own}.q_proj.{{p}}", f"{block}.attn.to_q.{{p}}", order=rotary),
        Rule(f"{own}.k_proj.{{p}}", f"{block}.attn.to_k.{{p}}", order=rotary),
        Rule(f"{own}.v_mlp.{{p}}", (f"{block}.attn.to_v.{{p}}", f"{block}.proj_mlp.{{p}}"), shares=(1, mlp_ratio)),
        Rule(f"{own}.norm.query_norm.scale", f"{block}.attn.norm_q.weight", order=rotary),
        Rule(f"{own}.norm.key_norm.scale", f"{block}.attn.norm_k.weight", order=rotary),
        Rule(f"{own}.linear2.{{p}}", f"{block}.proj_out.{{p}}"),
    ]
    return KeyMap(tuple(rules))


def _transformer_settings(shapes: Shapes, config: Mapping[str, Any]) -> dict[str, Any]:
    """The released model's settings, the only ones; ConfigError for its look-alikes, by shape or by a config.json beside it."""
    if shapes["img_in.weight"][-1] == _DEEP_COMPRESSION_INPUT:
        raise ConfigError("this is the variant for the deep-compression autoencoder (128 latent channels), which diffusers "
                          "lacks: use Open_Sora_v2.safetensors of hpcai-tech/Open-Sora-v2")  # fmt: skip
    if config.get("fused_qkv") or config.get("use_liger_rope") is False:
        raise ConfigError("config.json says fused_qkv or no use_liger_rope: such weights are for the other rotary layout; use "
                          "Open_Sora_v2.safetensors of hpcai-tech/Open-Sora-v2")  # fmt: skip
    return dict(TRANSFORMER_CONFIG)


CONVERSIONS = (
    Conversion(
        part="transformer",
        model_class="diffusers:FluxTransformer2DModel",
        marker="cond_in.weight",
        key_map=transformer_key_map(),
        config=_transformer_settings,
    ),
    Conversion(  # the names are diffusers' own
        part="vae",
        model_class="diffusers:AutoencoderKLHunyuanVideo",
        marker="encoder.conv_in.conv.weight",
        key_map=KeyMap((Rule("{rest}", "{rest}"),)),
        config=lambda shapes, config: {},
    ),
)

# the Hub repository holds FLUX.1's files too, which have a licence of their own: nothing but these is fetched or converted
HUB_FILES = ("Open_Sora_v2.safetensors", "hunyuan_vae.safetensors")
FILES: Mapping[str, Mapping[str, Any]] = {
    "model_index.json": {
        "_class_name": "OpenSora2Pipeline",
        "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"],
        "text_encoder": ["transformers", "T5EncoderModel"],
        "text_encoder_2": ["transformers", "CLIPTextModel"],
        "tokenizer": ["transformers", "T5Tokenizer"],
        "tokenizer_2": ["transformers", "CLIPTokenizer"],
        "transformer": ["diffusers", "FluxTransformer2DModel"],
        "vae": ["diffusers", "AutoencoderKLHunyuanVideo"],
    },
    "scheduler/scheduler_config.json": {
        "_class_name": "FlowMatchEulerDiscreteScheduler",
        "num_train_timesteps": 1000,
        "shift": 1.0,
    },
    "phys_pipeline.json": {"family": "open_sora_2"},
}
PARTS: Mapping[str, str] = {
    "transformer": "phys-pipeline convert of Open_Sora_v2.safetensors",
    "vae": "phys-pipeline convert of hunyuan_vae.safetensors",
    "text_encoder": "the weights and config.json of google/t5-v1_1-xxl",
    "tokenizer": "the tokenizer files of google/t5-v1_1-xxl",
    "text_encoder_2": "the weights and config.json of openai/clip-vit-large-patch14",
    "tokenizer_2": "the tokenizer files of openai/clip-vit-large-patch14",
}
