"""On ComfyUI's own HunyuanVideo: the LoRA loader and the two-sided sampler."""

import json
import shutil
import time

import pytest
from assets import DIFFUSERS, EVERY_LAYER, FLUX, FUSED, OTHER, WAN, WAN_DIFFUSERS, WAN_FUSED, hunyuan_video
from graphs import ab_sampler, load_lora, look, native, node, sampled
from server import Refused

from phys_pipeline.adapters.layers import linear_layers
from phys_pipeline.adapters.names import comfyui_layer


def digest(result, number):
    return json.loads(result.text(number))["digest"]


@pytest.fixture(scope="module")
def baseline(server):
    """Digest of the video without an adapter."""
    graph = native()
    sampled(graph, "20", ["1", 0])
    return digest(server.run({**graph, "90": look(["20", 0])}).ok(), "90")


def test_any_format_equals_the_fused_file_through_comfyui(server, baseline):
    """A diffusers file through our node is the trainer's ComfyUI file through ComfyUI's loader, bit for bit; ComfyUI's loader
    gives the baseline for the diffusers file, which is why the node exists."""
    graph = native()
    graph["10"] = load_lora(["1", 0], DIFFUSERS)
    graph["11"] = node("LoraLoaderModelOnly", model=["1", 0], lora_name=FUSED, strength_model=1.0)
    graph["12"] = node("LoraLoaderModelOnly", model=["1", 0], lora_name=DIFFUSERS, strength_model=1.0)
    graph["13"] = load_lora(["1", 0], FUSED)
    graph["14"] = load_lora(["1", 0], DIFFUSERS, strength=0.0)
    for number in ("10", "11", "12", "13", "14"):
        graph[f"9{number}"] = look([sampled(graph, f"2{number}", [number, 0]), 0])
    result = server.run(graph).ok()
    assert digest(result, "910") == digest(result, "911") == digest(result, "913") != baseline
    assert digest(result, "912") == digest(result, "914") == baseline


def test_info_tells_what_was_read(server):
    graph = {**native(), "10": load_lora(["1", 0], DIFFUSERS), "91": look(["10", 1])}
    info = json.loads(server.run(graph).ok().text("91"))["value"]
    assert "diffusers" in info and "ranks 4 to 7" in info and "tiny/random" in info and "sha256" in info


def test_layers_outside_the_blocks_are_applied(server, baseline):
    graph = native()
    graph["10"] = load_lora(["1", 0], EVERY_LAYER)
    graph["90"] = look([sampled(graph, "20", ["10", 0]), 0])
    graph["91"] = look(["10", 1])
    result = server.run(graph).ok()
    assert digest(result, "90") != baseline
    layers = {comfyui_layer(name) for name in linear_layers(hunyuan_video())}
    assert f"changes {len(layers)} of the model's layers" in json.loads(result.text("91"))["value"]


def test_bypass_is_the_merged_change(server):
    modes = server.get("/object_info/PhysMotion_LoadLoRA")["PhysMotion_LoadLoRA"]["input"]["required"]["apply_mode"][1]["options"]
    if "bypass" not in modes:
        assert server.version == "0.3.75"
        return
    graph = native()
    for number, mode in (("10", "merge"), ("11", "bypass")):
        graph[number] = load_lora(["1", 0], DIFFUSERS, apply_mode=mode)
        sampled(graph, f"2{number}", [number, 0])
    found = json.loads(server.run({**graph, "90": look(["210", 0], ["211", 0])}).ok().text("90"))
    assert found["difference"] < 1e-4


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (OTHER, "for another model"),
        (FLUX, "none of its"),
        ("not_a_lora.safetensors", "not_a_lora"),
        ("none", "no LoRA chosen"),
    ],
)
def test_a_file_that_does_not_fit_is_an_error_and_the_next_prompt_runs(server, baseline, name, words):
    graph = {**native(), "10": load_lora(["1", 0], name), "91": look(["10", 1])}
    result = server.run(graph)
    assert result.status == "error" and words in result.error, result.error
    graph = native()
    graph["90"] = look([sampled(graph, "20", ["1", 0]), 0])
    assert digest(server.run(graph).ok(), "90") == baseline


def test_names_of_other_machines(server):
    """A shared workflow names a file in another folder: the only file of that name is taken, an unknown one refused at once."""
    graph = {**native(), "10": load_lora(["1", 0], f"video\\{DIFFUSERS.upper()}"), "91": look(["10", 1])}
    server.run(graph).ok()
    graph["10"] = load_lora(["1", 0], "missing.safetensors")
    with pytest.raises(Refused, match="there is no LoRA"):
        server.queue(graph)


def test_a_changed_file_is_read_again(server, models):
    """The same name with other content: what depends on it runs again, and the model's loader doesn't."""
    file = models / "loras" / f"changing_{server.version}.safetensors"
    graph = native()
    graph["10"] = load_lora(["1", 0], file.name)
    graph["90"] = look([sampled(graph, "20", ["10", 0]), 0])
    shutil.copy(models / "loras" / DIFFUSERS, file)
    first = server.run(graph).ok()
    assert server.run(graph).ok().cached >= {"1", "10", "20"}
    shutil.copy(models / "loras" / EVERY_LAYER, file)
    changed = server.run(graph).ok()
    assert "1" in changed.cached and not {"10", "20"} & changed.cached
    assert digest(changed, "90") != digest(first, "90")


def test_sampler_equals_two_samplers_of_comfyui(server):
    graph = {**native(), "10": load_lora(["1", 0], DIFFUSERS)}
    graph["30"] = ab_sampler(["1", 0], ["10", 0])
    for number, model in (("0", "1"), ("1", "10")):
        sampled(graph, f"2{number}", [model, 0])
        graph[f"9{number}"] = look(["30", int(number)], [f"2{number}", 0])
    result = server.run(graph).ok()
    for number in ("90", "91"):
        assert json.loads(result.text(number))["difference"] == 0.0
    assert digest(result, "90") != digest(result, "91")
    again = server.run(graph).ok()
    assert again.cached >= {"1", "10", "30", "20", "21"}


def test_negative_prompt(server):
    graph = {**native(seed=4), "8": node("Test_Conditioning", seed=1)}
    graph["30"] = ab_sampler(["1", 0], ["1", 0], seed=4, cfg=2.0, negative=["8", 0], mode="baseline only")
    graph["20g"] = node("CFGGuider", model=["1", 0], positive=["3", 0], negative=["8", 0], cfg=2.0)
    graph["20"] = node(
        "SamplerCustomAdvanced", noise=["7", 0], guider=["20g", 0], sampler=["5", 0], sigmas=["6", 0], latent_image=["4", 0]
    )
    assert json.loads(server.run({**graph, "90": look(["30", 0], ["20", 0])}).ok().text("90"))["difference"] == 0.0
    graph["30"]["inputs"].pop("negative")
    assert "connect one" in server.run({**graph, "90": look(["30", 0])}).error


def test_a_side_that_is_not_asked_for_is_not_computed(server):
    stamp = str(time.time())
    graph = {**native(), "10": load_lora(["1", 0], DIFFUSERS)}
    graph["11"] = node("Test_Mark", value=["1", 0], marker=f"baseline {stamp}")
    graph["12"] = node("Test_Mark", value=["10", 0], marker=f"physics {stamp}")
    graph["30"] = ab_sampler(["11", 0], ["12", 0], mode="physics only")
    graph["90"], graph["91"] = look(["30", 0]), look(["30", 1])
    result = server.run(graph).ok()
    assert "90" not in result.outputs and "91" in result.outputs
    marks = json.loads(server.run({"1": node("Test_Marks", now=int(time.time()))}).ok().text("1"))
    assert f"physics {stamp}" in marks and f"baseline {stamp}" not in marks


def test_interrupt_ends_within_a_step(server, tmp_path, baseline):
    calls = tmp_path / "calls"
    graph = native(steps=30, seed=11)
    graph["11"] = node("Test_Slow", model=["1", 0], seconds=0.4, file=str(calls))
    graph["30"] = ab_sampler(["11", 0], ["11", 0], seed=11)
    graph["90"] = look(["30", 0])
    prompt = server.queue(graph)
    while not calls.exists() or len(calls.read_text().splitlines()) < 2:
        time.sleep(0.02)
    server.post("/interrupt", {})
    come = len(calls.read_text().splitlines())
    result = server.finished(prompt)
    assert result.message("execution_interrupted") is not None
    assert len(calls.read_text().splitlines()) <= come + 1  # one may have begun as the word came
    graph = native()
    graph["90"] = look([sampled(graph, "20", ["1", 0]), 0])
    assert digest(server.run(graph).ok(), "90") == baseline


def wan():
    """As ``native``, with ComfyUI's own Wan."""
    return {
        **native(),
        "1": node("UNETLoader", unet_name=WAN, weight_dtype="default"),
        "3": node("Test_Conditioning", seed=0, width=4096),
    }


def test_wan(server):
    """The diffusers file through our node is the trainer's ComfyUI file through ComfyUI's loader, bit for bit, and changes the
    video; ComfyUI's loader applies nothing of the diffusers file."""
    graph = wan()
    graph["10"] = load_lora(["1", 0], WAN_DIFFUSERS)
    graph["11"] = node("LoraLoaderModelOnly", model=["1", 0], lora_name=WAN_FUSED, strength_model=1.0)
    graph["12"] = node("LoraLoaderModelOnly", model=["1", 0], lora_name=WAN_DIFFUSERS, strength_model=1.0)
    for number in ("1", "10", "11", "12"):
        graph[f"9{number}"] = look([sampled(graph, f"2{number}", [number, 0]), 0])
    graph["30"] = look(["10", 1])
    result = server.run(graph).ok()
    assert digest(result, "910") == digest(result, "911") != digest(result, "91") == digest(result, "912")
    info = json.loads(result.text("30"))["value"]
    assert "diffusers" in info and "changes 20 of the model's layers" in info


@pytest.mark.parametrize(("name", "words"), [(DIFFUSERS, "for another model"), (FLUX, "none of its")])
def test_a_file_for_another_model_is_an_error_on_wan(server, name, words):
    result = server.run({**wan(), "10": load_lora(["1", 0], name), "90": look(["10", 1])})
    assert result.status == "error" and words in result.error, result.error
    assert server.run({**native(), "10": load_lora(["1", 0], WAN_DIFFUSERS), "90": look(["10", 1])}).status == "error"
