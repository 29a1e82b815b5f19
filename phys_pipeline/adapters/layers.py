"""The adapter layers on a transformer: which there are, and switching them without leaving a trace."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

from torch import nn

from phys_pipeline.errors import AdapterError


def adapter_names(transformer: Any) -> list[str]:
    """Names of the adapters a transformer carries, active or not."""
    return list(getattr(transformer, "peft_config", None) or {})


@contextmanager
def adapters_kept(transformer: Any) -> Iterator[None]:
    """Whatever happens inside, the adapters that are there now are afterwards as they were: active or not, strengths,
    switched off or not, trainable or not. So a validation in the middle of training changes nothing."""
    restore = snapshot(transformer)
    try:
        yield
    finally:
        restore()


@contextmanager
def adapters_at(transformer: Any, weights: Mapping[str, float]) -> Iterator[None]:
    """Run with only these adapters active, each at its weight; with none of them every adapter is off. The former state
    returns after."""
    for name in weights:
        if name not in adapter_names(transformer):
            raise AdapterError(f"no adapter named {name!r} is loaded: there is {adapter_names(transformer) or 'none'}")
    with adapters_kept(transformer):
        for _, layer in lora_layers(transformer):
            layer.enable_adapters(bool(weights))
        if weights:
            transformer.set_adapters(list(weights), [checked_weight(weight) for weight in weights.values()])
        yield


def adapter_at(transformer: Any, name: str | None, weight: float = 1.0) -> AbstractContextManager[None]:
    """:func:`adapters_at` with one adapter, or none."""
    return adapters_at(transformer, {} if name is None else {name: weight})


def transformers_of(pipeline: Any) -> list[Any]:
    """The transformers of a pipeline that may carry adapters: one, or Wan 2.2's two."""
    found = (getattr(pipeline, name, None) for name in ("transformer", "transformer_2"))
    return [transformer for transformer in found if transformer is not None]


def adapted_component(provenance: Mapping[str, Any]) -> str:
    """Which transformer of a model folder an adapter is for: of Wan 2.2 that of the expert it was trained on, high noise unless
    it says low."""
    return "transformer_2" if provenance.get("expert") == "low" else "transformer"


@contextmanager
def pipeline_adapters_at(pipeline: Any, weights: Mapping[str, float]) -> Iterator[None]:
    """:func:`adapters_at` on every transformer of a pipeline, on each with those that it carries."""
    transformers = transformers_of(pipeline)
    there = [name for transformer in transformers for name in adapter_names(transformer)]
    for name in weights:
        if name not in there:
            raise AdapterError(f"no adapter named {name!r} is loaded: there is {there or 'none'}")
    with ExitStack() as stack:
        for transformer in transformers:
            carried = adapter_names(transformer)
            stack.enter_context(adapters_at(transformer, {name: weights[name] for name in weights if name in carried}))
        yield


def pipeline_adapter_at(pipeline: Any, name: str | None, weight: float = 1.0) -> AbstractContextManager[None]:
    """:func:`pipeline_adapters_at` with one adapter, or none."""
    return pipeline_adapters_at(pipeline, {} if name is None else {name: weight})


def linear_layers(model: nn.Module) -> dict[str, nn.Linear]:
    """Linear layers by name, seen as if no adapter were there."""
    wrapped = tuple(f"{name}." for name, _ in lora_layers(model))
    layers: dict[str, nn.Linear] = {}
    for name, module in model.named_modules():
        if name.startswith(wrapped):
            continue
        base: Any = module.get_base_layer() if hasattr(module, "get_base_layer") else module
        if isinstance(base, nn.Linear):
            layers[name] = base
    return layers


def lora_layers(model: nn.Module) -> Iterator[tuple[str, Any]]:
    """Layers that carry adapters, by name."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    for name, module in model.named_modules():
        if isinstance(module, BaseTunerLayer):
            yield name, module


def snapshot(transformer: Any) -> Callable[[], None]:
    """A function that puts the state of the adapters that are there now back."""
    states = [
        (layer, list(layer.active_adapters), layer.disable_adapters, dict(layer.scaling)) for _, layer in lora_layers(transformer)
    ]
    trainable = [(parameter, parameter.requires_grad) for parameter in transformer.parameters()]

    def restore() -> None:
        for layer, active, disabled, scaling in states:
            layer.set_adapter(active)
            layer.enable_adapters(not disabled)
            layer.scaling.clear()
            layer.scaling.update(scaling)
        for parameter, flag in trainable:
            parameter.requires_grad_(flag)

    return restore


def checked_weight(weight: float) -> float:
    """``weight`` as a float; AdapterError if it is NaN or infinite."""
    if not math.isfinite(weight):
        raise AdapterError(f"adapter weight {weight} is not a number: use 0 to switch it off, 1 for full strength")
    return float(weight)
