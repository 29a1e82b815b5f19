"""A frozen base in fewer bits under a LoRA in float32 (Dettmers et al. 2023, arXiv:2305.14314): the blocks' linear layers.

`int8` keeps a weight in 8 bits with one scale for each output (torchao), `nf4` in 4-bit normal floats with one scale for each 64
weights (bitsandbytes). The rest of the model stays as it was, and so does an adapter's file.
"""

from __future__ import annotations

import importlib.util
from typing import Any

import torch
from torch import nn

from phys_pipeline.adapters.layers import linear_layers
from phys_pipeline.errors import ConfigError
from training.config import TrainConfig
from training.sharding import transformer_blocks

PACKAGES = {"int8": "torchao", "nf4": "bitsandbytes"}
BYTES = {"int8": 1.0, "nf4": 0.5 + 4 / 64}  # for each weight; int8 has 2 or 4 bytes more for each output


def check_quantization(config: TrainConfig) -> None:
    """Raise ConfigError when the package that `base_quantization` needs is missing."""
    package = PACKAGES.get(config.base_quantization)
    if package is not None and importlib.util.find_spec(package) is None:
        raise ConfigError(f"base_quantization={config.base_quantization} needs {package}: pip install {package}")


def quantize_blocks(model: Any, kind: str, device: torch.device) -> None:
    """Quantise the linear layers of the model's blocks, moving one layer at a time to `device`. Before an adapter is put on."""
    names = {id(layer): name for name, layer in linear_layers(model).items()}
    for block in transformer_blocks(model):
        if kind == "int8":
            from torchao.quantization import Int8WeightOnlyConfig, quantize_

            quantize_(block, Int8WeightOnlyConfig(), device=device)
            continue
        for layer in linear_layers(block).values():
            model.set_submodule(names[id(layer)], _four_bits(layer, device))
    model.is_loaded_in_4bit = kind == "nf4"  # peft then puts its own 4-bit layer around these


def _four_bits(layer: nn.Linear, device: torch.device) -> nn.Module:
    from bitsandbytes.nn import Linear4bit, Params4bit

    bias = layer.bias is not None
    new: Any = Linear4bit(
        layer.in_features, layer.out_features, bias, compute_dtype=layer.weight.dtype, quant_type="nf4", device="meta"
    )
    weight: Any = Params4bit(layer.weight.data, requires_grad=False, quant_type="nf4", module=new)
    new.weight = weight.to(device)
    new.bias = layer.bias
    return new
