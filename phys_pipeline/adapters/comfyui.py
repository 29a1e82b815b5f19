"""A LoRA file of any format, made to fit a HunyuanVideo or Wan that ComfyUI has loaded."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from phys_pipeline.adapters.files import shown
from phys_pipeline.adapters.names import comfyui_layer, original_layer
from phys_pipeline.adapters.readers import AdapterFile
from phys_pipeline.adapters.writers import native_tensors
from phys_pipeline.errors import AdapterError

PREFIX = "diffusion_model."


def tensors_for_comfyui(file: AdapterFile, shapes: Mapping[str, tuple[int, ...]], model: str) -> dict[str, Tensor]:
    """The file's changes under ComfyUI's own names, with alpha folded in: ``diffusion_model.NAME.lora_A.weight`` and ``lora_B``.

    ``shapes`` are those of the model's weights by name, ``diffusion_model.NAME.weight``; ``model`` is what it is called in a
    message. Raises AdapterError unless every layer of the file is in the model and as wide as there.
    """
    layers = file.read()
    trained_for = file.provenance.get("base_model")
    advice = f"it was trained for {shown(trained_for)}" if isinstance(trained_for, str) else "use one trained for this model"
    widths: dict[str, int] = {}
    missing = []
    for module in layers:
        name = comfyui_layer(module)
        shape = shapes.get(f"{PREFIX}{name}.weight") if name is not None else None
        if name is None or shape is None:
            missing.append(module)
            continue
        parts = original_layer(module)[0].parts  # type: ignore[index]  # it has a name
        if len(parts) > 1:  # three parts as wide as the layer's input, and the feed-forward's rows if there is a fourth
            equal = shape[0] // 3 if len(parts) == 3 else shape[1]
            widths |= dict(zip(parts, (equal, equal, equal, shape[0] - 3 * equal), strict=False))
    if missing:
        raise AdapterError(f"{file.path} is for another model: {len(missing)} of its {len(layers)} layers are not in this "
                           f"{model}, such as {shown(missing[0])}; {advice}")  # fmt: skip
    tensors = native_tensors(layers, widths)
    for key, down in tensors.items():
        if key.endswith(".lora_A.weight"):
            name = key.removesuffix(".lora_A.weight")
            made = (len(tensors[f"{name}.lora_B.weight"]), down.shape[1])
            if made != tuple(shapes[f"{name}.weight"]):
                raise AdapterError(f"{file.path} is for another model: {name} is {tuple(shapes[f'{name}.weight'])} here and "
                                   f"{made} in the file; {advice}")  # fmt: skip
    return tensors
