"""Which models and adapters a visitor may name, on one's own machine and on a server."""

from __future__ import annotations

from dataclasses import replace

import pytest

from phys_pipeline.adapters.embedded import ASSETS, embedded_adapters
from phys_pipeline.errors import ConfigError, ModelError
from phys_pipeline.web.engine.models import RECOGNISED, Models, defaults_of, sample
from phys_pipeline.web.engine.settings import is_local

OUTSIDE = ["/etc", "../..", "owner/name", "..", "~", "file:///etc/passwd", "/", "C:\\"]


@pytest.fixture
def server(settings):
    return Models(replace(settings, local=False))


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_server_offers_its_own_alone(server, name):
    with pytest.raises(ConfigError, match="this server"):
        server.source(name)
    with pytest.raises(ConfigError, match="this server"):
        server.adapter(name)


def test_what_is_offered_can_be_chosen(server, model_folder):
    assert server.source(str(model_folder)) == str(model_folder)
    assert server.source("tiny") == server.source("") == server.source(None) == "tiny"
    assert server.adapter("none") == server.adapter(None) == (None, "")
    for name, embedded in embedded_adapters().items():
        folder, shown = server.adapter(name)
        assert folder == embedded.folder and shown == f"phys_pipeline/assets/{folder.relative_to(ASSETS)}"


def test_the_owner_may_name_folders_and_hub_ids(settings, model_folder, adapter_folder):
    models = Models(settings)
    assert models.source("owner/name") == "owner/name"
    assert models.adapter(str(adapter_folder)) == (str(adapter_folder), str(adapter_folder))
    assert models.adapter("owner/name@v1")[0] == "owner/name@v1"
    with pytest.raises(ModelError, match="no such model"):
        models.source("/no/such/folder")
    with pytest.raises(ConfigError, match="no such adapter"):
        models.adapter("/no/such/folder")


def test_a_family_is_used_where_the_model_says_none(settings, model_folder, tmp_path):
    models = Models(settings)
    for source in ("tiny", str(model_folder)):
        for chosen in (RECOGNISED, "", None, "hunyuan_video", "hunyuan-video"):
            assert models.family(chosen, source) is None
        with pytest.raises(ConfigError, match="says that it is of the family hunyuan_video, not wan"):
            models.family("wan", source)
    assert models.family("wan", "owner/name") == models.family("wan", str(tmp_path)) == "wan"
    with pytest.raises(ConfigError, match="unknown model family"):
        models.family("../x", "tiny")
    assert defaults_of("owner/name", "wan")["num_frames"] > 1  # without asking the Hub


def test_only_safetensors_may_be_uploaded(server, tmp_path):
    assert server.adapter("none", str(tmp_path / "x.safetensors")) == (tmp_path / "x.safetensors", "x.safetensors")
    with pytest.raises(ConfigError, match="pickles"):
        server.adapter("none", str(tmp_path / "x.bin"))


def test_defaults_and_spaces():
    assert defaults_of("tiny")["num_inference_steps"] >= 1
    assert callable(sample)


@pytest.mark.parametrize(("host", "shared", "local"), [("127.0.0.1", False, True), ("0.0.0.0", False, False),
                                                        ("localhost", True, False), (None, False, True)])  # fmt: skip
def test_who_can_reach_the_app(monkeypatch, host, shared, local):
    monkeypatch.delenv("SPACE_ID", raising=False)
    assert is_local(host, shared) is local
    monkeypatch.setenv("SPACE_ID", "owner/space")
    assert not is_local(host, shared)
