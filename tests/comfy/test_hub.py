"""The node that fetches adapters, in a server that has a Hub on the loopback address."""

import json

import pytest
from assets import DIFFUSERS
from build import ENGINES
from graphs import load_lora, look, native, own, sampled
from hub_server import HubServer
from hub_server.server import TOKEN
from server import Server


def from_hub(**inputs):
    return own(
        "AdapterFromHub", **{"repo_id": "owner/motion", "filename": "", "revision": "main", "offline_only": False, **inputs}
    )


@pytest.fixture(scope="module")
def hub(tmp_path_factory, models):
    """owner/motion has the diffusers adapter of the tiny native model."""
    import hashlib

    with HubServer(tmp_path_factory.mktemp("hub"), xet=False) as hub:
        data = (models / "loras" / DIFFUSERS).read_bytes()
        repo, _ = hub.store.create("model", "owner/motion", hub.store.accounts[TOKEN], private=False)
        digest = hashlib.sha256(data).hexdigest()
        hub.store.large_file(digest).write_bytes(data)
        tree = {**dict(repo.head.tree), "pytorch_lora_weights.safetensors": hub.store.large_entry(digest, len(data))}
        hub.store.commit(repo, "refs/heads/main", tree, "fill", "", "owner")
        yield hub


@pytest.fixture(scope="module")
def connected(environment, models, hub, tmp_path_factory):
    """A server that may ask that Hub; it has the native model and a folder for LoRAs of its own."""
    base = tmp_path_factory.mktemp("comfyui-hub")
    (base / "models" / "loras").mkdir(parents=True)
    (base / "models" / "diffusion_models").symlink_to(models / "diffusion_models")
    with Server(environment, ENGINES[0].version, base, environ=hub.environment(base / "home")) as server:
        yield server


def test_fetched_and_applied(connected, hub):
    """The video with the fetched adapter is another than the baseline; again, without network, it is the same."""
    graph = {**native(), "2": from_hub(), "10": load_lora(["1", 0], "none", adapter=["2", 0])}
    for number, model in (("20", "1"), ("21", "10")):
        sampled(graph, number, [model, 0])
    graph["90"], graph["91"] = look(["20", 0], ["21", 0]), look(["2", 1])
    result = connected.run(graph).ok()
    assert json.loads(result.text("90"))["difference"] > 0
    name = json.loads(result.text("91"))["value"]
    assert name.startswith("physmotion/owner__motion/") and (connected.base / "models" / "loras" / name).is_file()
    asked = len(hub.log)
    graph["2"] = from_hub(offline_only=True)
    connected.run(graph).ok()
    assert len(hub.log) == asked
    about = connected.get("/object_info/PhysMotion_LoadLoRA")["PhysMotion_LoadLoRA"]
    assert name in about["input"]["required"]["lora_name"][1]["options"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"filename": "../../x.safetensors"}, "no safetensors file"),
        ({"filename": "weights.pt"}, "no safetensors file"),
        ({"repo_id": "https://elsewhere.org/owner/motion"}, "write owner/name"),
        ({"repo_id": "owner/nothing"}, "owner/nothing"),
        ({"repo_id": "owner/other", "offline_only": True}, "offline_only"),
    ],
)
def test_errors(connected, change, words):
    result = connected.run({"2": from_hub(**change), "91": look(["2", 1])})
    assert result.status == "error" and words in result.error, result.error
