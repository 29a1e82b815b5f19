import json
import subprocess
import sys

import pytest
from huggingface_hub import constants
from tiny_evaluation import forget_tensor, save_clip, save_in_hub_cache

from phys_pipeline.errors import ModelError
from phys_pipeline.evaluation.metric import Settings, Weights
from phys_pipeline.evaluation.pretrained import Pretrained, cached_folder, fetch, is_complete, is_offline, load_model

WEIGHTS = Weights("owner/tiny", "a" * 40, 84_000, "MIT", ("*.json", "model.safetensors"))
MODEL = Pretrained(WEIGHTS, "clip.model", "clip_score")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_clip(tmp_path_factory.mktemp("clip") / "tiny_clip")


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty Hub cache, and no network allowed."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return tmp_path / "hub"


def test_a_folder_takes_the_place_of_the_repository(folder, cache):
    settings = Settings(options={"clip.model": str(folder)})
    assert MODEL.available(settings).ok and MODEL.folder(settings) == folder and MODEL.name(settings) == "tiny_clip"


def test_a_folder_without_weights_is_refused(tmp_path):
    settings = Settings(options={"clip.model": str(tmp_path)})
    assert "fetch the model again" in MODEL.available(settings).reason
    with pytest.raises(ModelError, match="fetch the model again"):
        MODEL.folder(settings)


def test_another_repository_takes_its_place(cache):
    settings = Settings(options={"clip.model": "other/large@v2"})
    assert MODEL.name(settings) == "other/large@v2"
    assert "other/large is not in the Hub's cache" in MODEL.available(settings).reason
    assert MODEL.name(Settings()) == "owner/tiny@aaaaaaaa"


def test_what_is_neither_is_refused():
    settings = Settings(options={"clip.model": "no such folder"})
    assert not MODEL.available(settings).ok
    with pytest.raises(ModelError, match="OWNER/NAME@REVISION"):
        MODEL.resolve(settings)


def test_the_cache_is_used_at_exactly_this_revision(folder, cache):
    assert cached_folder(WEIGHTS) is None
    snapshot = save_in_hub_cache(folder, cache, "owner/tiny", "b" * 40)
    assert not MODEL.available(Settings()).ok
    snapshot = save_in_hub_cache(folder, cache, "owner/tiny", "a" * 40)
    assert MODEL.available(Settings()).ok and MODEL.folder(Settings()) == snapshot
    (snapshot / "model.safetensors").unlink()
    assert cached_folder(WEIGHTS) is None


def test_offline_names_the_command_and_online_may_download(cache, monkeypatch):
    assert is_offline(Settings())
    reason = MODEL.available(Settings()).reason
    assert "run `phys-pipeline doctor --fetch clip_score` online" in reason and "MIT" in reason
    with pytest.raises(ModelError, match="not in the Hub's cache"):
        MODEL.folder(Settings())
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    assert not is_offline(Settings()) and is_offline(Settings(offline=True))
    assert MODEL.available(Settings()).ok and "will be downloaded" in MODEL.available(Settings()).reason
    assert not MODEL.available(Settings(offline=True)).ok


def test_downloads_only_the_files_named(folder, monkeypatch, cache):
    asked = {}

    def snapshot_download(repository, **keywords):
        asked[repository] = keywords
        return str(folder)

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot_download)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    assert MODEL.folder(Settings()) == folder
    assert asked == {"owner/tiny": {"revision": "a" * 40, "allow_patterns": ["*.json", "model.safetensors"]}}


def test_a_download_that_fails_or_lacks_weights_says_so(monkeypatch, cache, tmp_path):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    with monkeypatch.context() as patch:
        patch.setattr("huggingface_hub.snapshot_download", lambda *_, **__: str(tmp_path))
        with pytest.raises(ModelError, match="no whole model"):
            MODEL.folder(Settings())

    def refuse(*_, **__):
        raise OSError("gated")

    monkeypatch.setattr("huggingface_hub.snapshot_download", refuse)
    with pytest.raises(ModelError, match="hf auth login"):
        fetch(WEIGHTS)
    with pytest.raises(ModelError, match="on no Hub"):
        fetch(Weights("a file of your own", "", 0, "unknown"))


def test_every_shard_counts(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    (tmp_path / "model-00001-of-00002.safetensors").touch()
    assert not is_complete(tmp_path)
    (tmp_path / "model-00002-of-00002.safetensors").touch()
    assert is_complete(tmp_path)


def test_weights_that_lack_a_tensor_are_not_filled_with_random_numbers(tmp_path):
    from transformers import CLIPModel

    folder = save_clip(tmp_path / "tiny_clip")
    assert not load_model(CLIPModel, folder, "cpu").training
    forget_tensor(folder, "visual_projection.weight")
    with pytest.raises(ModelError, match="lack visual_projection"):
        load_model(CLIPModel, folder, "cpu")


def test_pickled_weights_of_an_older_release_load_too(tmp_path):
    """The pinned CLIP has no safetensors, and holds position numbers that are no weights today."""
    import torch
    from transformers import CLIPModel

    folder = save_clip(tmp_path / "tiny_clip")
    expected = load_model(CLIPModel, folder, "cpu").state_dict()
    older = {**expected, "vision_model.embeddings.position_ids": torch.arange(17)[None]}
    torch.save(older, folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    found = load_model(CLIPModel, folder, "cpu").state_dict()
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


def test_describing_metrics_and_looking_for_their_weights_loads_no_model_library():
    code = """
import sys
from phys_pipeline.evaluation.metric import Settings
from phys_pipeline.evaluation.metrics import aggregates, blip_bleu, clip_scores, dover, sd_score, video_mae
for metric in (clip_scores.ClipScores, sd_score.SdScore, blip_bleu.BlipBleu, video_mae.ActionRecognition, dover.Dover):
    metric(Settings(offline=True)).available()
print(*{"torch", "transformers", "diffusers", "onnxruntime", "cv2", "torchvision"} & set(sys.modules))
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == ""
