"""A LoRA merged into a copy of its base model: tensor by tensor, so that memory is bounded by the largest one."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import torch

from phys_pipeline.adapters.files import read_header
from phys_pipeline.adapters.layers import adapted_component, checked_weight
from phys_pipeline.adapters.readers import open_adapter
from phys_pipeline.adapters.weights import LoraLayer
from phys_pipeline.atomic import atomic_folder
from phys_pipeline.errors import AdapterError
from phys_pipeline.families import find_family
from phys_pipeline.families.sources import DESCRIPTION_FILE, description, local_folder

_FLOATS = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
_CHUNK = 16 << 20


def merge_adapter(adapter: Path, base: str, output: Path, weight: float = 1.0) -> int:
    """Write a copy of the model folder ``base`` whose transformer has the LoRA added at ``weight``; returns how many layers.

    Sums are made in float32 and stored in the base's own type. The copy's revision is a checksum of the new weights, so that
    adapters of the old base are noticed. Raises AdapterError if a layer is missing, of another width, or quantised.
    """
    weight = checked_weight(weight)
    family = find_family(base)
    folder = local_folder(base, family.spec, family.components("pipeline"))
    if output.resolve() == folder.resolve():
        raise AdapterError(f"{output} is the base model itself: choose another folder")
    opened = open_adapter(adapter)
    component = adapted_component(opened.provenance)
    shards = sorted((folder / component).glob("*.safetensors"))
    _check_base(opened.shapes(), shards, folder)
    layers = opened.read()
    digest = hashlib.sha256()
    with atomic_folder(output) as partial:
        shutil.copytree(
            folder, partial, dirs_exist_ok=True, ignore=lambda where, names: _weights(folder / component, where, names)
        )
        for shard in shards:
            _merge_file(shard, partial / component / shard.name, layers, weight, digest)
        about = description(folder) | {"family": family.spec.name, "revision": digest.hexdigest()[:16]}
        about["merged"] = {"adapter_sha256": hashlib.sha256(adapter.read_bytes()).hexdigest(), "weight": weight}
        (partial / DESCRIPTION_FILE).write_text(json.dumps(about, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    return len(layers)


def _weights(folder: Path, where: str, names: list[str]) -> list[str]:
    inside = Path(where) == folder
    return [name for name in names if inside and name.endswith(".safetensors")]


def _check_base(shapes: dict[str, tuple[int, int]], shards: list[Path], folder: Path) -> None:
    entries = {name: entry for shard in shards for name, entry in read_header(shard, most_bytes=None).tensors.items()}
    for module, shape in sorted(shapes.items()):
        entry = entries.get(f"{module}.weight")
        if entry is None or entry.shape != shape:
            there = "is not there" if entry is None else f"has the shape {entry.shape}"
            raise AdapterError(
                f"the adapter changes {module} ({shape[0]}x{shape[1]}), which {there} in {folder}: use its own base"
            )
        if entry.dtype not in _FLOATS:
            raise AdapterError(f"{module} of {folder} is {entry.dtype}: merge into weights that are not quantised")


def _merge_file(source: Path, target: Path, layers: dict[str, LoraLayer], weight: float, digest: hashlib._Hash) -> None:
    header = read_header(source, most_bytes=None)
    with source.open("rb") as reader, target.open("wb") as writer:
        writer.write(reader.read(header.size))
        for name, entry in sorted(header.tensors.items(), key=lambda item: item[1].start):
            layer = layers.get(name.removesuffix(".weight"))
            if layer is None or not name.endswith(".weight"):
                for start in range(entry.start, entry.end, _CHUNK):
                    chunk = reader.read(min(_CHUNK, entry.end - start))
                    digest.update(chunk)
                    writer.write(chunk)
                continue
            dtype = _FLOATS[entry.dtype]
            base = torch.frombuffer(bytearray(reader.read(entry.end - entry.start)), dtype=dtype).reshape(entry.shape)
            merged = (base.float() + weight * layer.delta()).to(dtype)
            if not torch.isfinite(merged).all():
                raise AdapterError(f"{name} would hold NaN or infinity as {entry.dtype}: lower the weight")
            data = merged.contiguous().view(torch.uint8).numpy().tobytes()
            digest.update(data)
            writer.write(data)
