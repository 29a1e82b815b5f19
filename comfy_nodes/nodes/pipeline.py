"""diffusers pipelines of every family that phys_pipeline knows, inside ComfyUI's memory management."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import comfy.model_management as memory
import folder_paths
import torch
from comfy.model_patcher import ModelPatcher
from comfy_api.latest import io

from phys_pipeline.adapters.layers import adapted_component, linear_layers
from phys_pipeline.adapters.readers import check_fits, open_adapter
from phys_pipeline.errors import AdapterError, ConfigError
from phys_pipeline.families import LoadedModel, family_names, load_model
from phys_pipeline.hub import parse_source

from .adapters import changed, check_name, chosen, lora_names
from .schema import MOTION_ADAPTER, T2V_PIPELINE, field, result, schema

TINY = "tiny (embedded)"
_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
_TOGETHER = 0.85  # of the device's memory: larger pipelines take turns on it


@dataclass(frozen=True)
class PipelineHandle:
    """A loaded pipeline and what is to be done with it; nodes never change one, they give a new one.

    ``parts`` are its large modules as ComfyUI's memory management holds them; empty where diffusers moves them itself.
    ``adapters`` are the files that the sampler puts on for the physics video, each with its weight.
    """

    model: LoadedModel
    parts: tuple[ModelPatcher, ...]
    adapters: tuple[tuple[Path, float], ...] = ()

    @contextmanager
    def on_device(self) -> Iterator[LoadedModel]:
        """The model where it runs. Other models make room first; what diffusers moved goes back afterwards."""
        pipeline = self.model.pipeline
        if self.parts:
            memory.load_models_gpu(list(self.parts), force_full_load=True)
        else:
            memory.free_memory(memory.get_total_memory(memory.get_torch_device()), memory.get_torch_device())
        try:
            yield self.model
        finally:
            if not self.parts:
                pipeline.maybe_free_model_hooks()
            memory.soft_empty_cache()


class _Holder(torch.nn.Module):
    """A bare module around a diffusers model, whose read-only ``device`` ComfyUI's patcher would want to set."""

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self.module = module


def pipeline_handle(source: str, dtype: str, family: str | None, offload: str, tiling: bool) -> PipelineHandle:
    """Load a pipeline and hand its parts to ComfyUI's memory management."""
    device = memory.get_torch_device()
    if dtype == "auto":
        dtype = "bf16" if device.type != "cpu" and memory.should_use_bf16(device) else "fp32"
    model = load_model(source, _DTYPES[dtype], family)
    pipeline = model.pipeline
    vae = getattr(pipeline, "vae", None)
    if tiling and hasattr(vae, "enable_tiling"):
        vae.enable_tiling()
    modules = [part for part in pipeline.components.values() if isinstance(part, torch.nn.Module)]
    size = sum(memory.module_size(module) for module in modules)
    if offload == "auto":
        fits = device.type == "cpu" or size < _TOGETHER * memory.get_total_memory(device)
        offload = "none" if fits else "model"
    if offload == "none" or device.type == "cpu":
        back = memory.unet_offload_device()
        return PipelineHandle(model, tuple(ModelPatcher(_Holder(module), device, back) for module in modules))
    if offload == "model":
        pipeline.enable_model_cpu_offload(device=device)
    else:
        pipeline.enable_sequential_cpu_offload(device=device)
    return PipelineHandle(model, ())


class LoadPipeline(io.ComfyNode):
    @classmethod
    def define_schema(cls) -> io.Schema:
        return schema(
            "LoadPipeline",
            category="PhysMotion/loaders",
            search_aliases=["diffusers", "open-sora", "text to video"],
            inputs=[
                field(io.Combo, "source", options=_sources()),
                field(io.Combo, "family", options=["auto", *family_names()], default="auto"),
                field(io.Combo, "dtype", options=["auto", *_DTYPES], default="auto"),
                field(io.Combo, "offload", options=["auto", "none", "model", "sequential"], default="auto"),
                field(io.Boolean, "vae_tiling", default=True),
                field(io.String, "repo_id", optional=True, default=""),
            ],
            outputs=[result(T2V_PIPELINE, "pipeline")],
        )

    @classmethod
    def validate_inputs(cls, source: str | None = None, repo_id: str = "") -> bool | str:
        if source is None or repo_id or source in _sources():
            return True
        return f"there is no model {source!r} in models/diffusers: put a folder with a model_index.json there, or give repo_id"

    @classmethod
    def execute(cls, source: str, family: str, dtype: str, offload: str, vae_tiling: bool, repo_id: str = "") -> io.NodeOutput:
        path = repo_id.strip() or _folder(source)
        if repo_id.strip():
            parse_source(path)  # a workflow of somebody else names no folder of this machine
        return io.NodeOutput(pipeline_handle(path, dtype, None if family == "auto" else family, offload, vae_tiling))


class PipelineLoRA(io.ComfyNode):
    @classmethod
    def define_schema(cls) -> io.Schema:
        return schema(
            "PipelineLoRA",
            category="PhysMotion/loaders",
            search_aliases=["lora", "adapter"],
            inputs=[
                field(T2V_PIPELINE, "pipeline"),
                field(io.Combo, "lora_name", options=lora_names()),
                field(io.Float, "weight", default=1.0, min=-10.0, max=10.0, step=0.05),
                field(MOTION_ADAPTER, "adapter", optional=True),
            ],
            outputs=[result(T2V_PIPELINE, "pipeline")],
        )

    @classmethod
    def validate_inputs(cls, lora_name: str | None = None) -> bool | str:
        return check_name(lora_name)

    @classmethod
    def fingerprint_inputs(cls, lora_name: str | None = None, **_: Any) -> str:
        return changed(lora_name)

    @classmethod
    def execute(
        cls, pipeline: PipelineHandle, lora_name: str, weight: float, adapter: dict[str, Any] | None = None
    ) -> io.NodeOutput:
        path = chosen(lora_name, adapter)
        file = open_adapter(path)
        transformer = getattr(pipeline.model.pipeline, adapted_component(file.provenance), None)
        if transformer is None:
            raise AdapterError(f"{path.name} is for the low-noise expert of a model with two: this one has no such part")
        check_fits(file, linear_layers(transformer), type(transformer).__name__)
        return io.NodeOutput(replace(pipeline, adapters=(*pipeline.adapters, (path, weight))))


def _sources() -> list[str]:
    """The embedded model, and every folder with a model_index.json in the folders for diffusers models."""
    found = {
        str(index.parent.relative_to(root))
        for root in map(Path, folder_paths.get_folder_paths("diffusers"))
        for index in root.glob("*/model_index.json")
    }
    return [TINY, *sorted(found)]


def _folder(source: str) -> str:
    if source == TINY:
        return "tiny"
    for root in map(Path, folder_paths.get_folder_paths("diffusers")):
        if (root / source / "model_index.json").is_file():
            return str(root / source)
    raise ConfigError(f"there is no model {source!r} in models/diffusers: put a folder with a model_index.json there")
