"""The node that fetches adapters, in a server that has a Hub on the loopback address."""

import hashlib
import json
import time

import pytest
import torch
from assets import DIFFUSERS
from build import ENGINES
from graphs import load_lora, look, native, own, sampled
from hub_server import Fault, HubServer
from hub_server.server import TOKEN
from safetensors.torch import save
from server import Server


def from_hub(**inputs):
    return own(
        "AdapterFromHub", **{"repo_id": "owner/motion", "filename": "", "revision": "main", "offline_only": False, **inputs}
    )


@pytest.fixture(scope="module")
def hub(tmp_path_factory, models):
    """owner/motion and owner/slow have the diffusers adapter of the tiny native model; owner/large has one of 24 MB."""
    with HubServer(tmp_path_factory.mktemp("hub"), xet=False) as hub:
        layer = "transformer.transformer_blocks.0.attn.to_q.lora_{}.weight"
        large = {layer.format("A"): torch.zeros(100, 30_000), layer.format("B"): torch.zeros(30_000, 100)}
        small = (models / "loras" / DIFFUSERS).read_bytes()
        for name, data in {"motion": small, "slow": small, "large": save(large)}.items():
            digest = hashlib.sha256(data).hexdigest()
            hub.store.large_file(digest).write_bytes(data)
            repo, _ = hub.store.create("model", f"owner/{name}", hub.store.accounts[TOKEN], private=False)
            tree = {**dict(repo.head.tree), "pytorch_lora_weights.safetensors": hub.store.large_entry(digest, len(data))}
            hub.store.commit(repo, "refs/heads/main", tree, "fill", "", "owner")
        yield hub


@pytest.fixture(autouse=True)
def calm(hub):
    yield
    hub.calm()


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


def test_a_bar_shows_how_much_is_here(connected, hub):
    """The connection breaks after 15 of 24 MB, and the client goes on with the next of its pieces of 10 MB."""
    hub.inject(Fault("GET /download", cut=15_000_000), Fault("GET /download", delay=2.0))
    with connected.listening() as heard:
        connected.run({"2": from_hub(repo_id="owner/large"), "91": look(["2", 1])}).ok()
    hub.calm()
    bar = [(about["value"], about["max"]) for kind, about in heard if kind == "progress"]
    assert bar == sorted(bar) and any(0 < value < most and most > 23e6 for value, most in bar), bar
    assert any(about.startswith("owner/large: 10.5 of 24.0 MB") for kind, about in heard if kind == "text")


def test_interrupt_ends_the_download(connected, hub):
    """At once, though the Hub would take ten minutes; the next prompt gets the file."""
    hub.inject(Fault("GET /download", delay=600.0))
    graph, asked = {"2": from_hub(repo_id="owner/slow"), "91": look(["2", 1])}, len(hub.log)
    prompt = connected.queue(graph)
    while not any("/download" in request.path for request in hub.log[asked:]):
        time.sleep(0.05)
    connected.post("/interrupt", {})
    assert connected.finished(prompt, 60).message("execution_interrupted") is not None
    hub.calm()
    assert not list((connected.base / "models" / "loras" / "physmotion").glob("owner__slow/*/*"))
    connected.run(graph).ok()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"filename": "../../x.safetensors"}, "no safetensors file"),
        ({"filename": "weights.pt"}, "no safetensors file"),
        ({"repo_id": "https://elsewhere.org/owner/motion"}, "write owner/name"),
        ({"repo_id": f"owner/{'x' * 300}"}, "owner/x"),
        ({"repo_id": "owner/nothing"}, "owner/nothing"),
        ({"repo_id": "owner/other", "offline_only": True}, "offline_only"),
    ],
)
def test_errors(connected, change, words):
    result = connected.run({"2": from_hub(**change), "91": look(["2", 1])})
    assert result.status == "error" and words in result.error, result.error
