"""LoRA files for diffusers and for ComfyUI, each read back and compared before it appears."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from torch import Tensor

from phys_pipeline.adapters import formats
from phys_pipeline.adapters.files import write_tensors
from phys_pipeline.adapters.names import OriginalLayer, comfyui_layer, original_layer
from phys_pipeline.adapters.readers import open_adapter
from phys_pipeline.adapters.settings import diffusers_metadata, stored_settings
from phys_pipeline.adapters.weights import LoraLayer, distance, fuse, swap_halves
from phys_pipeline.atomic import atomic_file
from phys_pipeline.errors import AdapterError

TARGETS = (formats.DIFFUSERS, formats.COMFYUI)
_FEED_FORWARD_RATIO = 4  # of HunyuanVideo; used only where a file tells nothing about a layer's width and no model is at hand
_TOLERANCE = 1e-6  # float32 folding of alpha changes a layer's norm by about 6e-8


def write_adapter(
    path: Path,
    layers: Mapping[str, LoraLayer],
    target: str,
    metadata: Mapping[str, str],
    widths: Mapping[str, int] | None = None,
) -> Path:
    """Write the changes of diffusers layers as a file for ``"diffusers"`` or ``"comfyui"``; equal input gives equal bytes.

    ``widths``: output rows of the model's layers, for fused layers of which only some parts are changed. The file appears only
    after it was read back and every layer's change came back within a millionth of its norm. Raises AdapterError otherwise, or
    for a layer that the target can't take.
    """
    if target == formats.COMFYUI:
        tensors = comfyui_tensors(layers, widths or {})
    else:
        tensors = diffusers_tensors(layers)
        metadata = {**metadata, **diffusers_metadata(stored_settings(layers))}
    with atomic_file(path) as temporary:
        write_tensors(temporary, tensors, metadata)
        check_same(temporary, layers)
    return path


def diffusers_tensors(layers: Mapping[str, LoraLayer]) -> dict[str, Tensor]:
    """Tensors under diffusers' names, float32; ranks and alphas go into the metadata."""
    tensors = {}
    for module, layer in layers.items():
        tensors[f"transformer.{module}.lora_A.weight"] = layer.down.float()
        tensors[f"transformer.{module}.lora_B.weight"] = layer.up.float()
    return tensors


def comfyui_tensors(layers: Mapping[str, LoraLayer], widths: Mapping[str, int]) -> dict[str, Tensor]:
    """Tensors under the authors' names with ComfyUI's prefix, fused where theirs are, alpha in the weights, no alpha keys.

    ComfyUI reads no alpha from metadata, and diffusers and kijai's wrapper read these names too. Raises AdapterError for a layer
    outside the blocks, which ComfyUI's loader doesn't know by these names: nothing is left out.
    """
    check_exportable(list(layers))
    return _fused_tensors(layers, widths, lambda module: original_layer(module)[1])  # type: ignore[index]  # just checked


def native_tensors(layers: Mapping[str, LoraLayer], widths: Mapping[str, int]) -> dict[str, Tensor]:
    """Tensors under ComfyUI's own names, fused as :func:`comfyui_tensors` fuses them: its loader knows every layer by these, also
    those outside the blocks. Raises AdapterError for a layer that neither HunyuanVideo nor Wan has."""
    for module in layers:
        if original_layer(module) is None:
            raise AdapterError(f"{module} is no layer of HunyuanVideo or Wan: use the adapter with the model it was trained for")
    return _fused_tensors(layers, widths, lambda module: str(comfyui_layer(module)))


def _fused_tensors(
    layers: Mapping[str, LoraLayer], widths: Mapping[str, int], name_of: Callable[[str], str]
) -> dict[str, Tensor]:
    fused: dict[str, tuple[OriginalLayer, dict[int, LoraLayer]]] = {}
    for module, layer in layers.items():
        original, _, part = original_layer(module)  # type: ignore[misc]  # not None: checked by the callers
        fused.setdefault(name_of(module), (original, {}))[1][part] = swap_halves(layer) if original.swapped else layer
    tensors = {}
    for name, (original, given) in fused.items():
        hidden = next(iter(given.values())).down.shape[1]
        rows = [
            given[i].up.shape[0] if i in given else widths.get(part, hidden * (_FEED_FORWARD_RATIO if i == 3 else 1))
            for i, part in enumerate(original.parts)
        ]
        layer = fuse([given.get(i) for i in range(len(rows))], rows)
        tensors[f"diffusion_model.{name}.lora_A.weight"] = layer.down
        tensors[f"diffusion_model.{name}.lora_B.weight"] = layer.up
    return tensors


def check_exportable(modules: list[str]) -> None:
    """Raise AdapterError if ComfyUI's loader would leave one of these diffusers layers out."""
    for module in modules:
        found = original_layer(module)
        if found is None or not found[0].in_blocks:
            raise AdapterError(f"{module} has no name that other readers accept: train and convert layers of the blocks only")


def check_same(path: Path, layers: Mapping[str, LoraLayer]) -> None:
    """Read a LoRA file and raise AdapterError unless it makes the same changes, layer by layer, as ``layers``."""
    found = open_adapter(path).read()
    for module in sorted(found.keys() | layers.keys()):
        given, back = layers.get(module), found.get(module)
        norm = 0.0 if given is None else given.squared_norm() ** 0.5
        if given is not None and back is not None:
            error = distance(given, back)
        else:  # a part of a fused layer that isn't changed
            error = norm if back is None else back.squared_norm() ** 0.5
        if not error <= _TOLERANCE * norm:
            raise AdapterError(f"the written adapter changes {module} by another amount: the disk may be full or failing")
