"""Rank and alpha as PEFT stores them beside LoRA weights: in a file's metadata or in ``adapter_config.json``."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from phys_pipeline.adapters.files import json_object, shown
from phys_pipeline.adapters.formats import DIFFUSERS_METADATA, FINETRAINERS_METADATA
from phys_pipeline.adapters.weights import LoraLayer
from phys_pipeline.errors import AdapterError

_PEFT_CONFIG = "adapter_config.json"
_PEFT_WEIGHTS = "adapter_model.safetensors"
_MOST_CONFIG_BYTES = 1 << 20
_MOST = 1e9  # larger ranks or alphas are no mistake of a trainer's
_REFUSED = {  # PEFT's options that make more than alpha / rank * B A out of the tensors, or need more than them
    "use_dora": "DoRA", "lora_bias": "a trained bias", "use_bdlora": "block-diagonal LoRA", "use_qalora": "QALoRA",
    "layer_replication": "repeated layers", "alora_invocation_tokens": "activated LoRA",
    "target_parameters": "parameters that are no layers",
}  # fmt: skip


@dataclass(frozen=True)
class LoraSettings:
    """Ranks and alphas by layer name; a pattern is the end of a name, or a whole one if it begins with ``^``."""

    rank: int
    alpha: float
    rank_pattern: Mapping[str, int]
    alpha_pattern: Mapping[str, float]
    rslora: bool

    def rank_of(self, name: str) -> int:
        return int(_matching(self.rank_pattern, name, self.rank))

    def alpha_of(self, name: str) -> float:
        """Alpha of a layer, with rsLoRA's root of the rank in it, so that its scale is always alpha / rank."""
        alpha = float(_matching(self.alpha_pattern, name, self.alpha))
        return alpha * math.sqrt(self.rank_of(name)) if self.rslora else alpha


def read_settings(path: Path, metadata: Mapping[str, str]) -> LoraSettings | None:
    """The settings stored with a file; None if there are none, which means alpha = rank.

    Patterns are compared as text, never run as the regular expressions that PEFT takes them for: anybody may have written them.
    Raises AdapterError for a setting that this version doesn't know or that is no plain LoRA.
    """
    config: dict[str, Any] = {}
    if DIFFUSERS_METADATA in metadata:
        stored = json_object(metadata[DIFFUSERS_METADATA])
        config = {name.removeprefix("transformer."): value for name, value in stored.items() if name.startswith("transformer.")}
    elif FINETRAINERS_METADATA in metadata:
        config = json_object(metadata[FINETRAINERS_METADATA])
    elif path.name == _PEFT_WEIGHTS and (path.parent / _PEFT_CONFIG).is_file():
        beside = path.parent / _PEFT_CONFIG
        config = json_object(beside.read_text(encoding="utf-8")) if beside.stat().st_size <= _MOST_CONFIG_BYTES else {}
    if not config:
        return None
    return _checked(path, config)


def stored_settings(layers: Mapping[str, LoraLayer]) -> dict[str, Any]:
    """PEFT's settings for these layers (by diffusers name): common rank and alpha, and patterns for the layers that differ.

    Names are written as regular expressions that match one layer each, since PEFT takes a plain name for the end of names too.
    """
    rank, _ = Counter(layer.rank for layer in layers.values()).most_common(1)[0]
    alpha, _ = Counter(layer.alpha for layer in layers.values()).most_common(1)[0]
    ranks = {f"^{name}": layer.rank for name, layer in sorted(layers.items()) if layer.rank != rank}
    alphas = {f"^{name}": layer.alpha for name, layer in sorted(layers.items()) if layer.alpha != alpha}
    targets = "|".join(name.replace(".", r"\.") for name in sorted(layers))
    settings = {"r": rank, "lora_alpha": alpha, "target_modules": targets, "rank_pattern": ranks, "alpha_pattern": alphas}
    return {name: value for name, value in settings.items() if value != {}}


def diffusers_metadata(settings: Mapping[str, Any]) -> dict[str, str]:
    """The metadata entry in which diffusers looks for the settings of a transformer's LoRA."""
    prefixed = {f"transformer.{name}": value for name, value in settings.items()}
    return {DIFFUSERS_METADATA: json.dumps(prefixed, indent=2, sort_keys=True)}


def _checked(path: Path, config: Mapping[str, Any]) -> LoraSettings:
    from peft import LoraConfig

    known = {field.name for field in fields(LoraConfig)} | {"peft_version"}
    if strange := sorted(set(config) - known):
        raise AdapterError(f"can't apply {path}: its setting {shown(strange[0])} is unknown here, upgrade peft or save it again")
    for name, what in _REFUSED.items():
        if config.get(name):
            raise AdapterError(f"can't apply {path}: it uses {what} ({name}), train a plain LoRA instead")
    ranks, alphas = config.get("rank_pattern") or {}, config.get("alpha_pattern") or {}
    rank, alpha = config.get("r", 8), config.get("lora_alpha", 8)  # PEFT's own defaults
    numbers = [rank, alpha]
    for patterns in (ranks, alphas):
        numbers += patterns.values() if isinstance(patterns, dict) else [None]
    if not all(type(n) in (int, float) and abs(n) < _MOST for n in numbers) or not all(map(_is_rank, [rank, *ranks.values()])):
        raise AdapterError(f"can't apply {path}: its rank or alpha is no number, save it again")
    for name in [*ranks, *alphas]:
        if not all(c.isalnum() or c in r"_.\^" for c in name):
            raise AdapterError(f"can't apply {path}: its pattern {shown(name)} is no layer name, save it again")
    return LoraSettings(rank, float(alpha), ranks, alphas, bool(config.get("use_rslora")))


def _is_rank(number: float) -> bool:
    return number == int(number) >= 1


def _matching(patterns: Mapping[str, float], name: str, default: float) -> float:
    for pattern, value in patterns.items():
        literal = pattern.replace("\\", "").removeprefix("^")
        if name == literal or (not pattern.startswith("^") and name.endswith("." + literal)):
            return value
    return default
