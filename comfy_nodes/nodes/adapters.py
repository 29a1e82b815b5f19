"""Adapter files: those in ComfyUI's folder for LoRAs, and what a MOTION_ADAPTER holds."""

from __future__ import annotations

from pathlib import Path, PurePath
from typing import Any

import folder_paths

from phys_pipeline.adapters.hub import sha256
from phys_pipeline.adapters.readers import AdapterFile, open_adapter
from phys_pipeline.errors import AdapterError

NONE = "none"  # in the list of files: an adapter is connected instead


def lora_names() -> list[str]:
    return [NONE, *folder_paths.get_filename_list("loras")]


def check_name(name: str | None) -> bool | str:
    """True, or why there is no such file; None is a linked input, whose value isn't known before the run."""
    if name is None or name == NONE:
        return True
    try:
        find_lora(name)
    except AdapterError as error:
        return str(error)
    return True


def find_lora(name: str) -> Path:
    """The file that a name from a list means, or the only file of that name in any folder: workflows come from other machines."""
    names = folder_paths.get_filename_list("loras")
    if name in names:
        return Path(folder_paths.get_full_path_or_raise("loras", name))
    wanted = PurePath(name.replace("\\", "/")).name.lower()
    similar = [other for other in names if PurePath(other.replace("\\", "/")).name.lower() == wanted]
    if len(similar) == 1:
        return Path(folder_paths.get_full_path_or_raise("loras", similar[0]))
    if similar:
        raise AdapterError(f"there are {len(similar)} LoRAs named {wanted}: choose one of {', '.join(similar[:3])}")
    raise AdapterError(f"there is no LoRA {name!r} in ComfyUI's folder models/loras: put it there and press R, or use the node "
                       "Motion Adapter (Hugging Face)")  # fmt: skip


def chosen(name: str, adapter: dict[str, Any] | None) -> Path:
    """The file of a connected adapter, which wins, or of a name."""
    if adapter is not None:
        return Path(adapter["path"])
    if name == NONE:
        raise AdapterError("no LoRA chosen: choose a file, or connect a Motion Adapter")
    return find_lora(name)


def changed(name: str | None) -> str:
    """Differs when the file behind a name does."""
    if not name or name == NONE:
        return ""
    try:
        status = find_lora(name).stat()
    except (AdapterError, OSError):
        return "missing"
    return f"{status.st_size}-{status.st_mtime_ns}"


def adapter_of(path: Path) -> dict[str, Any]:
    """A MOTION_ADAPTER for a file, which must be a LoRA that can be read."""
    file = open_adapter(path)
    return {
        "path": str(path), "format": file.format, "sha256": sha256(path), "base_model": file.provenance.get("base_model"),
    }  # fmt: skip


def described(file: AdapterFile) -> str:
    """A line for people."""
    ranks = sorted({file.header.tensors[pair.down].shape[0] for pair in file.pairs})
    rank = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {ranks[0]} to {ranks[-1]}"
    trained = file.provenance.get("base_model")
    return f"{file.path.name}: {file.format}, {len(file.shapes())} layers, {rank}" + (f", for {trained}" if trained else "")
