"""Adapters of the Hub in ComfyUI's folder for LoRAs."""

import pytest
from test_fetch import WEIGHTS, downloads, folder, published  # noqa: F401  # fixtures

from phys_pipeline.adapters.comfyui_loras import fetch_into
from phys_pipeline.errors import AdapterError, HubError


def test_place_and_reuse(published, client, folder, tmp_path):  # noqa: F811
    """The file lies under its repository and commit; a commit that is there, and with offline a branch, needs no network."""
    path = fetch_into(tmp_path, "owner/physics", hub=client)
    assert path.relative_to(tmp_path).as_posix() == f"physmotion/owner__physics/{published.second[:8]}/{WEIGHTS}"
    assert path.read_bytes() == (folder / WEIGHTS).read_bytes()
    asked = len(published.log)
    assert fetch_into(tmp_path, "owner/physics", offline=True, hub=client) == path
    assert fetch_into(tmp_path, "owner/physics", revision=published.second, hub=client) == path
    assert len(published.log) == asked
    named = fetch_into(tmp_path, "owner/physics", "comfyui/physics.safetensors", "v1", hub=client)
    assert named.relative_to(tmp_path / "physmotion").as_posix() == f"owner__physics/{published.first[:8]}/physics.safetensors"


@pytest.mark.parametrize(
    "name", ["../outside.safetensors", "/etc/x.safetensors", "a/../../x.safetensors", "weights.bin", "weights.pt", "x.ckpt"]
)
def test_names_that_are_refused(published, client, tmp_path, name):  # noqa: F811
    asked = len(published.log)
    with pytest.raises(AdapterError, match="no safetensors file within"):
        fetch_into(tmp_path, "owner/physics", name, hub=client)
    assert len(published.log) == asked and not list(tmp_path.iterdir())


@pytest.mark.parametrize("repo", ["physics", "../x/y", "https://elsewhere.org/a/b", "owner/..", "a/b/c", ""])
def test_repositories_that_are_none(tmp_path, repo, client):
    with pytest.raises(AdapterError, match="write owner/name"):
        fetch_into(tmp_path, repo, hub=client)


def test_nothing_is_half_there_after_a_cut_download(published, client, tmp_path):  # noqa: F811
    from hub_server import Fault

    published.inject(Fault(r"GET /download", cut=100, times=100))
    with pytest.raises((HubError, AdapterError)):
        fetch_into(tmp_path, "owner/physics", hub=client)
    assert not list(tmp_path.rglob("*.safetensors"))
    published.calm()
    assert fetch_into(tmp_path, "owner/physics", hub=client).is_file()


def test_offline_without_a_copy(tmp_path, client):
    with pytest.raises(AdapterError, match="offline_only"):
        fetch_into(tmp_path, "owner/physics", offline=True, hub=client)
