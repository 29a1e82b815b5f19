import pytest
import torch
from tiny import tiny_transformer

from phys_pipeline.errors import ConfigError, ModelError
from phys_pipeline.families import get_family
from training.config import TrainConfig
from training.weights import attach, load_trained, save_trained

FAMILY = get_family("hunyuan_video")


def test_every_weight_goes_out_and_comes_back(tmp_path):
    model, config = tiny_transformer(), TrainConfig(rank=None)
    parameters = attach(model, config, FAMILY)
    assert len(parameters) == sum(1 for _ in model.parameters()) and all(p.requires_grad for p in parameters)
    assert save_trained(model, tmp_path, config, FAMILY, {"seed": 1}) == tmp_path / "transformer"
    other = tiny_transformer(seed=1)
    attach(other, config, FAMILY)
    load_trained(other, tmp_path)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))
    with pytest.raises(ConfigError, match="another base model"):
        larger = tiny_transformer(num_layers=2)
        attach(larger, config, FAMILY)
        load_trained(larger, tmp_path)


def test_values_that_are_not_finite_are_not_saved(tmp_path):
    model, config = tiny_transformer(), TrainConfig(rank=None)
    attach(model, config, FAMILY)[0].data.fill_(float("nan"))
    with pytest.raises(ModelError, match="NaN or infinity"):
        save_trained(model, tmp_path, config, FAMILY, {})
    assert not list(tmp_path.iterdir())
