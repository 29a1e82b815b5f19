import sys
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from phys_pipeline.errors import ConfigError
from training.config import TrainConfig
from training.optimizer import WeightAverage, make_optimizer


def test_average_is_exponential_and_swaps_in_and_out():
    parameter = nn.Parameter(torch.tensor([8.0]))
    average = WeightAverage([parameter], 0.75)
    expected = 8.0
    for value in (4.0, 2.0):
        parameter.data.fill_(value)
        average.update()
        expected = 0.75 * expected + 0.25 * value
    assert average.average[0].item() == pytest.approx(expected)
    with average.in_place():
        assert parameter.item() == pytest.approx(expected)
    assert parameter.item() == 2.0
    with pytest.raises(ConfigError, match="another model"):
        average.load([torch.zeros(2)])


def test_steps_are_those_of_plain_adamw():
    start = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    ours, plain = nn.Parameter(start.clone()), nn.Parameter(start.clone())
    config = TrainConfig(learning_rate=0.1, weight_decay=0.2)
    optimizers = make_optimizer([ours], config), torch.optim.AdamW([plain], lr=0.1, weight_decay=0.2, foreach=False)
    for step in range(3):
        for parameter, optimizer in zip((ours, plain), optimizers, strict=True):
            parameter.grad = torch.sin(start * (step + 1))
            optimizer.step()
    torch.testing.assert_close(ours, plain, rtol=1e-5, atol=1e-6)
    assert not torch.allclose(ours, start, atol=0.1)


def test_eight_bits_need_bitsandbytes(monkeypatch):
    config, parameters = TrainConfig(optimizer="adamw8bit", learning_rate=0.5), [nn.Parameter(torch.zeros(1))]
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    with pytest.raises(ConfigError, match="pip install bitsandbytes"):
        make_optimizer(parameters, config)
    seen = {}
    fake = SimpleNamespace(optim=SimpleNamespace(AdamW8bit=lambda p, **options: seen.update(options)))
    monkeypatch.setitem(sys.modules, "bitsandbytes", fake)
    make_optimizer(parameters, config)
    assert seen == {"lr": 0.5, "weight_decay": 0.01}
