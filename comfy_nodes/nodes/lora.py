"""A motion LoRA of any format on ComfyUI's own HunyuanVideo or Wan."""

from __future__ import annotations

from typing import Any

import comfy.sd
from comfy_api.latest import io

from phys_pipeline.adapters.comfyui import PREFIX, tensors_for_comfyui
from phys_pipeline.adapters.formats import describe_format
from phys_pipeline.adapters.hub import sha256
from phys_pipeline.adapters.readers import open_adapter
from phys_pipeline.errors import AdapterError

from .adapters import changed, check_name, chosen, described, lora_names
from .schema import MOTION_ADAPTER, field, result, schema

_BYPASS = hasattr(comfy.sd, "load_bypass_lora_for_models")


class LoadLoRA(io.ComfyNode):
    @classmethod
    def define_schema(cls) -> io.Schema:
        return schema(
            "LoadLoRA",
            category="PhysMotion/loaders",
            search_aliases=["lora", "motion lora", "load lora", "diffusers lora"],
            inputs=[
                field(io.Model, "model"),
                field(io.Combo, "lora_name", options=lora_names()),
                field(io.Float, "strength", default=1.0, min=-10.0, max=10.0, step=0.05),
                field(io.Combo, "apply_mode", options=["merge", "bypass"] if _BYPASS else ["merge"], default="merge"),
                field(MOTION_ADAPTER, "adapter", optional=True),
            ],
            outputs=[result(io.Model, "model"), result(io.String, "info")],
        )

    @classmethod
    def validate_inputs(cls, lora_name: str | None = None) -> bool | str:
        return check_name(lora_name)

    @classmethod
    def fingerprint_inputs(cls, lora_name: str | None = None, **_: Any) -> str:
        return changed(lora_name)

    @classmethod
    def execute(
        cls, model: Any, lora_name: str, strength: float, apply_mode: str, adapter: dict[str, Any] | None = None
    ) -> io.NodeOutput:
        path = chosen(lora_name, adapter)
        if strength == 0:
            return io.NodeOutput(model, f"{path.name}: strength 0, the model is as it was")
        file = open_adapter(path)
        shapes = {name: tuple(weight.shape) for name, weight in model.model.state_dict().items() if name.startswith(PREFIX)}
        tensors = tensors_for_comfyui(file, shapes, type(model.model).__name__)
        load = comfy.sd.load_bypass_lora_for_models if apply_mode == "bypass" else comfy.sd.load_lora_for_models
        patched, _ = load(model, None, tensors, strength, 0)
        if apply_mode == "merge":
            applied = sum(1 for key, patches in patched.patches.items() if len(patches) > len(model.patches.get(key, ())))
            if applied != len(tensors) // 2:
                raise AdapterError(
                    f"ComfyUI applied {applied} of {len(tensors) // 2} layers of {path.name}: report this with its version"
                )
        layers = f"{describe_format(file.format)}, changes {len(tensors) // 2} of the model's layers"
        info = f"{described(file)}\n{layers}, sha256 {sha256(path)}"
        if file.skipped:
            info += f"\nleft out: {len(file.skipped)} tensors that are not for the video model, such as {file.skipped[0]}"
        return io.NodeOutput(patched, info)
