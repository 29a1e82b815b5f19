"""LoRA files: which format a set of keys is in, and safetensors headers that come out the same every time."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from torch import Tensor

from phys_pipeline.atomic import atomic_file
from phys_pipeline.errors import AdapterError

WEIGHTS_FILE = "pytorch_lora_weights.safetensors"
DIFFUSERS_METADATA = "lora_adapter_metadata"  # the key diffusers reads
PHYS_METADATA = "phys_pipeline"

DIFFUSERS = "diffusers"
_FORMATS = {
    DIFFUSERS: "diffusers ('transformer.' keys)",
    "tencent": "Tencent's own module names (double_blocks, single_blocks)",
    "comfyui": "ComfyUI ('diffusion_model.' keys)",
    "kohya": "kohya ('lora_unet_' keys)",
    "peft": "PEFT ('base_model.model.' keys)",
    "stable-diffusion": "Stable Diffusion ('unet.' or 'text_encoder.' keys)",
    "lokr": "LoKr or LoHa",
    "dora": "DoRA (it has magnitude vectors)",
    "model": "model weights, not an adapter",
    "unknown": "unknown",
}


def detect_format(keys: Iterable[str]) -> str:
    """Name of the LoRA format that the tensor names follow, or ``"model"`` or ``"unknown"``."""
    keys = list(keys)
    if any(".lokr_" in k or ".hada_" in k for k in keys):
        return "lokr"
    if any("dora_scale" in k or "lora_magnitude_vector" in k for k in keys):
        return "dora"
    for name, prefixes in (
        ("comfyui", ("diffusion_model.",)),
        ("kohya", ("lora_unet_", "lora_te")),
        ("peft", ("base_model.model.",)),
        ("stable-diffusion", ("unet.", "text_encoder.", "text_encoder_2.")),
    ):
        if any(k.startswith(prefixes) for k in keys):
            return name
    if not any("lora" in k for k in keys):
        return "model" if any(k.endswith((".weight", ".bias")) for k in keys) else "unknown"
    if any("double_blocks." in k or k.removeprefix("transformer.").startswith("single_blocks.") for k in keys):
        return "tencent"
    if any(k.startswith("transformer.") for k in keys):
        return DIFFUSERS
    return "unknown"


def describe_format(name: str) -> str:
    return _FORMATS[name]


def read_adapter_file(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors (on the CPU) and header metadata of a safetensors file; AdapterError if it can't be read or is empty."""
    from safetensors import safe_open

    if not path.is_file():
        raise AdapterError(f"there is no adapter file {path}: give a folder with {WEIGHTS_FILE} or a .safetensors file")
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (not a dict)
            metadata = dict(file.metadata() or {})
    except Exception as error:  # SafetensorError, OSError: no common base
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise AdapterError(f"{path} is not a readable safetensors file ({reason}): download or save it again") from error
    if not tensors:
        raise AdapterError(f"{path} holds no tensors: save the adapter again")
    return tensors, metadata


def metadata_object(metadata: dict[str, str], key: str) -> dict[str, Any]:
    """A JSON object stored under a metadata key; {} if there is none or it isn't an object."""
    try:
        content = json.loads(metadata.get(key, "{}"))
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def rewrite_header(path: Path, extra: dict[str, str]) -> None:
    """Add metadata to a safetensors file and write all its metadata sorted.

    The safetensors library writes metadata in random order, so equal adapters would get different checksums.
    """
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + length])
    metadata = {**header.pop("__metadata__", {}), **extra}
    ordered = {"__metadata__": dict(sorted(metadata.items())), **header}
    text = json.dumps(ordered, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)  # tensor data stays aligned to eight bytes
    with atomic_file(path) as temporary:
        temporary.write_bytes(struct.pack("<Q", len(text)) + text + raw[8 + length :])
