"""Wan's adapters under the names of its authors, which ComfyUI and most trainers use."""

import json

import pytest
import tiny_families
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from tiny_adapter import fill
from tiny_formats import assert_same, tensors_of

from phys_pipeline.adapters import inject_lora, load_adapter, save_adapter
from phys_pipeline.adapters.comfyui import tensors_for_comfyui
from phys_pipeline.adapters.layers import linear_layers
from phys_pipeline.adapters.names import WAN, comfyui_layer, original_layer, resolve
from phys_pipeline.adapters.readers import open_adapter
from phys_pipeline.adapters.weights import LoraLayer
from phys_pipeline.adapters.writers import write_adapter
from phys_pipeline.errors import AdapterError
from phys_pipeline.families import get_family

KOHYA = ("lora_down.weight", "lora_up.weight")
ATTENTION_AND_FEED_FORWARD = r"blocks\.\d+\.(attn[12]\.(to_q|to_k|to_v|to_out\.0)|ffn\.net\.(0\.proj|2))"
# by the conversion that diffusers has for files of other trainers (loaders/lora_conversion_utils.py)
NAMES = {
    "attn1.to_q": "self_attn.q", "attn1.to_k": "self_attn.k", "attn1.to_v": "self_attn.v", "attn1.to_out.0": "self_attn.o",
    "attn2.to_q": "cross_attn.q", "attn2.to_k": "cross_attn.k", "attn2.to_v": "cross_attn.v", "attn2.to_out.0": "cross_attn.o",
    "ffn.net.0.proj": "ffn.0", "ffn.net.2": "ffn.2",
}  # fmt: skip
ORIGINAL = {f"blocks.{i}.{part}": f"blocks.{i}.{name}" for i in range(2) for part, name in NAMES.items()}
BLOCKS = sorted(ORIGINAL)


@pytest.fixture(scope="module")
def base():
    return tiny_families.build("wan")


@pytest.fixture(scope="module")
def widths(base):
    return {name: (layer.out_features, layer.in_features) for name, layer in linear_layers(base.transformer).items()}


def lora(widths, module, rank, alpha, seed=0):
    g, (rows, columns) = torch.Generator().manual_seed(seed), widths[module]
    return LoraLayer(0.2 * torch.randn(rank, columns, generator=g), 0.2 * torch.randn(rows, rank, generator=g), alpha)


def mixed(widths, names=BLOCKS):
    return {name: lora(widths, name, 1 + i % 6, 0.5 + 1.7 * i, i) for i, name in enumerate(names)}


@torch.no_grad()
def output(pipeline):
    family = get_family("wan").bind(pipeline.transformer)
    g = torch.Generator().manual_seed(0)
    x, text = torch.randn(1, 4, 2, 4, 4, generator=g), torch.randn(1, 5, 16, generator=g)
    return pipeline.transformer.eval()(**family.inputs(x, torch.tensor([0.5]), {"prompt_embeds": text}))[0]


def test_every_linear_layer_has_its_original_name(widths):
    assert {part for layer in WAN for part in layer.parts if "N" not in part} >= {n for n in widths if "blocks." not in n}
    for module in BLOCKS:
        original, name, part = original_layer(module)
        assert (name, comfyui_layer(module), part, original.in_blocks) == (ORIGINAL[module], ORIGINAL[module], 0, True)
    for spelling in [*ORIGINAL.values(), *ORIGINAL]:
        module = (ORIGINAL.get(spelling) and spelling) or next(m for m, n in ORIGINAL.items() if n == spelling)
        assert resolve(spelling).modules == resolve(spelling.replace(".", "_")).modules == (module,)
    assert resolve("head.head").modules == ("proj_out",) and resolve("time_projection_1").modules == (
        "condition_embedder.time_proj",
    )
    assert resolve("blocks.0.self_attn.k_img") is None and resolve("blocks.0.cross_attn.k_img") is not None


@pytest.mark.parametrize("target", ["comfyui", "diffusers"])
@given(about=st.dictionaries(st.sampled_from(BLOCKS), st.tuples(st.integers(1, 9), st.floats(0.01, 300)), min_size=1))
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_ranks_and_alphas_survive_both_formats(tmp_path_factory, widths, target, about):
    layers = {name: lora(widths, name, rank, alpha, i) for i, (name, (rank, alpha)) in enumerate(sorted(about.items()))}
    file = write_adapter(tmp_path_factory.mktemp("w") / "x.safetensors", layers, target, {})
    opened = open_adapter(file)
    assert opened.format == target and not opened.skipped
    assert_same(opened.read(), {name: layer.delta() for name, layer in layers.items()})
    assert {name: layer.rank for name, layer in opened.read().items()} == {name: layer.rank for name, layer in layers.items()}


def finetrainers(file, layers):
    ranks = {name: layer.rank for name, layer in layers.items()}
    config = {"r": 1, "lora_alpha": 7.0, "rank_pattern": ranks, "alpha_pattern": {n: v.alpha for n, v in layers.items()}}
    save_file(tensors_of(layers, lambda n: "transformer." + n), file, metadata={"lora_config": json.dumps(config)})


def original(prefix, halves=("lora_A.weight", "lora_B.weight"), alpha=True, plain=False):
    def write(file, layers):
        def named(name):
            return prefix + (ORIGINAL[name].replace(".", "_") if plain else ORIGINAL[name])

        save_file(tensors_of(layers, named, halves, alpha), file)

    return write


FILES = {  # writer, detected format
    "kohya, musubi": (original("lora_unet_", KOHYA, plain=True), "kohya"),
    "Wan-Fun": (original("lora_unet__", KOHYA, plain=True), "kohya"),
    "comfyui, alpha keys": (original("diffusion_model."), "comfyui"),
    "comfyui, downs and ups": (original("diffusion_model.", KOHYA), "comfyui"),
    "diffusion-pipe": (original("transformer."), "wan"),
    "DiffSynth": (original("", ("lora_A.default.weight", "lora_B.default.weight")), "wan"),
    "finetrainers": (finetrainers, "finetrainers"),
}


@pytest.mark.parametrize(("write", "kind"), FILES.values(), ids=FILES)
def test_files_of_other_trainers(tmp_path, widths, write, kind):
    layers = mixed(widths)
    write(tmp_path / "x.safetensors", layers)
    opened = open_adapter(tmp_path / "x.safetensors")
    assert opened.format == kind and opened.skipped == ()
    assert_same(opened.read(), {name: layer.delta() for name, layer in layers.items()})
    merged, pipeline = tiny_families.build("wan"), tiny_families.build("wan")
    before = output(merged)
    with torch.no_grad():
        for name, layer in linear_layers(merged.transformer).items():
            layer.weight += layers[name].delta() if name in layers else 0
    assert load_adapter(pipeline, tmp_path / "x.safetensors").tensors == 2 * len(layers)
    wanted = output(merged)
    assert (output(pipeline) - wanted).abs().max() <= 1e-5 * max(1.0, wanted.abs().max())
    assert (wanted - before).abs().max() > 1e-3


@pytest.mark.parametrize("rslora", [False, True])
def test_both_files_of_a_save_make_the_trained_output_in_diffusers_too(tmp_path, rslora):
    from peft import LoraConfig

    pipeline = tiny_families.build("wan")
    pipeline.transformer.add_adapter(LoraConfig(
        r=4, lora_alpha=6, target_modules=ATTENTION_AND_FEED_FORWARD, use_rslora=rslora,
        rank_pattern={"attn1.to_k": 3, "blocks.1.ffn.net.2": 5}, alpha_pattern={"attn2.to_v": 11, "to_out.0": 1},
    ))  # fmt: skip
    fill([p for n, p in pipeline.transformer.named_parameters() if "lora" in n])
    folder = save_adapter(pipeline.transformer, tmp_path / "mine", family="wan", base_model="lab/wan")
    copy, trained = folder / "comfyui" / "mine.safetensors", output(pipeline)
    assert set(load_file(copy)) == {f"diffusion_model.{name}.lora_{half}.weight" for name in ORIGINAL.values() for half in "AB"}
    for file in (copy, folder):
        ours, plain = tiny_families.build("wan"), tiny_families.build("wan")
        before = output(ours)
        load_adapter(ours, file)
        plain.load_lora_weights(str(folder), weight_name=str(file.relative_to(folder)) if file is copy else None)
        assert (output(ours) - trained).abs().max() <= 2e-6 and (output(plain) - trained).abs().max() <= 2e-6
        assert (trained - before).abs().max() > 1e-2


def test_the_comfyui_copy_of_an_expert_returns_to_it(tmp_path):
    pipeline = tiny_families.build("wan_two_experts")
    fill(inject_lora(pipeline.transformer_2, 2, seed=0))
    about = {"family": "wan", "base_model": "lab/wan", "extra_metadata": {"expert": "low"}}
    folder = save_adapter(pipeline.transformer_2, tmp_path / "low", **about)
    fresh = tiny_families.build("wan_two_experts")
    load_adapter(fresh, folder / "comfyui" / "low.safetensors")
    assert not getattr(fresh.transformer, "peft_config", None) and fresh.transformer_2.peft_config


def test_layers_outside_of_the_blocks_are_read_but_not_trained(tmp_path, base, widths):
    outside = "condition_embedder.time_proj"
    layers = {outside: lora(widths, outside, 2, 4.0), "proj_out": lora(widths, "proj_out", 2, 4.0)}
    names = {outside: "time_projection.1", "proj_out": "head.head"}
    save_file(tensors_of(layers, lambda n: "diffusion_model." + names[n], alpha=True), tmp_path / "x.safetensors")
    assert_same(open_adapter(tmp_path / "x.safetensors").read(), {name: layer.delta() for name, layer in layers.items()})
    with pytest.raises(AdapterError, match="no name that other readers accept"):
        inject_lora(base.transformer, 2, regex=r"condition_embedder\.time_proj")


def test_a_file_of_image_to_video_is_refused_whole_and_one_of_nothing_known_is_an_error(tmp_path, base, widths):
    layers = mixed(widths)
    tensors = tensors_of(layers, lambda n: "diffusion_model." + ORIGINAL[n])
    picture = {f"diffusion_model.blocks.0.cross_attn.k_img.lora_{half}.weight": torch.ones(2, 24)[:, :24] for half in "A"}
    picture["diffusion_model.blocks.0.cross_attn.k_img.lora_B.weight"] = torch.ones(24, 2)
    save_file(tensors | picture, tmp_path / "i2v.safetensors")
    with pytest.raises(AdapterError, match=r"1 of its 21 layers .*blocks\.0\.attn2\.add_k_proj"):
        load_adapter(base, tmp_path / "i2v.safetensors")
    unknown = {key.replace(".blocks.", ".vace_blocks."): value for key, value in tensors.items()}
    save_file(unknown, tmp_path / "none.safetensors")
    with pytest.raises(AdapterError, match="none of its 40 tensors belongs to a LoRA of this kind"):
        load_adapter(base, tmp_path / "none.safetensors")


def test_comfyuis_loaded_model_takes_every_layer_or_none(tmp_path, widths):
    layers = mixed(widths)
    file = open_adapter(write_adapter(tmp_path / "x.safetensors", layers, "diffusers", {}))
    shapes = {f"diffusion_model.{ORIGINAL[name]}.weight": widths[name] for name in BLOCKS}
    tensors = tensors_for_comfyui(file, shapes, "WAN21")
    for name, layer in layers.items():
        made = (
            tensors[f"diffusion_model.{ORIGINAL[name]}.lora_B.weight"]
            @ tensors[f"diffusion_model.{ORIGINAL[name]}.lora_A.weight"]
        )
        assert (made - layer.delta()).abs().max() <= 1e-6 * layer.delta().abs().max()
    del shapes["diffusion_model.blocks.1.ffn.2.weight"]
    with pytest.raises(AdapterError, match=r"1 of its 20 layers are not in this WAN21, such as blocks\.1\.ffn\.net\.2"):
        tensors_for_comfyui(file, shapes, "WAN21")
