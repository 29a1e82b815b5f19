"""LoRA changes in the layout of a model's official checkpoint, by the same rules as its weights."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from phys_pipeline.adapters.weights import LoraLayer, fuse
from phys_pipeline.errors import ConfigError
from phys_pipeline.models.key_map import KeyMap, Order


def to_original(layers: Mapping[str, LoraLayer], key_map: KeyMap, widths: Mapping[str, int]) -> dict[str, LoraLayer]:
    """The changes of diffusers layers under the official names: rows in the official order, layers fused that are one there.

    ``widths``: output rows of every linear layer of the diffusers model. Raises ConfigError for a layer that isn't among them or
    that the map doesn't know.
    """
    if unknown := sorted(layers.keys() - widths.keys()):
        raise ConfigError(f"the model has no linear layer {unknown[0]}: give the adapter of this very model")
    found: dict[str, LoraLayer] = {}
    for step in key_map.steps([f"{module}.weight" for module in widths], backward=True):
        modules = [name.removesuffix(".weight") for name in step.targets]
        parts = [_reordered(layers[m], step.rule.order) if m in layers else None for m in modules]
        if all(part is None for part in parts):
            continue
        layer = fuse(parts, [widths[m] for m in modules]) if len(parts) > 1 else parts[0]
        assert layer is not None
        names = [name.removesuffix(".weight") for name in step.sources]
        downs = [layer.down] if len(names) == 1 else step.rule.backward([layer.down])  # inputs side by side: columns
        found |= {name: LoraLayer(down, layer.up, layer.alpha) for name, down in zip(names, downs, strict=True)}
    return found


def _reordered(layer: LoraLayer, order: Order | None) -> LoraLayer:
    """The change with its output rows as they were before ``order``."""
    if order is None:
        return layer
    back = torch.argsort(order(len(layer.up))).to(layer.up.device)
    return LoraLayer(layer.down, layer.up.index_select(0, back), layer.alpha)
