"""LoRA adapters: inject, save with proof, load with reasons."""

from phys_pipeline.adapters.layers import (
    adapter_at,
    adapter_names,
    adapters_kept,
    pipeline_adapter_at,
    pipeline_adapters_at,
    transformers_of,
)
from phys_pipeline.adapters.lora import AdapterInfo, find_adapter, inject_lora, load_adapter, save_adapter, unload_adapter

__all__ = [
    "AdapterInfo",
    "adapter_at",
    "adapter_names",
    "adapters_kept",
    "find_adapter",
    "inject_lora",
    "load_adapter",
    "pipeline_adapter_at",
    "pipeline_adapters_at",
    "save_adapter",
    "transformers_of",
    "unload_adapter",
]
