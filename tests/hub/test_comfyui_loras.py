"""Adapters of the Hub in ComfyUI's folder for LoRAs."""

import hashlib

import pytest
from hub_adapter import make_run
from hub_server import Fault
from hub_server.server import TOKEN

from phys_pipeline.adapters.comfyui_loras import fetch_into
from phys_pipeline.errors import AdapterError, HubError

WEIGHTS = "pytorch_lora_weights.safetensors"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("runs") / "physics")


@pytest.fixture
def loras(tmp_path):
    (tmp_path / "loras").mkdir()
    return tmp_path / "loras"


@pytest.fixture
def published(here, folder):
    """owner/physics with an adapter, at two commits; the first is tagged v1."""
    store = here.store
    repo, _ = store.create("model", "owner/physics", store.accounts[TOKEN], private=False)
    tree = dict(repo.head.tree)
    for path in (WEIGHTS, "comfyui/physics.safetensors"):
        data = (folder / path).read_bytes()
        digest = hashlib.sha256(data).hexdigest()
        store.large_file(digest).write_bytes(data)
        tree[path] = store.large_entry(digest, len(data))
    here.first = repo.refs["refs/tags/v1"] = store.commit(repo, "refs/heads/main", tree, "fill", "", "owner")
    here.second = store.commit(repo, "refs/heads/main", {**tree, "README.md": store.small(b"# more")}, "more", "", "owner")
    return here


def test_place_and_reuse(published, client, folder, loras):
    """The file lies under its repository and commit; a commit that is there, and with offline a branch, needs no network."""
    path = fetch_into(loras, "owner/physics", hub=client)
    assert path.relative_to(loras).as_posix() == f"physmotion/owner__physics/{published.second[:8]}/{WEIGHTS}"
    assert path.read_bytes() == (folder / WEIGHTS).read_bytes()
    asked = len(published.log)
    assert fetch_into(loras, "owner/physics", offline=True, hub=client) == path
    assert fetch_into(loras, "owner/physics", revision=published.second, hub=client) == path
    assert len(published.log) == asked
    named = fetch_into(loras, "owner/physics", "comfyui/physics.safetensors", "v1", hub=client)
    assert named.relative_to(loras / "physmotion").as_posix() == f"owner__physics/{published.first[:8]}/physics.safetensors"


@pytest.mark.parametrize(
    "name", ["../outside.safetensors", "/etc/x.safetensors", "a/../../x.safetensors", "weights.bin", "weights.pt", "x.ckpt"]
)
def test_names_that_are_refused(published, client, loras, name):
    asked = len(published.log)
    with pytest.raises(AdapterError, match="no safetensors file within"):
        fetch_into(loras, "owner/physics", name, hub=client)
    assert len(published.log) == asked and not list(loras.iterdir())


@pytest.mark.parametrize("repo", ["physics", "../x/y", "https://elsewhere.org/a/b", "owner/..", "a/b/c", ""])
def test_repositories_that_are_none(loras, repo, client):
    with pytest.raises(AdapterError, match="write owner/name"):
        fetch_into(loras, repo, hub=client)


def test_nothing_is_half_there_after_a_cut_download(published, client, loras):
    published.inject(Fault(r"GET /download", cut=100, times=100))
    with pytest.raises((HubError, AdapterError)):
        fetch_into(loras, "owner/physics", hub=client)
    assert not list(loras.rglob("*.safetensors"))
    published.calm()
    assert fetch_into(loras, "owner/physics", hub=client).is_file()


def test_offline_without_a_copy(loras, client):
    with pytest.raises(AdapterError, match="offline_only"):
        fetch_into(loras, "owner/physics", offline=True, hub=client)
