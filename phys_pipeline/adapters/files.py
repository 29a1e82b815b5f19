"""Safetensors files: read with bounds and checks, since anyone may have made them, and written to the same bytes every time."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from phys_pipeline.atomic import atomic_file
from phys_pipeline.errors import AdapterError, first_line

MOST_BYTES = 8 << 30  # a HunyuanVideo LoRA of rank 128 on every linear layer has 1.2 GB, its fused copy about 4 GB
MOST_HEADER_BYTES = 16 << 20
MOST_TENSORS = 20_000
_PIECE = 1 << 20  # numbers
_SIZES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1, "F8_E4M3": 1,
          "F8_E5M2": 1, "U16": 2, "U32": 4, "U64": 8}  # fmt: skip
_PICKLES = (b"PK\x03\x04", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05", b"\x1f\x8b", b"\x93NUMPY")


@dataclass(frozen=True)
class TensorEntry:
    """Where a tensor lies: ``start`` and ``end`` count from the first byte after the header."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


@dataclass(frozen=True)
class Header:
    """What a safetensors file says about itself."""

    tensors: Mapping[str, TensorEntry]
    metadata: Mapping[str, str]
    size: int  # bytes of the length and the header


def read_header(path: Path, most_bytes: int | None = MOST_BYTES) -> Header:
    """The header of a safetensors file. No tensor is read, nothing is executed, and memory is bounded by the header's limit.

    Raises AdapterError, with one line, if it isn't such a file, is cut off, is larger than ``most_bytes``, or contradicts itself.
    """
    if not path.is_file():
        raise AdapterError(f"there is no adapter file {path}: give a .safetensors file or a folder with one")
    total = path.stat().st_size
    if most_bytes is not None and total > most_bytes:
        raise AdapterError(f"{path} has {total / 1e9:.0f} GB, more than any adapter: give a LoRA file")
    with path.open("rb") as file:
        start, brace = file.read(8), file.read(1)
        if start.startswith(_PICKLES) and brace != b"{":  # with one, these are the bytes of a header's length, such as 640
            raise AdapterError(
                f"{path} is a pickle or an archive, which could run code or unpack without end: get it as .safetensors"
            )
        if len(start) < 8:
            raise _unreadable(path, "it is cut off")
        (length,) = struct.unpack("<Q", start)
        if length > min(MOST_HEADER_BYTES, total - 8):
            raise _unreadable(path, f"it announces a header of {length} bytes")
        text = brace + file.read(length - 1) if length else b""
    try:
        content = json.loads(text.decode(), object_pairs_hook=_without_duplicates)
    except (ValueError, RecursionError) as error:
        raise _unreadable(path, first_line(error)) from error
    if not isinstance(content, dict):
        raise _unreadable(path, "its header is no object")
    metadata = content.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise _unreadable(path, "its metadata is not text")
    if not content:
        raise AdapterError(f"{path} holds no tensors: save the adapter again")
    if len(content) > MOST_TENSORS:
        raise _unreadable(path, f"it lists {len(content)} tensors")
    tensors = {name: _entry(path, name, about) for name, about in content.items()}
    _check_layout(path, tensors, total - 8 - length)
    return Header(tensors, metadata, 8 + length)


def read_tensors(path: Path, names: Mapping[str, Any] | None = None) -> dict[str, Tensor]:
    """Tensors of a file whose header has been checked, on the CPU. Raises AdapterError when one holds NaN or infinity."""
    from safetensors import safe_open

    found = {}
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            for name in names if names is not None else file.keys():
                found[name] = file.get_tensor(name)
    except Exception as error:  # SafetensorError, OSError, MemoryError: no common base
        raise _unreadable(path, first_line(error)) from error
    for name, value in found.items():
        if not torch.isfinite(value).all():
            raise AdapterError(f"{shown(name)} of {path} holds NaN or infinity: it is damaged, get another copy")
    return found


def count_not_finite(path: Path) -> int:
    """How many numbers of a file whose header has been checked are NaN or infinite; it is read in pieces of some megabytes."""
    from safetensors import safe_open

    count = 0
    with safe_open(path, framework="pt", device="cpu") as file:
        for name, entry in read_header(path).tensors.items():
            if not entry.shape:
                count += int((~torch.isfinite(file.get_tensor(name))).sum())
                continue
            rows = max(1, _PIECE // max(1, math.prod(entry.shape[1:])))
            view = file.get_slice(name)
            for start in range(0, entry.shape[0], rows):
                count += int((~torch.isfinite(view[start : start + rows])).sum())
    return count


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write a safetensors file; equal content gives equal bytes."""
    from safetensors.torch import save_file

    with atomic_file(path) as temporary:
        save_file({name: tensors[name].contiguous().clone() for name in sorted(tensors)}, temporary)  # parts may share a down
        rewrite_header(temporary, {"format": "pt", **metadata})


def rewrite_header(path: Path, extra: Mapping[str, str]) -> None:
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


def json_object(text: str) -> dict[str, Any]:
    """A JSON object out of a file's metadata; {} if it isn't one."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def shown(name: str) -> str:
    """A name from a file as it may stand in a message: one line, no control characters, not too long."""
    text = name.encode("unicode_escape").decode()
    return text if len(text) <= 100 else text[:97] + "..."


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) != len(pairs):
        raise ValueError("a name occurs twice")
    return content


def _entry(path: Path, name: str, about: Any) -> TensorEntry:
    fields: dict[str, Any] = about if isinstance(about, dict) else {}
    shape, offsets = fields.get("shape"), fields.get("data_offsets")
    if not isinstance(shape, list) or not isinstance(offsets, list):
        raise _unreadable(path, f"{shown(name)} has no shape and place")
    numbers = [*shape, *offsets]
    if len(numbers) > 10 or len(offsets) != 2 or not all(type(n) is int and 0 <= n < 1 << 63 for n in numbers):
        raise _unreadable(path, f"{shown(name)} has no valid shape and place")
    if str(fields.get("dtype")) not in _SIZES:
        raise _unreadable(path, f"{shown(name)} has the type {shown(str(fields.get('dtype')))}")
    entry = TensorEntry(fields["dtype"], tuple(shape), *offsets)
    if math.prod(shape) * _SIZES[entry.dtype] != entry.end - entry.start:
        raise _unreadable(path, f"{shown(name)} of shape {entry.shape} does not fill its place")
    return entry


def _check_layout(path: Path, tensors: Mapping[str, TensorEntry], size: int) -> None:
    """Tensors must fill the file one after the other: no gap, no overlap, nothing beyond the end."""
    end = 0
    for name, entry in sorted(tensors.items(), key=lambda item: (item[1].start, item[1].end)):
        if entry.start != end:
            raise _unreadable(path, f"{shown(name)} overlaps another tensor or leaves a gap")
        end = entry.end
    if end != size:
        raise _unreadable(path, f"its tensors need {end} bytes and it has {size}")


def _unreadable(path: Path, reason: str) -> AdapterError:
    return AdapterError(f"{path} is not a readable safetensors file ({reason}): download or save it again")
