"""Tiny models that ComfyUI's own loaders take, and adapters for them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from benchmarks.comfyui_loader import WAN_ATTENTION_AND_FEED_FORWARD, base_model, comfyui_weights
from phys_pipeline.adapters import save_adapter
from phys_pipeline.families.hunyuan_video import LORA_ATTENTION, LORA_ATTENTION_AND_FEED_FORWARD

CHECKPOINT, AUTOENCODER, WAN = "tiny_hunyuan_video.safetensors", "tiny_wan.safetensors", "tiny_wan_model.safetensors"
WAN_DIFFUSERS, WAN_FUSED = "wan_diffusers.safetensors", "wan_fused.safetensors"
DIFFUSERS, FUSED, EVERY_LAYER, OTHER, FLUX, EMBEDDED = (
    f"{name}.safetensors" for name in ("motion_diffusers", "motion_fused", "every_layer", "other_width", "flux", "embedded")
)
WITH_ALPHA: dict[str, Any] = {
    "target_modules": LORA_ATTENTION_AND_FEED_FORWARD, "r": 4, "lora_alpha": 10, "rank_pattern": {"attn.to_k": 7},
    "alpha_pattern": {"attn.to_v": 3},
}  # fmt: skip


def hunyuan_video(seed: int = 0, heads: int = 1) -> Any:
    """A random transformer that ComfyUI recognises as HunyuanVideo."""
    from diffusers import HunyuanVideoTransformer3DModel

    torch.manual_seed(seed)
    return HunyuanVideoTransformer3DModel(
        num_attention_heads=heads,
        attention_head_dim=128,
        num_layers=1,
        num_single_layers=1,
        num_refiner_layers=2,
        text_embed_dim=32,
    ).eval()


@torch.no_grad()
def trained(model: Any, folder: Path, family: str = "hunyuan_video", **config: Any) -> Path:
    """A random adapter on the model, saved as the trainer saves it."""
    from peft import LoraConfig

    model.add_adapter(LoraConfig(**config))
    generator = torch.Generator().manual_seed(1)
    for name, parameter in model.named_parameters():
        if "lora" in name:
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator))
    return save_adapter(model, folder, family=family, base_model="tiny/random")


def write_models(folder: Path) -> Path:
    """The checkpoint, its adapters in several formats, and an adapter of the embedded diffusers model."""
    loras, made = folder / "loras", folder / "made"
    for name in ("loras", "diffusion_models", "vae", "diffusers", "made"):
        (folder / name).mkdir(parents=True)
    model = hunyuan_video()
    save_file({k: v.contiguous() for k, v in comfyui_weights(model).items()}, folder / "diffusion_models" / CHECKPOINT)
    adapter = trained(model, made / "motion", **WITH_ALPHA)
    shutil.copy(adapter / "pytorch_lora_weights.safetensors", loras / DIFFUSERS)
    shutil.copy(next((adapter / "comfyui").iterdir()), loras / FUSED)
    wide = trained(hunyuan_video(heads=2), made / "wide", target_modules=LORA_ATTENTION, r=2, lora_alpha=2)
    shutil.copy(wide / "pytorch_lora_weights.safetensors", loras / OTHER)
    _wan(folder, made / "wan")
    _every_layer(loras / EVERY_LAYER)
    _flux(loras / FLUX)
    _embedded(loras / EMBEDDED, made / "embedded")
    (loras / "not_a_lora.safetensors").write_bytes(b"\x00" * 100)
    return folder


def _wan(folder: Path, made: Path) -> None:
    """A checkpoint that ComfyUI recognises as Wan, and an adapter on it, as diffusers saves it and for ComfyUI's own loader."""
    model = base_model("wan", 0)
    save_file({k: v.contiguous() for k, v in comfyui_weights(model).items()}, folder / "diffusion_models" / WAN)
    adapter = trained(model, made, "wan", target_modules=WAN_ATTENTION_AND_FEED_FORWARD, r=4, lora_alpha=10)
    shutil.copy(adapter / "pytorch_lora_weights.safetensors", folder / "loras" / WAN_DIFFUSERS)
    shutil.copy(next((adapter / "comfyui").iterdir()), folder / "loras" / WAN_FUSED)


def _every_layer(path: Path) -> None:
    """diffusers keys for every linear layer, embedders and refiner included, of different ranks; alpha in tensors."""
    from phys_pipeline.adapters.layers import linear_layers

    generator, tensors = torch.Generator().manual_seed(2), {}
    for number, (name, layer) in enumerate(linear_layers(hunyuan_video()).items()):
        rank = 2 + number % 3
        tensors[f"transformer.{name}.lora_A.weight"] = 0.05 * torch.randn(rank, layer.in_features, generator=generator)
        tensors[f"transformer.{name}.lora_B.weight"] = 0.05 * torch.randn(layer.out_features, rank, generator=generator)
        tensors[f"transformer.{name}.alpha"] = torch.tensor(3.0)
    save_file(tensors, path)


def _flux(path: Path) -> None:
    """A LoRA of another kind of model."""
    keys = {
        "lora_unet_input_blocks_1_1_proj_in.lora_down.weight": (2, 8),
        "lora_unet_input_blocks_1_1_proj_in.lora_up.weight": (8, 2),
    }
    save_file({key: torch.ones(shape) for key, shape in keys.items()}, path)


def _embedded(path: Path, folder: Path) -> None:
    from phys_pipeline.families import load_model

    model = load_model("tiny").pipeline.transformer
    adapter = trained(model, folder, target_modules=LORA_ATTENTION, r=4, lora_alpha=4)
    shutil.copy(adapter / "pytorch_lora_weights.safetensors", path)
