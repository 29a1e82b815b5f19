"""Tiny MVDiT models: the golden one, and a random pipeline for the trainer, built without any download."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import golden_data
import torch

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
        "num_attention_heads": 2, "attention_head_dim": 12, "num_layers": 2, "caption_channels": 16, "max_sequence_length": 24,
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
    """Stable Diffusion's kind of autoencoder with eight channels everywhere: eight pixels a latent."""
    from diffusers import AutoencoderKL

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return AutoencoderKL(
            block_out_channels=(8,) * 4, down_block_types=("DownEncoderBlock2D",) * 4, up_block_types=("UpDecoderBlock2D",) * 4,
            layers_per_block=1, norm_num_groups=4, latent_channels=4,
        ).eval()  # fmt: skip


def t5_tokenizer():
    """The real one, 32,100 pieces, from its own three files."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(golden_data.FOLDER / "t5_tokenizer")


def tiny_t5(vocabulary: int, seed: int = 0):
    from transformers import T5Config, T5EncoderModel

    config = T5Config(
        vocab_size=vocabulary, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2, feed_forward_proj="gated-gelu"
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return T5EncoderModel(config).eval()


def tiny_pipeline(seed: int = 0, **transformer: Any):
    """An ``MVDiTPipeline`` with random weights and the real tokenizer; prompts have 24 tokens."""
    from phys_pipeline.pipelines.mvdit import MVDiTPipeline, mvdit_scheduler

    tokenizer = t5_tokenizer()
    pipeline = MVDiTPipeline(
        tokenizer=tokenizer,
        text_encoder=tiny_t5(len(tokenizer), seed),
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
