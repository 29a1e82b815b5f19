"""Tiny MVDiT models: the golden one, and a random pipeline for the trainer, built without any download."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import golden_data
import torch
from tiny_open_sora import SPATIAL, TOKENIZER, tiny_text_encoder

GOLDEN = "mvdit_tiny"


def golden_transformer(variant: str = "a"):
    """The golden weights, converted, with the settings of variant ``a`` or ``b``."""
    from phys_pipeline.models.mvdit import MVDiTTransformer3DModel
    from phys_pipeline.models.mvdit_conversion import TRANSFORMER_KEYS, transformer_settings

    weights = golden_data.group(GOLDEN, "weights.")
    settings = transformer_settings({k: tuple(v.shape) for k, v in weights.items()}, golden_data.config(GOLDEN)[variant])
    model = MVDiTTransformer3DModel(**settings)
    model.load_state_dict(TRANSFORMER_KEYS.forward(weights))
    return model.eval()


def golden_inputs(case: str) -> dict[str, Any]:
    """Forward arguments of a golden case."""
    given = golden_data.group(GOLDEN, f"inputs.{case}.")
    return {
        "hidden_states": given["x"],
        "timestep": given["timestep"],
        "encoder_hidden_states": given["y"][:, 0],
        "encoder_attention_mask": given["mask"],
    }


def tiny_transformer(seed: int = 0, **settings: Any):
    """Two blocks, with everything that starts at zero made random, so that every path matters."""
    from phys_pipeline.models.mvdit import MVDiTTransformer3DModel

    small: dict[str, Any] = {
        "num_attention_heads": 2, "attention_head_dim": 12, "num_layers": 2, "caption_channels": 48, "max_sequence_length": 24,
        "sample_frames": 5, "sample_height": 2, "sample_width": 2,
    }  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = MVDiTTransformer3DModel(**{**small, **settings})
        for parameter in model.parameters():
            if not parameter.any():
                torch.nn.init.normal_(parameter, std=0.2)
    return model.eval()


def tiny_vae(seed: int = 0):
    """Stable Diffusion's kind of autoencoder: eight pixels a latent."""
    from diffusers import AutoencoderKL

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return AutoencoderKL(**SPATIAL).eval()


def tiny_pipeline(seed: int = 0, **transformer: Any):
    """An ``MVDiTPipeline`` with random weights and the real tokenizer; prompts have 24 tokens."""
    from transformers import AutoTokenizer

    from phys_pipeline.pipelines.mvdit import MVDiTPipeline, mvdit_scheduler

    pipeline = MVDiTPipeline(
        tokenizer=AutoTokenizer.from_pretrained(TOKENIZER),
        text_encoder=tiny_text_encoder(seed),
        transformer=tiny_transformer(seed, **transformer),
        vae=tiny_vae(seed),
        scheduler=mvdit_scheduler(),
    )
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def save_tiny(folder: str | Path, pipeline=None, **generation: Any) -> Path:
    """Write the tiny pipeline and its ``phys_pipeline.json``; ``generation`` overrides the defaults stored there."""
    folder = Path(folder)
    (pipeline or tiny_pipeline()).save_pretrained(folder)
    small = {"max_sequence_length": 24, "num_frames": 5, "height": 16, "width": 16, "num_inference_steps": 3}
    description = {"family": "mvdit", "revision": "tiny", "generation": {**small, **generation}}
    (folder / "phys_pipeline.json").write_text(json.dumps(description, indent=2, sort_keys=True) + "\n")
    return folder
