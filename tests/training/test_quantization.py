import json

import pytest
import torch
from tiny import tiny_transformer
from training_run import make_base, records, settings, weights

from phys_pipeline.adapters import inject_lora, load_adapter
from phys_pipeline.adapters.layers import linear_layers
from phys_pipeline.errors import ConfigError
from phys_pipeline.families import get_family
from training.config import TrainConfig
from training.loop import train
from training.quantization import PACKAGES, check_quantization, quantize_blocks

ERROR = {"int8": 0.02, "nf4": 0.12}  # of a weight matrix, in the Frobenius norm; rounding a Gaussian to either gives about half


@pytest.mark.parametrize("kind", ["int8", "nf4"])
def test_a_missing_package_is_named(kind, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=f"base_quantization={kind} needs .*: pip install {PACKAGES[kind]}"):
        check_quantization(TrainConfig(base_quantization=kind))
    check_quantization(TrainConfig())


@pytest.mark.parametrize("kind", ["int8", "nf4"])
def test_linear_layers_of_the_blocks_alone_are_quantised_and_near(kind):
    pytest.importorskip(PACKAGES[kind])
    model, before = tiny_transformer(), tiny_transformer()
    quantize_blocks(model, kind, torch.device("cpu"))
    after = linear_layers(model)
    for name, old in linear_layers(before).items():
        new = after[name]
        inside = name.startswith(("transformer_blocks.", "single_transformer_blocks."))
        assert (type(new.weight) is not torch.nn.Parameter) == inside, name
        if inside:  # what the layer computes, applied to the unit vectors, is its weight
            seen = new(torch.eye(old.in_features)) - new.bias
            assert 0 < (seen - old.weight.T).norm() < ERROR[kind] * old.weight.norm(), name
    trained = inject_lora(model, rank=2)
    assert {p.dtype for p in trained} == {torch.float32} and not any(
        p.requires_grad for n, p in model.named_parameters() if "lora_" not in n
    )


@pytest.mark.usefixtures("fresh_accelerate_state")
@pytest.mark.parametrize("kind", ["int8", "nf4"])
def test_an_adapter_trained_on_it_is_an_ordinary_one(kind, tmp_path):
    pytest.importorskip(PACKAGES[kind])
    base = make_base(tmp_path / "base")
    changes = {"max_train_steps": 3, "checkpoint_every": 2, "motion_weight": 0.0, "trackers": [], "precision": "bf16"}
    changes |= {"gradient_checkpointing": True}
    train(settings(base, tmp_path / "plain", **changes), progress=False)
    train(settings(base, tmp_path / "run", base_quantization=kind, **changes), progress=False)
    plain, ours = records(tmp_path / "plain"), records(tmp_path / "run")
    for a, b in zip(plain, ours, strict=True):
        assert a["denoising"] == pytest.approx(b["denoising"], rel=0.03) and a["denoising"] != b["denoising"]
    pipeline = get_family("hunyuan_video").load("pipeline", str(base / "model"))
    info = load_adapter(pipeline, tmp_path / "run")
    assert info.delta > 0 and weights(tmp_path / "run").keys() == weights(tmp_path / "plain").keys()
    about = json.loads((tmp_path / "run" / "provenance.json").read_text())
    assert about["config"]["base_quantization"] == kind == info.provenance["base_quantization"]
    again = settings(base, tmp_path / "again", base_quantization=kind, resume=str(tmp_path / "run" / "checkpoint-2"), **changes)
    train(again, progress=False)
    a, b = weights(tmp_path / "run"), weights(tmp_path / "again")
    assert all(torch.equal(a[k], b[k]) for k in a)
    with pytest.raises(ConfigError, match=f"base_quantization={kind} and this run base_quantization=none"):
        train(settings(base, tmp_path / "other", resume=str(tmp_path / "run" / "checkpoint-2"), **changes), progress=False)
