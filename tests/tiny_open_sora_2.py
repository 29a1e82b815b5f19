"""Open-Sora 2.0 in small: the golden transformer, a random pipeline of every part, and its folder. Nothing is downloaded.

The text path has the real T5 tokenizer before a random encoder.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import golden_data
import torch
from tiny import tiny_clip_tokenizer

T5_TOKENIZER = golden_data.FOLDER / "t5_tokenizer"

# the golden files' transformer, in diffusers' words: tokens of 2x2 latents beside those of the given latents and their mask
_ORIGINAL = golden_data.config("opensora2_tiny")
GOLDEN_CONFIG: dict[str, Any] = {
    "patch_size": 1,
    "in_channels": 2 * _ORIGINAL["in_channels"] + _ORIGINAL["patch_size"] ** 2,
    "out_channels": _ORIGINAL["in_channels"],
    "num_layers": _ORIGINAL["depth"],
    "num_single_layers": _ORIGINAL["depth_single_blocks"],
    "attention_head_dim": _ORIGINAL["hidden_size"] // _ORIGINAL["num_heads"],
    "num_attention_heads": _ORIGINAL["num_heads"],
    "joint_attention_dim": _ORIGINAL["context_in_dim"],
    "pooled_projection_dim": _ORIGINAL["vec_in_dim"],
    "guidance_embeds": _ORIGINAL["guidance_embed"],
    "axes_dims_rope": tuple(_ORIGINAL["axes_dim"]),
}
TINY_CONFIG: dict[str, Any] = {
    **GOLDEN_CONFIG, "num_layers": 1, "num_single_layers": 1, "num_attention_heads": 2, "joint_attention_dim": 16,
    "pooled_projection_dim": 8,
}  # fmt: skip
GENERATION: dict[str, Any] = {
    "num_frames": 5, "height": 16, "width": 16, "fps": 8, "num_inference_steps": 2, "guidance_scale": 7.5,
    "max_sequence_length": 24,
}  # fmt: skip


def golden() -> dict[str, torch.Tensor]:
    return golden_data.group("opensora2_tiny", "")


def golden_weights(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The original state dict among the golden tensors."""
    return {name.removeprefix("weights."): value for name, value in tensors.items() if name.startswith("weights.")}


def golden_transformer(tensors: dict[str, torch.Tensor]):
    """The golden weights, converted, in diffusers' class."""
    from diffusers import FluxTransformer2DModel

    from phys_pipeline.models.open_sora_2_conversion import transformer_key_map

    model = FluxTransformer2DModel(**GOLDEN_CONFIG)
    model.load_state_dict(transformer_key_map(head_dim=16, latent_channels=4).forward(golden_weights(tensors)))
    return model.eval()


def tiny_transformer(seed: int = 0):
    from diffusers import FluxTransformer2DModel

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return FluxTransformer2DModel(**TINY_CONFIG).eval()


def t5_tokenizer():
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(T5_TOKENIZER)


def tiny_text_encoders(config: dict[str, Any], tokenizer, tokenizer_2, seed: int = 0):
    from transformers import CLIPTextConfig, CLIPTextModel, T5Config, T5EncoderModel

    t5 = T5Config(
        vocab_size=32128, d_model=config["joint_attention_dim"], d_kv=4, d_ff=16, num_layers=1, num_heads=2,
        feed_forward_proj="gated-gelu", dropout_rate=0.0,
    )  # fmt: skip
    clip = CLIPTextConfig(
        vocab_size=len(tokenizer_2), hidden_size=config["pooled_projection_dim"], intermediate_size=16, num_hidden_layers=1,
        num_attention_heads=2, bos_token_id=tokenizer_2.bos_token_id, eos_token_id=tokenizer_2.eos_token_id,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return T5EncoderModel(t5).eval(), CLIPTextModel(clip).eval()


def tiny_pipeline(seed: int = 0, transformer=None):
    """An ``OpenSora2Pipeline`` with random weights, around ``transformer`` if one is given."""
    from diffusers import FlowMatchEulerDiscreteScheduler
    from tiny import tiny_vae

    from phys_pipeline.pipelines.open_sora_2 import OpenSora2Pipeline

    transformer = transformer or tiny_transformer(seed)
    tokenizer, tokenizer_2 = t5_tokenizer(), tiny_clip_tokenizer()
    text_encoder, text_encoder_2 = tiny_text_encoders(transformer.config, tokenizer, tokenizer_2, seed)
    pipeline = OpenSora2Pipeline(
        text_encoder=text_encoder, tokenizer=tokenizer, text_encoder_2=text_encoder_2, tokenizer_2=tokenizer_2,
        transformer=transformer, vae=tiny_vae(seed), scheduler=FlowMatchEulerDiscreteScheduler(),
    )  # fmt: skip
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def save_tiny(folder: str | Path, pipeline=None, **generation: Any) -> Path:
    """Write the tiny pipeline and its ``phys_pipeline.json``; ``generation`` overrides the defaults stored there."""
    folder = Path(folder)
    (pipeline or tiny_pipeline()).save_pretrained(folder)
    weights = (folder / "transformer" / "diffusion_pytorch_model.safetensors").read_bytes()
    description = {
        "family": "open_sora_2",
        "revision": hashlib.sha256(weights).hexdigest()[:16],
        "generation": {**GENERATION, **generation},
    }
    (folder / "phys_pipeline.json").write_text(json.dumps(description, indent=2, sort_keys=True) + "\n")
    return folder
