"""Where models come from: broken folders, missing ones and the Hub's cache, each with a one-line error."""

import os
import shutil

import pytest
from tiny import GENERATION

from phys_pipeline.errors import ModelError
from phys_pipeline.families import as_loaded, load_model, sources


def _copy(folder, target):
    shutil.copytree(folder, target, copy_function=os.link)
    return target


def _replace(path, text):
    path.unlink()  # the copy is made of hard links
    path.write_text(text)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: (f / "model_index.json").unlink(), "no model_index.json"),
        (lambda f: _replace(f / "model_index.json", '{"_class_name": "WanPipeline"}'), "holds a WanPipeline, not a Hunyuan"),
        (lambda f: _replace(f / "model_index.json", "{"), "can't read model_index.json"),
        (lambda f: shutil.rmtree(f / "vae"), "has no vae folder"),
        (lambda f: (f / "transformer" / "diffusion_pytorch_model.safetensors").unlink(), "can't load transformer"),
        (lambda f: _replace(f / "vae" / "diffusion_pytorch_model.safetensors", "x"), "can't load vae"),
        (lambda f: _replace(f / "phys_pipeline.json", "["), "not valid JSON"),
        (lambda f: _replace(f / "phys_pipeline.json", '{"generation": {"frames": 5}}'), "unknown generation settings"),
        (
            lambda f: _replace(
                f / "model_index.json",
                (f / "model_index.json").read_text().replace('"diffusers",\n    "Auto', '"os",\n    "Auto'),
            ),
            "only diffusers, transformers and phys_pipeline classes",
        ),
    ],
)
def test_broken_folders_are_one_line_errors(folder, tmp_path, damage, message):
    broken = _copy(folder, tmp_path / "broken")
    damage(broken)
    with pytest.raises(ModelError, match=message) as caught:
        load_model(str(broken))
    assert "\n" not in str(caught.value)


def test_missing_weights_are_not_made_up(folder, tmp_path, family):
    from safetensors.torch import load_file, save_file

    broken = _copy(folder, tmp_path / "broken")
    path = broken / "transformer" / "diffusion_pytorch_model.safetensors"
    tensors = load_file(path)
    lost = next(k for k in tensors if k.startswith("transformer_blocks"))
    del tensors[lost]
    path.unlink()
    save_file(tensors, path, metadata={"format": "pt"})
    with pytest.raises(ModelError, match=lost):
        family.load("transformer", str(broken))


def test_missing_sources_say_how_to_get_them(family, tmp_path, monkeypatch):
    with pytest.raises(ModelError, match="no model folder"):
        family.load("pipeline", str(tmp_path / "none"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ModelError, match="hf download nobody/nothing") as caught:
        family.load("pipeline", "nobody/nothing")
    assert "\n" not in str(caught.value)
    monkeypatch.setattr(sources, "tiny_folder", lambda: tmp_path)
    with pytest.raises(ModelError, match=r"run training/pretrain_tiny\.py"):
        family.load("pipeline", "tiny")


def test_a_model_in_the_hub_cache_loads_offline(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    repository, commit = tmp_path / "models--someone--tiny", "0123456789abcdef0123456789abcdef01234567"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(commit)
    _copy(folder, repository / "snapshots" / commit)
    model = load_model("someone/tiny")
    assert model.source == "someone/tiny" and model.defaults["num_frames"] == GENERATION["num_frames"]
    assert model.family.generation_defaults("someone/tiny")["fps"] == GENERATION["fps"]
    (repository / "snapshots" / commit / "phys_pipeline.json").unlink()
    assert as_loaded(model.pipeline).revision == commit
    _replace(repository / "snapshots" / commit / "model_index.json", '{"_class_name": "SanaPipeline"}')
    with pytest.raises(ModelError, match="someone/tiny holds a SanaPipeline"):
        load_model("someone/tiny")
