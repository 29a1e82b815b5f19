"""Linear layers of a transformer, seen through an adapter."""

import pytest
import torch
from tiny import tiny_pipeline
from tiny_adapter import RANK, output
from torch import nn

from phys_pipeline.adapters import inject_lora, load_adapter, pipeline_adapters_at
from phys_pipeline.adapters.layers import linear_layers
from phys_pipeline.errors import AdapterError


def test_linear_layers_look_the_same_with_and_without_adapter(pipeline):
    plain = {n: tuple(m.weight.shape) for n, m in linear_layers(pipeline.transformer).items()}
    inject_lora(pipeline.transformer, RANK)
    assert {n: tuple(m.weight.shape) for n, m in linear_layers(pipeline.transformer).items()} == plain
    assert linear_layers(nn.Linear(2, 3)).keys() == {""}


def test_several_adapters_add_up(saved):
    """The same one twice at half its weight is it at its whole; with none on the output is the base model's; all come back."""
    pipeline = tiny_pipeline()
    base = output(pipeline)
    for name in ("one", "two"):
        load_adapter(pipeline, saved, name=name)
    before = output(pipeline)
    with pipeline_adapters_at(pipeline, {"one": 1.0}):
        whole = output(pipeline)
    with pipeline_adapters_at(pipeline, {"one": 0.5, "two": 0.5}):
        halves = output(pipeline)
    with pipeline_adapters_at(pipeline, {}):
        assert torch.equal(output(pipeline), base)
    assert torch.allclose(halves, whole, atol=1e-5) and not torch.allclose(whole, base, atol=1e-3)
    assert torch.equal(output(pipeline), before)
    with pytest.raises(AdapterError, match="three"), pipeline_adapters_at(pipeline, {"one": 1.0, "three": 1.0}):
        pass
