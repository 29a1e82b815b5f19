"""Three hundred faults, drawn from a seed, while an adapter is published and fetched. After each of them: the run's folder is as
it was, the repository holds all of the adapter or nothing, one commit at most, a public or tagged one is whole, and what was
fetched is what was trained. A call that failed says so in one line, and the same call without faults finishes the work."""

import itertools
import random
import time

import pytest
from hub_adapter import make_run, snapshot
from hub_server import Fault
from hub_server.server import TOKEN

from phys_pipeline.adapters.contents import collect
from phys_pipeline.adapters.hub import fetch_adapter
from phys_pipeline.adapters.publishing import publish
from phys_pipeline.errors import HubError

COUNT, MOST_SECONDS = 300, 60.0
PUBLISH_ROUTES = (
    "whoami", "GET /api/models/[^/]+/[^/]+$", "repos/create", "/refs", "validate-yaml", "preupload", "objects/batch",
    "PUT /upload", "lfs/verify", "POST .*/commit/", "/revision/", "HEAD .*resolve", "GET /download",
    "/tag/", "/settings",
)  # fmt: skip
FETCH_ROUTES = ("GET /api/models/.*/revision/", "HEAD .*resolve", "GET /download")


def draw(rng, routes):
    """One fault, often on a single request, sometimes on all that follow."""
    kind = rng.choice(["status", "status", "drop", "lost", "cut", "flip", "slow", "page"])
    options = {"times": rng.choice([1, 1, 2, 1000]), "skip": rng.choice([0, 0, 0, 0, 1])}
    route = rng.choice(routes)
    if kind == "status":
        status = rng.choice([401, 403, 404, 409, 412, 429, 500, 502, 503, 504])
        headers = {"Retry-After": str(rng.choice([0, 1, 600]))} if status == 429 else {}
        return Fault(route, status=status, headers=headers, after=rng.random() < 0.3, **options)
    if kind == "drop":
        return Fault(route, drop=True, **options)
    if kind == "lost":
        return Fault(route, drop=True, after=True, **options)
    if kind == "cut":
        return Fault(route, cut=rng.choice([0, 10, 700]), **options)
    if kind == "flip":
        return Fault("GET /download", flip=rng.choice([0, 9, 500]), **options)
    if kind == "slow":
        return Fault(route, delay=0.02, **options)
    return Fault(route, status=503, body=b"<html>down</html>", **options)  # no JSON


@pytest.mark.slow
def test_three_hundred_faults(here, client, tmp_path, monkeypatch):
    from huggingface_hub import constants

    rng, folder = random.Random(8), make_run(tmp_path / "run")
    before, seen = snapshot(folder), {"published": 0, "fetched": 0, "failed": 0, "hits": 0}
    weights = (folder / "pytorch_lora_weights.safetensors").read_bytes()
    clock = time.monotonic
    for number in itertools.count():
        if seen["hits"] == COUNT:
            break
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / f"cache-{number}"))
        name, publishing, public = f"owner/run-{number}", number % 2 == 0, rng.random() < 0.5
        (folder / "published.json").unlink(missing_ok=True)
        contents = collect(folder, name, "v1") if publishing else None
        if not publishing:
            publish_quietly(here, folder, name)
        fault = draw(rng, PUBLISH_ROUTES if publishing else FETCH_ROUTES)
        here.inject(fault)
        said, started = [], clock()
        try:
            if publishing:
                publish(folder, name, public=public, tag="v1", hub=client, say=said.append)
                seen["published"] += 1
            else:
                assert fetch_adapter(name, hub=client).file.read_bytes() == weights
                seen["fetched"] += 1
        except HubError as error:
            seen["failed"] += 1
            assert "\n" not in str(error) and TOKEN not in str(error) and len(str(error)) > 20, fault
        assert clock() - started < MOST_SECONDS, fault
        seen["hits"] += bool(fault.hits)
        here.calm()
        repo = here.store.repos.get(("model", name))
        if publishing:
            if repo is not None:
                missing = contents.missing(entries(repo.head.tree))
                assert missing in ([], list(contents.files)), (fault, missing)  # all of it or nothing
                assert len(repo.history("main")) == (1 if missing else 2), fault  # no commit twice
                assert not missing or (repo.private and "refs/tags/v1" not in repo.refs), fault  # nothing half-made is shown
            done = publish(folder, name, public=public, tag="v1", hub=client)
            repo = here.repo(name)
            assert not contents.missing(entries(repo.head.tree)) and len(repo.history("main")) == 2, fault
            assert repo.refs["refs/tags/v1"] == done.commit == repo.sha("main") and repo.private != public, fault
        else:
            cached = list((tmp_path / f"cache-{number}").rglob("snapshots/*/*.safetensors"))
            assert all(file.read_bytes() == weights for file in cached), fault  # no damaged copy is left for others
            assert fetch_adapter(name, hub=client).file.read_bytes() == weights, fault
        assert snapshot(folder) == before, fault
        del here.store.repos["model", name]
    assert number < 1.5 * COUNT and min(seen["published"], seen["fetched"], seen["failed"]) > 30, seen


def publish_quietly(hub, folder, name):
    """Put a run's weights and provenance into a new repository, without the client."""
    import hashlib

    store = hub.store
    repo, _ = store.create("model", name, store.accounts[TOKEN], private=True)
    data = (folder / "pytorch_lora_weights.safetensors").read_bytes()
    store.large_file(hashlib.sha256(data).hexdigest()).write_bytes(data)
    tree = {"pytorch_lora_weights.safetensors": store.large_entry(hashlib.sha256(data).hexdigest(), len(data))}
    tree["provenance.json"] = store.small((folder / "provenance.json").read_bytes())
    store.commit(repo, "refs/heads/main", {**repo.head.tree, **tree}, "add", "", "owner")


def entries(tree):
    """A commit's files as the client lists them."""
    return {path: {"size": entry.size, "oid": entry.oid, "sha256": entry.sha256} for path, entry in tree.items()}
