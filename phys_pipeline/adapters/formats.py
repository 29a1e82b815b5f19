"""Which program wrote a LoRA file, told by its names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

WEIGHTS_FILE = "pytorch_lora_weights.safetensors"
COMFYUI_FOLDER = "comfyui"  # the copy for ComfyUI lies there, so that one file only is at the top for those who guess
DIFFUSERS_METADATA = "lora_adapter_metadata"  # the key diffusers reads
FINETRAINERS_METADATA = "lora_config"  # the key finetrainers writes
PHYS_METADATA = "phys_pipeline"

DIFFUSERS = "diffusers"
COMFYUI = "comfyui"
_FORMATS = {
    DIFFUSERS: "diffusers ('transformer.' keys)",
    "finetrainers": "finetrainers (diffusers keys, settings under 'lora_config')",
    "tencent": "Tencent's own module names (double_blocks, single_blocks), as diffusion-pipe writes them",
    "wan": "Wan's own module names (self_attn, cross_attn), as DiffSynth-Studio and diffusion-pipe write them",
    COMFYUI: "ComfyUI ('diffusion_model.' keys)",
    "kohya": "kohya or musubi ('lora_unet_' keys)",
    "onetrainer": "OneTrainer",
    "peft": "PEFT ('base_model.model.' keys)",
    "stable-diffusion": "Stable Diffusion ('unet.' or 'text_encoder.' keys)",
    "lokr": "LoKr or LoHa",
    "dora": "DoRA (it has magnitude vectors)",
    "model": "model weights, not an adapter",
    "unknown": "unknown",
}
UNREADABLE = {  # what to do about a format that holds no plain LoRA of a video transformer
    "stable-diffusion": "give a LoRA of a video model",
    "lokr": "train a plain LoRA instead",
    "dora": "its weights depend on the base model's, so no file of down and up matrices equals it: train a plain LoRA instead",
    "model": "give a LoRA file",
}
_WAN = re.compile(r"(?:transformer\.)?blocks\.\d+\.(?:(?:self|cross)_attn\.(?:[qkvo]|[kv]_img)|ffn\.[02])\.")


def detect_format(keys: Iterable[str], metadata: Mapping[str, str] | None = None) -> str:
    """Name of the LoRA format that the tensor names follow, or ``"model"`` or ``"unknown"``."""
    keys = list(keys)
    if any(".lokr_" in k or ".hada_" in k for k in keys):
        return "lokr"
    if any("dora_scale" in k or "lora_magnitude_vector" in k for k in keys):
        return "dora"
    for name, prefixes in (
        (COMFYUI, ("diffusion_model.",)),
        ("onetrainer", ("lora_transformer_",)),
        ("kohya", ("lora_unet_", "lora_te")),
        ("peft", ("base_model.model.",)),
        ("stable-diffusion", ("unet.", "text_encoder.", "text_encoder_2.")),
    ):
        if any(k.startswith(prefixes) for k in keys):
            return name
    if not any("lora" in k for k in keys):
        return "model" if any(k.endswith((".weight", ".bias")) for k in keys) else "unknown"
    if any("double_blocks." in k or k.removeprefix("transformer.").startswith("single_blocks.") for k in keys):
        numbered = any(f"{fused}.{part}." in k for k in keys for fused in ("attn_qkv", "linear1") for part in range(4))
        return "onetrainer" if numbered else "tencent"
    if any(map(_WAN.match, keys)):
        return "wan"
    if any(k.startswith("transformer.") for k in keys):
        finetrainers = FINETRAINERS_METADATA in (metadata or {}) and DIFFUSERS_METADATA not in (metadata or {})
        return "finetrainers" if finetrainers else DIFFUSERS
    return "unknown"


def describe_format(name: str) -> str:
    return _FORMATS[name]
