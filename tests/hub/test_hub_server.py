"""The Hub of the tests is good enough if the real client and `hf` can't tell."""

import hashlib
import json

import pytest
from hub_server import Fault, HubServer
from hub_server.server import TOKEN

OPERATIONS = "who_and_create upload_folder commits listings references downloads ranges pull_requests settings_and_names delete"
MODES = {"xet": {}, "lfs": {"xet": False}, "lfs in parts": {"xet": False, "part_size": 1 << 20}}


@pytest.mark.parametrize("mode", MODES)
def test_the_real_client_works_unmodified(mode, tmp_path, run):
    with HubServer(tmp_path / "hub", **MODES[mode]) as server:
        done = run(server, "tests/hub/client_operations.py")
        assert done.stdout.split() == OPERATIONS.split()
        lines = {f"{request.method} {request.path.split('/')[1]}" for request in server.log}
        assert ("PUT upload" in lines) == (mode != "xet")
        assert ("POST owner" in lines) == (mode != "xet")  # owner/operations.git/info/lfs/objects/batch
        if mode == "lfs in parts":
            assert any(request.path.endswith("/4") and request.method == "PUT" for request in server.log)
        for request in server.log:  # large files are on another origin, which must not see the token
            assert request.port != server.download_port or "authorization" not in request.headers


def test_the_hf_program_works_unmodified(tmp_path, run):
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "w.safetensors").write_bytes(b"weights" * 1000)
    (folder / "a.txt").write_text("text")
    with HubServer(tmp_path / "hub") as server:
        for arguments, expected in {
            ("auth", "whoami"): "owner",
            ("repos", "create", "owner/cli", "--private"): "owner/cli",
            ("upload", "owner/cli", str(folder), "."): "owner/cli",
            ("repos", "tag", "create", "owner/cli", "v1"): "v1",
            ("download", "owner/cli", "--revision", "v1", "--local-dir", str(tmp_path / "down")): str(tmp_path / "down"),
            ("repos", "delete", "owner/cli", "--yes"): "owner/cli",
        }.items():
            assert expected in run(server, "hf", *arguments).stdout, arguments
        assert (tmp_path / "down" / "w.safetensors").read_bytes() == b"weights" * 1000
        assert ("model", "owner/cli") not in server.store.repos


CUT = """
import sys, pathlib, huggingface_hub as h
import huggingface_hub.file_download, huggingface_hub.utils._http as http
http.time.sleep = lambda _: None
print(pathlib.Path(h.hf_hub_download("owner/x", sys.argv[1])).read_bytes() == pathlib.Path(sys.argv[2]).read_bytes())
"""


def test_faults_happen_as_told_and_are_noted(hub, run, tmp_path):
    data = hashlib.sha256(b"data").digest() * 40_000
    (tmp_path / "data").write_bytes(data)
    repo, _ = hub.store.create("model", "owner/x", hub.store.accounts[TOKEN], private=False)
    tree = {"x.bin": hub.store.large_entry(put(hub, data), len(data))}
    hub.store.commit(repo, "refs/heads/main", tree, "add", "", "owner")
    hub.inject(Fault("GET /download", cut=500_000), Fault("HEAD .*resolve", status=503))
    assert run(hub, "-c", CUT, "x.bin", str(tmp_path / "data")).stdout.strip() == "True"
    assert [r.status for r in hub.log if r.method == "HEAD"] == [503, 302]
    assert len([r for r in hub.log if r.method == "GET" and r.path.startswith("/download")]) == 2
    hub.calm()
    hub.inject(Fault("GET /download", flip=1000))  # plain HTTP: only the size is checked
    assert run(hub, "-c", CUT, "x.bin", str(tmp_path / "data"), home="other").stdout.strip() == "False"
    hub.inject(Fault("POST /api/repos/create", after=True, drop=True))
    create = "import huggingface_hub as h; h.create_repo('owner/lost')"
    assert "RemoteProtocolError" in run(hub, "-c", create, check=False).stderr
    assert ("model", "owner/lost") in hub.store.repos and hub.log[-1].status is None
    hub.inject(Fault("whoami", status=429, headers={"Retry-After": "7"}, body={"error": "slow down"}))
    ask = "import huggingface_hub as h, json\ntry: h.whoami()\nexcept Exception as e: print(json.dumps(dict(e.response.headers)))"
    assert json.loads(run(hub, "-c", ask).stdout)["retry-after"] == "7"


def put(hub, data):
    digest = hashlib.sha256(data).hexdigest()
    hub.store.large_file(digest).write_bytes(data)
    return digest
