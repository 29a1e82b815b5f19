"""Random models of the classes that the metrics load, a few thousand parameters each, saved as folders without any download."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from tiny import tiny_clip_tokenizer

from phys_pipeline.evaluation.clip import DecodedClip
from phys_pipeline.evaluation.sample import VideoSample

LABELS = ("riding a horse", "swimming", "playing chess", "juggling balls", "mowing lawn", "welding")
_VISION = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "patch_size": 8}


def seeded(make):
    """``make()`` with a random state of its own."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return make().eval()


def save_clip(folder: Path) -> Path:
    """CLIP for pictures of 32 pixels, with the byte tokenizer."""
    from transformers import CLIPConfig, CLIPModel

    tokenizer = tiny_clip_tokenizer()
    text = {
        "vocab_size": len(tokenizer), "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1,
        "num_attention_heads": 2, "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id,
    }  # fmt: skip
    config = CLIPConfig(text_config=text, vision_config={**_VISION, "image_size": 32}, projection_dim=8)
    seeded(lambda: CLIPModel(config)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def save_blip(folder: Path) -> Path:
    """BLIP's captioner for pictures of 32 pixels, with a word tokenizer."""
    from transformers import BertTokenizer, BlipConfig, BlipForConditionalGeneration

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[DEC]", "a", "red", "square", "moves", "right", "dog", "runs", "fast"]
    tokenizer = BertTokenizer(vocab={word: number for number, word in enumerate(words)})
    text = {
        "vocab_size": len(words), "hidden_size": 16, "encoder_hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1,
        "num_attention_heads": 2, "max_position_embeddings": 64, "bos_token_id": 5, "sep_token_id": 3, "pad_token_id": 0,
    }  # fmt: skip
    config = BlipConfig(text_config=text, vision_config={**_VISION, "image_size": 32}, projection_dim=8)
    seeded(lambda: BlipForConditionalGeneration(config)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def save_blip2(folder: Path) -> Path:
    """BLIP-2 with an OPT of one layer for pictures of 32 pixels, with a GPT-2 tokenizer over single characters."""
    from transformers import Blip2Config, Blip2ForConditionalGeneration, GPT2Tokenizer, OPTConfig

    letters = [chr(code) for code in range(33, 127)] + ["\u0120"]
    vocab = {token: number for number, token in enumerate(["<s>", "<pad>", "</s>", *letters, "<image>"])}
    tokenizer = GPT2Tokenizer(vocab=vocab, merges=[], bos_token="</s>", eos_token="</s>", unk_token="</s>", pad_token="<pad>")
    text = OPTConfig(
        vocab_size=len(vocab), hidden_size=16, ffn_dim=16, num_hidden_layers=1, num_attention_heads=2, word_embed_proj_dim=16,
        max_position_embeddings=64, bos_token_id=2, eos_token_id=2, pad_token_id=1,
    )  # fmt: skip
    qformer = {
        "hidden_size": 16, "encoder_hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
        "vocab_size": 10,
    }  # fmt: skip
    config = Blip2Config(
        vision_config={**_VISION, "image_size": 32}, qformer_config=qformer, text_config=text.to_dict(), num_query_tokens=4,
        image_token_index=vocab["<image>"],
    )  # fmt: skip
    seeded(lambda: Blip2ForConditionalGeneration(config)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def save_videomae(folder: Path) -> Path:
    """VideoMAE's classifier of 16 frames of 32 pixels into ``LABELS``."""
    from transformers import VideoMAEConfig, VideoMAEForVideoClassification

    config = VideoMAEConfig(
        image_size=32, patch_size=16, num_frames=16, tubelet_size=2, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=16, id2label=dict(enumerate(LABELS)), label2id={label: i for i, label in enumerate(LABELS)},
        initializer_range=1.0,
    )  # fmt: skip
    seeded(lambda: VideoMAEForVideoClassification(config)).save_pretrained(folder)
    return folder


def save_sdxl(folder: Path) -> Path:
    """An SDXL pipeline that makes pictures of 16 pixels."""
    from diffusers import AutoencoderKL, EulerDiscreteScheduler, StableDiffusionXLPipeline, UNet2DConditionModel
    from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection

    tokenizer = tiny_clip_tokenizer()
    text = CLIPTextConfig(
        vocab_size=len(tokenizer), hidden_size=8, intermediate_size=8, num_hidden_layers=2, num_attention_heads=2,
        projection_dim=8, bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    pipeline = StableDiffusionXLPipeline(
        vae=seeded(lambda: AutoencoderKL(
            block_out_channels=(8, 8), down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2,
            latent_channels=4, norm_num_groups=4, sample_size=16,
        )),
        text_encoder=seeded(lambda: CLIPTextModel(text)),
        text_encoder_2=seeded(lambda: CLIPTextModelWithProjection(text)),
        tokenizer=tokenizer,
        tokenizer_2=tokenizer,
        unet=seeded(lambda: UNet2DConditionModel(
            sample_size=8, block_out_channels=(8, 8), layers_per_block=1, norm_num_groups=4, attention_head_dim=(2, 2),
            down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"), up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
            addition_embed_type="text_time", addition_time_embed_dim=4, transformer_layers_per_block=(1, 1),
            projection_class_embeddings_input_dim=8 + 6 * 4, cross_attention_dim=16,
        )),
        scheduler=EulerDiscreteScheduler(),
    )  # fmt: skip
    pipeline.save_pretrained(folder)
    return folder


def save_in_hub_cache(folder: Path, cache: Path, repository: str, revision: str) -> Path:
    """Copy a model's folder into a cache in the Hub's layout; returns the snapshot."""
    snapshot = cache / f"models--{repository.replace('/', '--')}" / "snapshots" / revision
    snapshot.mkdir(parents=True)
    for file in folder.iterdir():
        (snapshot / file.name).write_bytes(file.read_bytes())
    return snapshot


def forget_tensor(folder: Path, ending: str) -> None:
    """Remove one tensor from a folder's weights."""
    from safetensors.torch import load_file, save_file

    file = folder / "model.safetensors"
    tensors = load_file(file)
    del tensors[next(name for name in tensors if name.endswith(ending))]
    save_file(tensors, file, metadata={"format": "pt"})


def clip_of(frames: np.ndarray, fps: float | None = 8.0, prompt: str = "a red square moves right", **sample) -> DecodedClip:
    """A decoded clip of ``uint8 (T, H, W, 3)``; flow is never asked for."""
    video = VideoSample("0001", "baseline", prompt, frames=frames, fps=fps, **sample)
    return DecodedClip(video, video.decode(), None)


def noise(frames: int, height: int = 40, width: int = 56, seed: int = 0) -> np.ndarray:
    """Random frames, all different."""
    return np.random.default_rng(seed).integers(0, 256, (frames, height, width, 3), dtype=np.uint8)
