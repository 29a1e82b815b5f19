"""Adapters from the Hub: one file of one commit, compared, from the cache where it can be; everything else is one line."""

import logging
import shutil
from pathlib import Path

import pytest
from hub_adapter import make_run
from hub_server import Fault
from hub_server.server import READER, STRANGER, TOKEN
from huggingface_hub import constants

from phys_pipeline.adapters import find_adapter
from phys_pipeline.adapters.formats import COMFYUI
from phys_pipeline.adapters.hub import copy_adapter, fetch_adapter
from phys_pipeline.adapters.readers import open_adapter
from phys_pipeline.cli import main
from phys_pipeline.errors import AdapterError, HubError

WEIGHTS = "pytorch_lora_weights.safetensors"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("runs") / "physics")


def fill(hub, name, files, private=False):
    """A repository with these files; bytes are small files unless their name says that they are large. Returns the commit."""
    store = hub.store
    repo, _ = store.create("model", name, store.accounts[TOKEN], private=private)
    tree = dict(repo.head.tree)
    for path, data in files.items():
        if path.endswith(".safetensors"):
            import hashlib

            digest = hashlib.sha256(data).hexdigest()
            store.large_file(digest).write_bytes(data)
            tree[path] = store.large_entry(digest, len(data))
        else:
            tree[path] = store.small(data)
    return store.commit(repo, "refs/heads/main", tree, "fill", "", "owner")


@pytest.fixture
def published(here, folder):
    """owner/physics with the files of a run, at two commits: the first tagged v1, the second with another README."""
    files = {path: (folder / path).read_bytes() for path in (WEIGHTS, "provenance.json", "comfyui/physics.safetensors")}
    here.first = fill(here, "owner/physics", files)
    here.repo("owner/physics").refs["refs/tags/v1"] = here.first
    here.second = fill(here, "owner/physics", {"README.md": b"# more"})
    return here


def downloads(hub):
    return [request for request in hub.log if request.method == "GET" and request.path.startswith("/download")]


def test_a_branch_a_tag_and_a_commit_are_pinned_and_the_file_is_the_one(published, client, folder):
    for text, commit in (("", published.second), ("@v1", published.first), (f"@{published.first}", published.first)):
        fetched = fetch_adapter(f"owner/physics{text}", hub=client)
        assert fetched.commit == commit and fetched.file.read_bytes() == (folder / WEIGHTS).read_bytes()
    assert len(downloads(published)) == 1  # one file, whatever the revision's name
    before = len(published.log)
    fetch_adapter(f"owner/physics@{published.first}", hub=client)  # a commit never changes
    assert len(published.log) == before
    other = fetch_adapter("owner/physics", weight_name="comfyui/physics.safetensors", hub=client)
    assert open_adapter(other.file).format == COMFYUI


def test_a_renamed_repository_is_still_found(published, client, folder):
    published.store.move("model", "owner/physics", "lab/renamed", published.store.accounts[TOKEN])
    assert fetch_adapter("owner/physics@v1", hub=client).file.read_bytes() == (folder / WEIGHTS).read_bytes()


def test_load_adapter_and_the_command_take_a_repository(published, folder, tmp_path, capsys):
    assert find_adapter("owner/physics@v1").read_bytes() == (folder / WEIGHTS).read_bytes()  # a worker process asks
    assert main(["fetch", "owner/physics@v1", "-o", str(tmp_path / "loras")]) == 0
    assert f"owner/physics@{published.first}" in capsys.readouterr().out
    assert (tmp_path / "loras" / WEIGHTS).read_bytes() == (folder / WEIGHTS).read_bytes()
    assert main(["fetch", "owner/physics@v2"]) == 2
    assert capsys.readouterr().err.startswith("error: owner/physics has no revision v2")


def test_offline_the_cache_is_used_and_nothing_is_asked(published, client, monkeypatch):
    fetched = fetch_adapter("owner/physics", hub=client)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    before = len(published.log)
    assert fetch_adapter("owner/physics").file == fetched.file
    assert fetch_adapter(f"owner/physics@{published.second}").commit == published.second
    for text in ("owner/physics@v1", "owner/other"):
        with pytest.raises(HubError, match="HF_HUB_OFFLINE"):
            fetch_adapter(text)
    assert len(published.log) == before


@pytest.mark.parametrize("fault", [{"status": 503}, {"status": 429, "headers": {"Retry-After": "1"}}, {"drop": True}])
def test_a_hub_that_is_down_is_replaced_by_the_cache_with_a_warning(fault, published, client, caplog):
    fetched = fetch_adapter("owner/physics", hub=client)
    published.inject(Fault("/api/", times=1000, **fault))
    with caplog.at_level(logging.WARNING):
        assert fetch_adapter("owner/physics", hub=client).file == fetched.file
    assert "may not be the newest" in caplog.text
    with pytest.raises(HubError, match="same command again"):
        fetch_adapter("owner/physics@v1", hub=client)  # never seen under that name


def test_a_private_gated_or_missing_repository_says_what_to_do(published, client, folder, monkeypatch):
    fill(published, "owner/secret", {WEIGHTS: (folder / WEIGHTS).read_bytes()}, private=True)
    cases = {
        ("owner/secret", STRANGER): "no repository owner/secret that you may see.*hf auth login",
        ("owner/secret", "hf_revokedtoken000000000"): "valid token|may see",
        ("owner/none", TOKEN): "check the name",
        ("owner/physics@none", TOKEN): "no revision none",
    }
    for (text, token), message in cases.items():
        monkeypatch.setenv("HF_TOKEN", token)
        with pytest.raises(HubError, match=message) as caught:
            fetch_adapter(text, hub=client)
        assert "\n" not in str(caught.value) and token not in str(caught.value)
    monkeypatch.setenv("HF_TOKEN", READER)
    assert fetch_adapter("owner/secret", hub=client).file.is_file()
    published.repo("owner/physics").gated = "auto"
    monkeypatch.setenv("HF_TOKEN", STRANGER)
    with pytest.raises(HubError, match="gated: ask for access"):
        fetch_adapter("owner/physics", hub=client)


def test_a_flipped_byte_is_noticed_and_got_again(published, client, folder):
    published.inject(Fault("GET /download", flip=700))  # the client itself compares sizes only
    assert fetch_adapter("owner/physics", hub=client).file.read_bytes() == (folder / WEIGHTS).read_bytes()
    assert len(downloads(published)) == 2


def test_a_file_that_always_arrives_damaged_is_refused_and_not_kept(published, client, tmp_path):
    published.store.corrupt(published.repo("owner/physics"), WEIGHTS)
    with pytest.raises(HubError, match="checksum is wrong"):
        fetch_adapter("owner/physics", hub=client)
    kept = [path for path in Path(constants.HF_HUB_CACHE).rglob("*") if path.is_file() and path.stat().st_size > 1000]
    assert kept == []


def test_a_damaged_cache_is_repaired(published, client, folder, monkeypatch, caplog):
    file = fetch_adapter(f"owner/physics@{published.first}", hub=client).file
    for offline in (False, True):
        blob = file.resolve()
        data = bytearray(blob.read_bytes())
        data[-1] ^= 1
        blob.write_bytes(bytes(data))
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", offline)
        if offline:
            with pytest.raises(HubError, match="not in the cache"), caplog.at_level(logging.WARNING):
                fetch_adapter(f"owner/physics@{published.first}", hub=client)
            assert "damaged and has been removed" in caplog.text
        else:
            file = fetch_adapter(f"owner/physics@{published.first}", hub=client).file
            assert file.read_bytes() == (folder / WEIGHTS).read_bytes()


def test_a_cut_connection_is_resumed(published, client, folder):
    published.inject(Fault("GET /download", cut=900), Fault("HEAD .*resolve", status=503))
    assert fetch_adapter("owner/physics", hub=client).file.read_bytes() == (folder / WEIGHTS).read_bytes()


@pytest.mark.parametrize("name", ["../../evil.safetensors", "a\\..\\b", "/etc/passwd", "C:evil", "a//b", "x\n.txt"])
def test_a_repository_with_a_hostile_name_is_not_trusted(name, here, client, folder):
    fill(here, "owner/hostile", {WEIGHTS: (folder / WEIGHTS).read_bytes(), "bad": b""})
    tree = here.repo("owner/hostile").head.tree
    tree[name] = tree.pop("bad")
    with pytest.raises(HubError, match="would leave its folder") as caught:
        fetch_adapter("owner/hostile", hub=client)
    assert "\n" not in str(caught.value) and not downloads(here)


def test_the_weights_must_be_one_file_of_safetensors(here, client, folder):
    data = (folder / WEIGHTS).read_bytes()
    for name, files, message in (
        ("pickle", {"pytorch_lora_weights.bin": b"x"}, "pickle only"),
        ("two", {"a.safetensors": data, "b.safetensors": data}, "2 safetensors files.*a.safetensors, b.safetensors.*--file"),
        ("none", {"README.md": b"x"}, "no safetensors file at the top"),
        ("empty", {WEIGHTS: b""}, "no size of an adapter"),
    ):
        fill(here, f"owner/{name}", files)
        with pytest.raises(HubError, match=message):
            fetch_adapter(f"owner/{name}", hub=client)
    fill(here, "owner/one", {"other.safetensors": data})
    assert fetch_adapter("owner/one", hub=client).file.name == "other.safetensors"
    assert fetch_adapter("owner/two", weight_name="b.safetensors", hub=client).file.name == "b.safetensors"
    for weight_name, message in (
        ("../x.safetensors", "out of its folder"),
        ("x.bin", "no safetensors"),
        ("c.safetensors", "no file"),
    ):
        with pytest.raises(HubError, match=message):
            fetch_adapter("owner/two", weight_name=weight_name, hub=client)


def test_what_is_no_adapter_is_said_by_the_reader(here, capsys):
    fill(here, "owner/text", {WEIGHTS: b"not tensors at all, but long enough"})
    assert main(["fetch", "owner/text"]) == 2
    assert "not a readable safetensors file" in capsys.readouterr().err


def test_copies_never_replace_another_file(published, client, tmp_path):
    fetched = fetch_adapter("owner/physics", hub=client)
    assert copy_adapter(fetched, tmp_path / "a").read_bytes() == fetched.file.read_bytes()
    copy_adapter(fetched, tmp_path / "a")  # the same again
    (tmp_path / "a" / WEIGHTS).write_text("mine")
    with pytest.raises(AdapterError, match="exists and is another file"):
        copy_adapter(fetched, tmp_path / "a")


def test_a_damaged_copy_is_not_left(published, client, tmp_path, monkeypatch):
    fetched = fetch_adapter("owner/physics", hub=client)

    def flip(source, target):
        data = bytearray(Path(source).read_bytes())
        data[-1] ^= 1
        Path(target).write_bytes(data)

    monkeypatch.setattr(shutil, "copyfile", flip)
    with pytest.raises(AdapterError, match="changed while it was being copied"):
        copy_adapter(fetched, tmp_path / "a")
    assert list((tmp_path / "a").iterdir()) == []


def test_the_token_goes_to_the_hub_alone(published, client):
    fetch_adapter("owner/physics", hub=client)
    assert any("authorization" in request.headers for request in published.log)
    assert all("authorization" not in request.headers for request in published.log if request.port == published.download_port)
