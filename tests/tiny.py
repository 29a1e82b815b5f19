"""A random HunyuanVideo pipeline of about 120,000 parameters, built in memory without any download.

``tiny_pipeline()`` has every part of the real one (two text encoders with byte-level tokenizers, the 4x/8x video
autoencoder, the transformer with its token refiner), so tests run the real code on it. ``save_tiny(folder)`` writes it in
the diffusers layout with the project's ``phys_pipeline.json`` beside ``model_index.json``.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import torch

GENERATION: dict[str, Any] = {
    "prompt_template": {"template": "{}", "crop_start": 0},
    "max_sequence_length": 16,
    "num_frames": 5,
    "height": 16,
    "width": 16,
    "fps": 8,
    "num_inference_steps": 2,
    "guidance_scale": 6.0,
    "true_cfg_scale": 1.0,
}


def tiny_tokenizer():
    """Llama-style tokenizer: every printable ASCII character is a token, other text falls back to bytes; no start token,
    but a leading space, so "ab" is three tokens and "" is none."""
    from transformers import LlamaTokenizer

    vocab: dict[str, int] = {"<pad>": 0, "<s>": 1, "</s>": 2, "<unk>": 3}
    for byte in range(256):
        vocab[f"<0x{byte:02X}>"] = len(vocab)
    for character in ["\u2581", *map(chr, range(33, 127))]:
        vocab[character] = len(vocab)
    tokenizer = LlamaTokenizer(
        vocab=vocab, merges=[], bos_token="<s>", eos_token="</s>", unk_token="<unk>", pad_token="<pad>", add_bos_token=False
    )
    tokenizer.padding_side = "right"
    return tokenizer


def tiny_clip_tokenizer():
    """CLIP tokenizer over the byte alphabet, without merges."""
    from transformers import CLIPTokenizer

    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]  # GPT-2's alphabet: other bytes move up to 256 and on
    alphabet = [chr(b) for b in printable] + [chr(256 + i) for i in range(256 - len(printable))]
    vocab = {token: i for i, token in enumerate([*alphabet, *(a + "</w>" for a in alphabet), "<|startoftext|>", "<|endoftext|>"])}
    return CLIPTokenizer(vocab=vocab, merges=[], model_max_length=77)


def tiny_transformer(seed: int = 0, guidance_embeds: bool = True, num_layers: int = 1, num_single_layers: int = 1, **config: Any):
    from diffusers import HunyuanVideoTransformer3DModel

    settings: dict[str, Any] = {
        "in_channels": 4, "out_channels": 4, "num_attention_heads": 2, "attention_head_dim": 10,
        "num_layers": num_layers, "num_single_layers": num_single_layers, "num_refiner_layers": 1,
        "patch_size": 1, "patch_size_t": 1, "guidance_embeds": guidance_embeds,
        "text_embed_dim": 16, "pooled_projection_dim": 8, "rope_axes_dim": (2, 4, 4),
    }  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return HunyuanVideoTransformer3DModel(**{**settings, **config}).eval()


def tiny_vae(seed: int = 0):
    from diffusers import AutoencoderKLHunyuanVideo

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return AutoencoderKLHunyuanVideo(
            latent_channels=4, block_out_channels=(8, 8, 8, 8), layers_per_block=1, norm_num_groups=4
        ).eval()  # fmt: skip


def tiny_text_encoders(tokenizer, tokenizer_2, seed: int = 0):
    from transformers import CLIPTextConfig, CLIPTextModel, LlamaConfig, LlamaModel

    llama = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=16, intermediate_size=32, num_hidden_layers=3, num_attention_heads=2,
        num_key_value_heads=2, pad_token_id=0, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    clip = CLIPTextConfig(
        vocab_size=len(tokenizer_2), hidden_size=8, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        projection_dim=8, bos_token_id=tokenizer_2.bos_token_id, eos_token_id=tokenizer_2.eos_token_id,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LlamaModel(llama).eval(), CLIPTextModel(clip).eval()


def tiny_pipeline(seed: int = 0, guidance_embeds: bool = True, **transformer: Any):
    """A ``HunyuanVideoPipeline`` with random weights; ``transformer`` overrides that model's config."""
    from diffusers import FlowMatchEulerDiscreteScheduler, HunyuanVideoPipeline

    tokenizer, tokenizer_2 = tiny_tokenizer(), tiny_clip_tokenizer()
    text_encoder, text_encoder_2 = tiny_text_encoders(tokenizer, tokenizer_2, seed)
    pipeline = HunyuanVideoPipeline(
        text_encoder=text_encoder,
        tokenizer=tokenizer,
        transformer=tiny_transformer(seed, guidance_embeds, **transformer),
        vae=tiny_vae(seed),
        scheduler=FlowMatchEulerDiscreteScheduler(shift=7.0),
        text_encoder_2=text_encoder_2,
        tokenizer_2=tokenizer_2,
    )
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def save_tiny(folder: str | Path, pipeline=None, **generation: Any) -> Path:
    """Write the tiny pipeline and its ``phys_pipeline.json``; ``generation`` overrides the defaults stored there."""
    folder = Path(folder)
    (pipeline or tiny_pipeline()).save_pretrained(folder)
    weights = (folder / "transformer" / "diffusion_pytorch_model.safetensors").read_bytes()
    description = {
        "family": "hunyuan_video",
        "revision": hashlib.sha256(weights).hexdigest()[:16],
        "generation": {**GENERATION, **generation},
    }
    (folder / "phys_pipeline.json").write_text(json.dumps(description, indent=2, sort_keys=True) + "\n")
    return folder


def save_clips(folder: str | Path, count: int, frames: int) -> Path:
    """A data folder: ``count`` noise clips of 16x16 pixels, each with its caption in a .txt file."""
    from phys_pipeline.media import Video, write_video

    folder = Path(folder)
    folder.mkdir(parents=True)
    for i in range(count):
        video = torch.rand(3, frames, 16, 16, generator=torch.Generator().manual_seed(i))
        write_video(folder / f"{i}.mp4", Video.from_tensor(video, 8.0))
        (folder / f"{i}.txt").write_text(f"clip number {i}")
    return folder
