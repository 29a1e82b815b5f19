"""A random Open-Sora 1.2 pipeline, built in memory: the transformer with the golden weights, T5's real tokenizer."""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import golden_data
import torch

CAPTION_LENGTH, CAPTION_CHANNELS = 10, 48  # of the golden transformer
TOKENIZER = golden_data.FOLDER / "t5_tokenizer"
SPATIAL: dict[str, Any] = {
    "in_channels": 3, "out_channels": 3, "latent_channels": 4, "layers_per_block": 1, "norm_num_groups": 4,
    "block_out_channels": (8, 8, 8, 8), "sample_size": 32,
    "down_block_types": ("DownEncoderBlock2D",) * 4, "up_block_types": ("UpDecoderBlock2D",) * 4,
}  # fmt: skip
GENERATION: dict[str, Any] = {
    "max_sequence_length": CAPTION_LENGTH, "num_frames": 17, "height": 16, "width": 16, "fps": 8,
    "num_inference_steps": 2, "guidance_scale": 4.0,
}  # fmt: skip


@lru_cache(maxsize=1)
def golden_weights() -> dict[str, torch.Tensor]:
    """The golden transformer's weights under their original names."""
    return golden_data.group("stdit3_tiny", "weights.")


def tiny_transformer():
    """The golden transformer, through the converter's key map."""
    from phys_pipeline.models.open_sora_conversion import TRANSFORMER_KEYS, transformer_settings
    from phys_pipeline.models.stdit3 import STDiT3Transformer3DModel

    original = golden_weights()
    settings = transformer_settings({k: tuple(v.shape) for k, v in original.items()}, golden_data.config("stdit3_tiny"))
    model = STDiT3Transformer3DModel(**settings)
    model.load_state_dict({key: value.clone() for key, value in TRANSFORMER_KEYS.forward(original).items()})
    return model.eval()


def tiny_vae(seed: int = 0, spatial: dict[str, Any] | None = None):
    """Random, but for the golden half along time."""
    from phys_pipeline.models.open_sora_vae import AutoencoderKLOpenSora

    c = golden_data.config("opensora_vae_temporal_tiny")
    widths = tuple(c["filters"] * m for m in c["channel_multipliers"])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        vae = AutoencoderKLOpenSora(
            spatial or SPATIAL,
            c["in_out_channels"],
            widths,
            tuple(c["temporal_downsample"]),
            c["num_res_blocks"],
            c["num_groups"],
        )
    vae.temporal_vae.load_state_dict(golden_data.group("opensora_vae_temporal_tiny", "weights."))
    return vae.eval()


def tiny_text_encoder(seed: int = 0):
    from transformers import T5Config, T5EncoderModel

    config = T5Config(
        vocab_size=32128, d_model=CAPTION_CHANNELS, d_kv=8, d_ff=64, num_layers=1, num_heads=2, feed_forward_proj="gated-gelu"
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return T5EncoderModel(config).eval()


def tiny_pipeline():
    """An ``OpenSoraPipeline`` in float32 on the CPU."""
    from diffusers import FlowMatchEulerDiscreteScheduler
    from transformers import AutoTokenizer

    from phys_pipeline.pipelines.open_sora import OpenSoraPipeline

    pipeline = OpenSoraPipeline(
        tokenizer=AutoTokenizer.from_pretrained(TOKENIZER), text_encoder=tiny_text_encoder(), vae=tiny_vae(),
        transformer=tiny_transformer(), scheduler=FlowMatchEulerDiscreteScheduler(),
    )  # fmt: skip
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def save_tiny(folder: str | Path, pipeline=None, **generation: Any) -> Path:
    """Write the tiny pipeline and its ``phys_pipeline.json``."""
    folder = Path(folder)
    (pipeline or tiny_pipeline()).save_pretrained(folder)
    weights = (folder / "transformer" / "diffusion_pytorch_model.safetensors").read_bytes()
    description = {
        "family": "open_sora_1_2",
        "revision": hashlib.sha256(weights).hexdigest()[:16],
        "generation": {**GENERATION, **generation},
    }
    (folder / "phys_pipeline.json").write_text(json.dumps(description, indent=2, sort_keys=True) + "\n")
    return folder
