"""LoRA changes in the layout of a model's official checkpoint, by the same rules as its weights."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch

from phys_pipeline.adapters.files import write_tensors
from phys_pipeline.adapters.layers import linear_layers
from phys_pipeline.adapters.weights import LoraLayer, fuse
from phys_pipeline.errors import AdapterError, ConfigError, first_line
from phys_pipeline.models.key_map import KeyMap, Order


def write_original(path: Path, layers: Mapping[str, LoraLayer], model: str, metadata: Mapping[str, str]) -> int:
    """Write the changes of diffusers layers under the official names of ``model``, a converted folder or a Hub id with one.

    Every layer has ``NAME.lora_A.weight`` (down), ``NAME.lora_B.weight`` (up) and ``NAME.alpha``; the number of layers is
    returned. Only the transformer's config is read of the model. ConfigError for a model whose files no converter knows or a
    layer that it lacks, AdapterError if there is no config.
    """
    from phys_pipeline.families import find_family
    from phys_pipeline.models.convert_command import conversions_of

    spec = find_family(model).spec
    key_map = next(c.key_map for c in conversions_of(spec.name).CONVERSIONS if c.part == "transformer")
    transformer_class = spec.load_class("transformer")
    try:
        config = transformer_class.load_config(model, subfolder="transformer")
    except Exception as error:  # OSError and several of the Hub's
        raise AdapterError(f"{model} has no transformer/config.json ({first_line(error)}): give a converted folder") from error
    with torch.device("meta"):
        transformer = transformer_class.from_config(config)
    widths = {name: layer.out_features for name, layer in linear_layers(transformer).items()}
    original = to_original(layers, key_map, widths)
    tensors: dict[str, torch.Tensor] = {}
    for name, layer in original.items():
        tensors |= {f"{name}.lora_A.weight": layer.down, f"{name}.lora_B.weight": layer.up}
        tensors[f"{name}.alpha"] = torch.tensor(layer.alpha)
    write_tensors(path, tensors, metadata)
    return len(original)


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
