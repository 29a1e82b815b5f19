"""Linear layers of a transformer, seen through an adapter."""

from tiny_adapter import RANK
from torch import nn

from phys_pipeline.adapters import inject_lora
from phys_pipeline.adapters.layers import linear_layers


def test_linear_layers_look_the_same_with_and_without_adapter(pipeline):
    plain = {n: tuple(m.weight.shape) for n, m in linear_layers(pipeline.transformer).items()}
    inject_lora(pipeline.transformer, RANK)
    assert {n: tuple(m.weight.shape) for n, m in linear_layers(pipeline.transformer).items()} == plain
    assert linear_layers(nn.Linear(2, 3)).keys() == {""}
