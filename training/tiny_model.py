"""The parts of the tiny HunyuanVideo-architecture model, built from configs with no download, and its diffusers folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from diffusers import FlowMatchEulerDiscreteScheduler, HunyuanVideoTransformer3DModel
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from torch import nn
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer, LlamaConfig, LlamaModel, PreTrainedTokenizerFast

from phys_pipeline.atomic import atomic_folder
from phys_pipeline.media.synthetic import all_captions
from phys_pipeline.models.frame_autoencoder import FrameAutoencoder

MAX_TEXT_TOKENS = 32
SHIFT = 10.0  # of the timesteps: where a video this redundant is laid out is decided above sigma 0.97
# Words of ordinary video captions: the model never learns them, but a real caption then fits MAX_TEXT_TOKENS.
_CAPTION_WORDS = (
    "the an of and with in on to from toward across over through is are it camera handheld shot view close slow fast pans "
    "zooms tilts static moving person people man woman child dog cat bird car train boat toy frog ball water river sea sky "
    "tree forest grass street city house room table hand face walking running flying rolling falling spinning driving "
    "small large bright dark black grey brown orange pink video scene background left right up down"
)


@dataclass(frozen=True)
class ModelSize:
    """Widths and depths of the transformer and text encoders; ``SIZES`` holds those in use."""

    heads: int = 4
    head_dim: int = 32
    double_blocks: int = 2
    single_blocks: int = 4
    text_width: int = 64
    rope_axes: tuple[int, int, int] = (8, 12, 12)


SIZES = {"tiny": ModelSize(), "small": ModelSize(heads=6), "smoke": ModelSize(2, 12, 1, 1, 16, (4, 4, 4))}


def _corpus(captions: Sequence[str] | None) -> list[str]:
    return [*(captions or all_captions()), *(f" {word}" for word in _CAPTION_WORDS.split()), _CAPTION_WORDS]


def build_tokenizer(captions: Sequence[str] | None = None) -> PreTrainedTokenizerFast:
    """Byte-level BPE over ``captions`` (default: those of ``media.synthetic``): common words are one token, others bytes.

    Begins with ``<s>``, so that even the empty caption has a token; pads on the right.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=900, min_frequency=1, special_tokens=["<pad>", "<s>", "</s>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    tokenizer.train_from_iterator(_corpus(captions), trainer)
    begin = [("<s>", tokenizer.token_to_id("<s>"))]
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=begin)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", bos_token="<s>", eos_token="</s>", padding_side="right",
        model_max_length=256, clean_up_tokenization_spaces=False,
    )  # fmt: skip


def build_clip_tokenizer(captions: Sequence[str] | None = None) -> CLIPTokenizer:
    """A CLIP tokenizer with merges learned from ``captions`` (default as above); lower-cases, any text falls back to bytes."""
    start, end = "<|startoftext|>", "<|endoftext|>"
    learner = Tokenizer(models.BPE(end_of_word_suffix="</w>"))
    learner.normalizer = normalizers.Lowercase()
    words = pre_tokenizers.Split(Regex(r"[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"), "removed", invert=True)
    learner.pre_tokenizer = pre_tokenizers.Sequence([words, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=900, min_frequency=1, special_tokens=[start, end], initial_alphabet=alphabet, end_of_word_suffix="</w>",
        show_progress=False,
    )  # fmt: skip
    learner.train_from_iterator(_corpus(captions), trainer)
    merges = [tuple(merge) for merge in json.loads(learner.to_str())["model"]["merges"]]
    pieces = [start, end, *alphabet, *(f"{letter}</w>" for letter in alphabet), *("".join(merge) for merge in merges)]
    vocab = {piece: index for index, piece in enumerate(dict.fromkeys(pieces))}
    return CLIPTokenizer(vocab=vocab, merges=merges, model_max_length=77)  # type: ignore[arg-type]  # pairs, as tokenizers wants


def stored_tokenizers(folder: Path, captions: Sequence[str] | None = None) -> tuple[PreTrainedTokenizerFast, CLIPTokenizer]:
    """Both tokenizers from ``folder``, built and stored there at first: learning merges breaks ties differently each time."""
    if not (folder / "tokenizer_2").exists():
        build_tokenizer(captions).save_pretrained(folder / "tokenizer")
        build_clip_tokenizer(captions).save_pretrained(folder / "tokenizer_2")
    return PreTrainedTokenizerFast.from_pretrained(folder / "tokenizer"), CLIPTokenizer.from_pretrained(folder / "tokenizer_2")


def build_text_encoder(vocab_size: int, width: int, tokenizer: PreTrainedTokenizerFast) -> LlamaModel:
    """A three-layer Llama; the pipeline reads hidden state -3, the output of its first layer."""
    config = LlamaConfig(
        vocab_size=vocab_size, hidden_size=width, intermediate_size=4 * width, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=4, max_position_embeddings=256, pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id, initializer_range=0.1,
    )  # fmt: skip
    return LlamaModel(config)


def build_text_encoder_2(vocab_size: int, width: int, tokenizer: CLIPTokenizer) -> CLIPTextModel:
    """A two-layer CLIP text encoder; ``eos_token_id`` is the tokenizer's own, which is where the pooled state is read."""
    config = CLIPTextConfig(
        vocab_size=vocab_size, hidden_size=width, intermediate_size=4 * width, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings=77, projection_dim=width, pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id, initializer_factor=4.0,
    )  # fmt: skip
    return CLIPTextModel(config)


class TinyModel(nn.Module):
    """Transformer and both text encoders, trained together, with their tokenizers."""

    def __init__(
        self,
        size: ModelSize,
        latent_channels: int,
        seed: int = 0,
        tokenizers: tuple[PreTrainedTokenizerFast, CLIPTokenizer] | None = None,
    ) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.size = size
        self.tokenizer, self.tokenizer_2 = tokenizers or (build_tokenizer(), build_clip_tokenizer())
        self.text_encoder = build_text_encoder(len(self.tokenizer), size.text_width, self.tokenizer)
        self.text_encoder_2 = build_text_encoder_2(len(self.tokenizer_2), size.text_width, self.tokenizer_2)
        self.transformer = HunyuanVideoTransformer3DModel(
            in_channels=latent_channels, out_channels=latent_channels, num_attention_heads=size.heads,
            attention_head_dim=size.head_dim, num_layers=size.double_blocks, num_single_layers=size.single_blocks,
            num_refiner_layers=1, mlp_ratio=4.0, patch_size=2, patch_size_t=1, qk_norm="rms_norm", guidance_embeds=True,
            text_embed_dim=size.text_width, pooled_projection_dim=size.text_width, rope_axes_dim=size.rope_axes,
        )  # fmt: skip

    def condition(self, captions: Sequence[str]) -> dict[str, torch.Tensor]:
        """Text inputs of the transformer: those of the pipeline, but padded only to the longest caption (same result)."""
        options: dict[str, Any] = {"padding": "longest", "truncation": True, "return_tensors": "pt"}
        words = self.tokenizer(list(captions), max_length=MAX_TEXT_TOKENS, **options).to(self.text_encoder.device)
        mask = words.attention_mask
        states = self.text_encoder(input_ids=words.input_ids, attention_mask=mask, output_hidden_states=True).hidden_states[-3]
        whole = self.tokenizer_2(list(captions), max_length=77, **options).to(self.text_encoder_2.device)
        pooled = self.text_encoder_2(whole.input_ids).pooler_output
        return {"encoder_hidden_states": states, "encoder_attention_mask": mask, "pooled_projections": pooled}

    def forward(
        self,
        latents: torch.Tensor,  # (B, C, T, h, w)
        timestep: torch.Tensor,  # (B,)
        captions: Sequence[str],
        guidance: torch.Tensor,  # (B,), times 1000
    ) -> torch.Tensor:
        return self.transformer(  # type: ignore[operator]
            hidden_states=latents, timestep=timestep, guidance=guidance, return_dict=False, **self.condition(captions)
        )[0]


def save_pipeline(
    model: TinyModel,
    autoencoder: FrameAutoencoder,
    folder: Path,
    *,
    generation: dict[str, Any],
    card: str,
    provenance: dict[str, Any],
) -> None:
    """Write the diffusers folder, float16 weights, atomically: an existing folder is replaced whole or kept."""
    parts: dict[str, tuple[str, str, Any]] = {
        "scheduler": ("diffusers", "FlowMatchEulerDiscreteScheduler", FlowMatchEulerDiscreteScheduler(shift=SHIFT)),
        "text_encoder": ("transformers", "LlamaModel", model.text_encoder),
        "text_encoder_2": ("transformers", "CLIPTextModel", model.text_encoder_2),
        # transformers 4 and 5 know this class; LlamaTokenizerFast drops the spaces of a byte-level tokenizer under 5
        "tokenizer": ("transformers", "PreTrainedTokenizerFast", model.tokenizer),
        "tokenizer_2": ("transformers", "CLIPTokenizer", model.tokenizer_2),
        "transformer": ("diffusers", "HunyuanVideoTransformer3DModel", model.transformer),
        "vae": ("phys_pipeline", "FrameAutoencoder", autoencoder),
    }
    index: dict[str, Any] = {"_class_name": "HunyuanVideoPipeline", "_diffusers_version": "0.36.0"}
    with atomic_folder(folder) as new:
        for name, (library, class_name, part) in parts.items():
            index[name] = [library, class_name]
            if isinstance(part, nn.Module):
                part = _half_copy(part)
            part.save_pretrained(new / name)
        weights = new / "transformer" / "diffusion_pytorch_model.safetensors"
        revision = hashlib.sha256(weights.read_bytes()).hexdigest()[:16]
        settings = {"family": "hunyuan_video", "revision": revision, "generation": generation, "provenance": provenance}
        (new / "model_index.json").write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")
        (new / "phys_pipeline.json").write_text(json.dumps(settings, indent=2, sort_keys=True) + "\n", encoding="utf-8")
        (new / "README.md").write_text(card, encoding="utf-8")
        _edit_json(new / "tokenizer" / "tokenizer_config.json", tokenizer_class="PreTrainedTokenizerFast")
        for name in ("text_encoder", "text_encoder_2"):  # transformers 5 would load, and compute, in the stored precision
            _edit_json(new / name / "config.json", dtype="float32")
        for path in new.rglob("*.safetensors"):
            path.chmod(0o644)  # written as private files


def _edit_json(path: Path, **changes: str) -> None:
    content = json.loads(path.read_text(encoding="utf-8")) | changes
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _half_copy(part: nn.Module) -> nn.Module:
    if hasattr(part.config, "to_dict"):
        copy = type(part)(part.config)
    else:  # without diffusers' own notes: it would put back what was left at its default when the part was made
        config: Any = part.config
        own = {name: value for name, value in config.items() if not name.startswith("_")}
        copy = type(part).from_config(own)  # type: ignore[attr-defined]
    copy.load_state_dict(part.state_dict())  # the copy is on the CPU wherever the part is
    return copy.half()


def describe(size: ModelSize) -> dict[str, Any]:
    """Plain-data form of ``size`` for checkpoints and logs."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(size).items()}
