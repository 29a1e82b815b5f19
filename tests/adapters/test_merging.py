"""A merged model is the base with the adapter on, in a folder of its own."""

import json
import shutil
import tracemalloc

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny import save_tiny, tiny_pipeline
from tiny_adapter import output, sha

from phys_pipeline.adapters import load_adapter
from phys_pipeline.adapters.formats import WEIGHTS_FILE
from phys_pipeline.adapters.layers import linear_layers
from phys_pipeline.adapters.merging import merge_adapter
from phys_pipeline.adapters.readers import open_adapter
from phys_pipeline.errors import AdapterError
from phys_pipeline.families import load_model


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return save_tiny(tmp_path_factory.mktemp("merge") / "base")


@pytest.mark.parametrize(("file", "weight"), [(WEIGHTS_FILE, 1.0), ("comfyui/good.safetensors", 0.5)])
def test_the_merged_model_equals_the_base_with_the_adapter(saved, base, tmp_path, file, weight):
    before = sha(base)
    assert merge_adapter(saved / file, str(base), tmp_path / "merged", weight) == 11
    merged, applied = load_model(str(tmp_path / "merged")), load_model(str(base))
    load_adapter(applied, saved, weight=weight)
    assert (output(merged.pipeline) - output(applied.pipeline)).abs().max() <= 2e-6
    assert sha(base) == before and merged.revision != applied.revision
    about = json.loads((tmp_path / "merged" / "phys_pipeline.json").read_text())
    assert (
        about["merged"]["weight"] == weight
        and about["generation"] == json.loads((base / "phys_pipeline.json").read_text())["generation"]
    )
    names = {path.relative_to(base) for path in base.rglob("*")}
    assert {path.relative_to(tmp_path / "merged") for path in (tmp_path / "merged").rglob("*")} == names
    untouched = "transformer/diffusion_pytorch_model.safetensors"
    old, new = load_file(base / untouched), load_file(tmp_path / "merged" / untouched)
    assert sum(not torch.equal(old[name], new[name]) for name in old) == 11


def test_shards_and_half_precision(saved, tmp_path):
    pipeline = tiny_pipeline().to(torch.bfloat16)
    base = save_tiny(tmp_path / "base", pipeline)
    pipeline.transformer.save_pretrained(base / "transformer", max_shard_size="40KB")
    (base / "transformer" / "diffusion_pytorch_model.safetensors").unlink()
    assert len(list((base / "transformer").glob("*.safetensors"))) > 2
    merge_adapter(saved / WEIGHTS_FILE, str(base), tmp_path / "merged")
    merged = load_model(str(tmp_path / "merged"), torch.bfloat16).pipeline.transformer
    layers = open_adapter(saved / WEIGHTS_FILE).read()
    for name, layer in linear_layers(pipeline.transformer).items():
        wanted = (layer.weight.float() + layers[name].delta()).bfloat16() if name in layers else layer.weight
        assert torch.equal(merged.get_submodule(name).weight, wanted)


def test_memory_is_bounded_by_a_tensor_not_by_the_model(saved, base, tmp_path):
    folder = tmp_path / "base"
    shutil.copytree(base, folder)
    weights = folder / "transformer" / "diffusion_pytorch_model.safetensors"
    save_file(load_file(weights) | {f"more.{i}": torch.zeros(1 << 20) for i in range(50)}, weights)  # 200 MB
    tracemalloc.start()
    merge_adapter(saved / WEIGHTS_FILE, str(folder), tmp_path / "merged")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40 << 20


def test_what_does_not_fit_writes_nothing(saved, base, tmp_path):
    other = save_tiny(tmp_path / "other", tiny_pipeline(num_attention_heads=4))
    quantised = save_tiny(tmp_path / "quantised")
    weights = quantised / "transformer" / "diffusion_pytorch_model.safetensors"
    save_file({name: value.to(torch.float8_e4m3fn) for name, value in load_file(weights).items()}, weights)
    for model, output_folder, weight, message in (
        (other, tmp_path / "m", 1.0, r"20x20.*has the shape \(40, 40\)"),
        (quantised, tmp_path / "m", 1.0, "not quantised"),
        (base, base, 1.0, "is the base model itself"),
        (base, tmp_path / "m", float("nan"), "not a number"),
        (base, tmp_path / "m", 1e39, "hold NaN or infinity"),
    ):
        with pytest.raises(AdapterError, match=message):
            merge_adapter(saved / WEIGHTS_FILE, str(model), output_folder, weight)
    assert not (tmp_path / "m").exists() and not list(tmp_path.glob(".*"))
