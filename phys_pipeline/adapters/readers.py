"""LoRA files of any program that trains HunyuanVideo or Wan, read as changes of diffusers' layers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from phys_pipeline.adapters import formats
from phys_pipeline.adapters.files import Header, TensorEntry, json_object, read_header, read_tensors, shown
from phys_pipeline.adapters.names import Target, resolve
from phys_pipeline.adapters.settings import LoraSettings, read_settings
from phys_pipeline.adapters.weights import LoraLayer, split, swap_halves
from phys_pipeline.errors import AdapterError

MOST_RANK = 4096  # a fused file of four parts has four times the trained rank
_FLOATS = ("F64", "F32", "F16", "BF16")
_PREFIXES = ("base_model.model.", "diffusion_model.", "transformer.", "lora_unet__", "lora_unet_", "lora_transformer_")
_TEXT_ENCODERS = ("lora_te", "text_encoder", "clip_l.", "llama.", "lora_llama")
_HALVES = {
    ".lora_A.weight": "down", ".lora_down.weight": "down", ".lora_A.default.weight": "down", ".lora.down.weight": "down",
    ".lora_B.weight": "up", ".lora_up.weight": "up", ".lora_B.default.weight": "up", ".lora.up.weight": "up",
    ".alpha": "alpha",
}  # fmt: skip


@dataclass(frozen=True)
class Pair:
    """The tensors of one LoRA in a file: the name that they share, what it stands for, and their keys."""

    name: str
    target: Target
    down: str
    up: str
    alpha: str | None

    def rows(self, header: Header) -> dict[str, int]:
        """Output rows of each diffusers layer in it. A fused layer with a fourth part has a feed-forward input there, which
        takes what three times the hidden width leaves; otherwise the parts are equal."""
        total, hidden = header.tensors[self.up].shape[0], header.tensors[self.down].shape[1]
        parts = self.target.modules
        if len(parts) == 4:
            return dict(zip(parts, (hidden, hidden, hidden, total - 3 * hidden), strict=True))
        return dict.fromkeys(parts, total // len(parts))


@dataclass(frozen=True)
class AdapterFile:
    """A LoRA file whose header has been read and whose names and shapes fit together; the weights are still on the disk.

    ``skipped`` are the keys that stand for nothing in the transformer, such as those of text encoders.
    """

    path: Path
    format: str
    header: Header
    pairs: tuple[Pair, ...]
    skipped: tuple[str, ...]
    settings: LoraSettings | None

    @property
    def provenance(self) -> dict[str, Any]:
        return json_object(self.header.metadata.get(formats.PHYS_METADATA, ""))

    def shapes(self) -> dict[str, tuple[int, int]]:
        """Output and input width of every diffusers layer that the file may change."""
        found = {}
        for pair in self.pairs:
            for module, rows in pair.rows(self.header).items():
                found[module] = (rows, self.header.tensors[pair.down].shape[1])
        return found

    def read(self) -> dict[str, LoraLayer]:
        """The changes by diffusers layer name, sorted. AdapterError if a value isn't finite."""
        layers: dict[str, LoraLayer] = {}
        for pair in self.pairs:
            keys = dict.fromkeys(key for key in (pair.down, pair.up, pair.alpha) if key)
            tensors = read_tensors(self.path, keys)
            layer = LoraLayer(tensors[pair.down], tensors[pair.up], self._alpha(pair, tensors))
            if pair.target.swapped:
                layer = swap_halves(layer)
            rows = pair.rows(self.header)
            parts = split(layer, list(rows.values())) if len(rows) > 1 else [layer]
            layers |= {module: part for module, part in zip(rows, parts, strict=True) if part is not None}
        return dict(sorted(layers.items()))

    def _alpha(self, pair: Pair, tensors: Mapping[str, Tensor]) -> float:
        rank = tensors[pair.down].shape[0]
        given = None if pair.alpha is None else float(tensors[pair.alpha].reshape(()))
        if self.settings is None:
            return float(rank) if given is None else given
        stored = self.settings.alpha_of(pair.name)
        if given is not None and not math.isclose(given, stored, rel_tol=1e-3):
            raise AdapterError(f"{self.path} says alpha {given:g} for {shown(pair.name)} in a tensor and {stored:g} in its "
                               "metadata: save it again")  # fmt: skip
        return stored


def open_adapter(path: Path) -> AdapterFile:
    """Look through a LoRA file without reading its weights. AdapterError, with one line, for anything that isn't a usable LoRA:
    not one key of a known layer, half a pair, shapes that don't fit together, another kind of number, DoRA, model weights."""
    header = read_header(path)
    kind = formats.detect_format(header.tensors, header.metadata)
    if kind in formats.UNREADABLE:
        raise AdapterError(f"{path} can't be applied; its format looks like {formats.describe_format(kind)}: "
                           f"{formats.UNREADABLE[kind]}")  # fmt: skip
    groups: dict[str, dict[str, str]] = {}
    skipped = []
    for key in header.tensors:
        name, half = _parse(key)
        if half is None or name is None:
            skipped.append(key)
        elif half in groups.setdefault(name, {}):
            raise AdapterError(f"{path} has two tensors for one half of {shown(name)}, such as {shown(key)}: save it again")
        else:
            groups[name][half] = key
    pairs: list[Pair] = []
    taken: dict[str, str] = {}
    own = kind in (formats.DIFFUSERS, "finetrainers")  # every layer of any model may be in it, under its own name
    for name, group in sorted(groups.items()):
        target = resolve(name) or (Target((name,)) if own else None)
        if target is None:
            skipped += group.values()
            continue
        if not {"down", "up"} <= set(group):
            missing = "lora_B" if "down" in group else "lora_A"
            raise AdapterError(f"{path} is incomplete: {shown(name)} lacks {missing}; get another copy")
        pair = Pair(name, target, group["down"], group["up"], group.get("alpha"))
        _check_shapes(path, pair, header)
        for module in target.modules:
            if module in taken:
                raise AdapterError(
                    f"{path} changes {shown(module)} twice, as {shown(taken[module])} and {shown(name)}: save it again"
                )
            taken[module] = name
        pairs.append(pair)
    if own and skipped:
        raise AdapterError(f"{path} has {len(skipped)} of {len(header.tensors)} tensors that are no part of a LoRA, such as "
                           f"{shown(skipped[0])}: save it again")  # fmt: skip
    if not pairs:
        raise AdapterError(f"{path}: none of its {len(header.tensors)} tensors belongs to a LoRA of this kind of model, such as "
                           f"{shown(skipped[0])}; its format looks like {formats.describe_format(kind)}")  # fmt: skip
    settings = read_settings(path, header.metadata)
    if settings is not None:
        _check_ranks(path, pairs, header, settings)
    return AdapterFile(path, kind, header, tuple(pairs), tuple(skipped), settings)


def check_fits(file: AdapterFile, layers: Mapping[str, nn.Linear], model: str) -> None:
    """Raise AdapterError unless every layer of the file is a linear layer of the same width in the model."""
    trained_for = file.provenance.get("base_model")
    known = isinstance(trained_for, str)
    advice = f"it was trained for {shown(str(trained_for))}, load that model" if known else "use one trained for this model"
    shapes = file.shapes()
    unknown = sorted(module for module in shapes if module not in layers)
    if unknown:
        raise AdapterError(f"{file.path} is for another model: {len(unknown)} of its {len(shapes)} layers are not in this "
                           f"{model}, such as {shown(unknown[0])}; {advice}")  # fmt: skip
    for module, (rows, columns) in sorted(shapes.items()):
        layer = layers[module]
        if (rows, columns) != (layer.out_features, layer.in_features):
            raise AdapterError(f"{file.path} is for another model: {module} is {layer.out_features}x{layer.in_features} here and "
                               f"{rows}x{columns} in the file; {advice}")  # fmt: skip


def _parse(key: str) -> tuple[str | None, str | None]:
    """A key's layer name without prefixes, and which half it is; None for what is no part of the transformer's LoRA."""
    if key.startswith(_TEXT_ENCODERS):
        return None, None
    for suffix, half in _HALVES.items():
        if key.endswith(suffix):
            name = key.removesuffix(suffix)
            while prefix := next((p for p in _PREFIXES if name.startswith(p)), None):
                name = name.removeprefix(prefix)
            return name, half
    return None, None


def _check_shapes(path: Path, pair: Pair, header: Header) -> None:
    down, up = header.tensors[pair.down], header.tensors[pair.up]
    for key in (pair.down, pair.up, pair.alpha):
        if key and header.tensors[key].dtype not in _FLOATS:
            raise AdapterError(f"{shown(key)} of {path} is {header.tensors[key].dtype}: save it as float32, float16 or bfloat16")
    if pair.alpha and math.prod(header.tensors[pair.alpha].shape) != 1:
        raise AdapterError(f"{shown(pair.alpha)} of {path} is no single number: save it again")
    fits = len(down.shape) == len(up.shape) == 2 and down.shape[0] == up.shape[1]
    if not fits or not 1 <= down.shape[0] <= MOST_RANK or not _divides(pair, down, up):
        raise AdapterError(f"{shown(pair.name)} of {path}: its halves have the shapes {up.shape} and {down.shape}, which make no "
                           "LoRA of such a layer; get another copy")  # fmt: skip


def _divides(pair: Pair, down: TensorEntry, up: TensorEntry) -> bool:
    parts, rows = len(pair.target.modules), up.shape[0]
    if parts == 4:
        return rows > 3 * down.shape[1]
    return rows > 0 and down.shape[1] > 0 and rows % parts == 0 and not (pair.target.swapped and rows % 2)


def _check_ranks(path: Path, pairs: list[Pair], header: Header, settings: LoraSettings) -> None:
    for pair in pairs:
        rank = header.tensors[pair.down].shape[0]
        if settings.rank_of(pair.name) != rank:
            raise AdapterError(f"{path}: its metadata says rank {settings.rank_of(pair.name)} for {shown(pair.name)}, its "
                               f"tensors have {rank}; get another copy")  # fmt: skip
