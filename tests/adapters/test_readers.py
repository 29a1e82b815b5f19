"""Files of other trainers: every layer's merged change, and the model's output, are what the trainer meant."""

import logging

import pytest
import tiny_formats
import torch
from safetensors.torch import load_file, save_file
from tiny import tiny_pipeline
from tiny_adapter import output
from tiny_formats import BLOCKS, LAYERS, ORIGINAL_BLOCKS, ORIGINALS, SIZE, assert_same, expected_changes, lora

from phys_pipeline.adapters import load_adapter
from phys_pipeline.adapters.layers import linear_layers
from phys_pipeline.adapters.readers import open_adapter
from phys_pipeline.errors import AdapterError


def mixed(names, seed=0):
    return {name: lora(name, 1 + (i + seed) % 6, 0.5 + 1.7 * i, i) for i, name in enumerate(names)}


def alpha_is_rank(names):
    return {name: lora(name, 1 + i % 6, 1.0 + i % 6, i) for i, name in enumerate(names)}


FILES = {  # writer, changes, detected format; the trainers that fuse are given layers trained as one
    "kohya": (tiny_formats.kohya, mixed(ORIGINAL_BLOCKS), "kohya"),
    "kohya, every layer": (tiny_formats.kohya, mixed(ORIGINALS), "kohya"),
    "comfyui names": (tiny_formats.comfyui_names, mixed(ORIGINALS), "comfyui"),
    "diffusion-pipe": (tiny_formats.diffusion_pipe, alpha_is_rank(ORIGINAL_BLOCKS), "tencent"),
    "diffusion-pipe, older": (tiny_formats.diffusion_pipe_old, alpha_is_rank(ORIGINAL_BLOCKS), "comfyui"),
    "single blocks alone": (tiny_formats.original_names, alpha_is_rank(["single_blocks.1.linear1"]), "tencent"),
    "no prefix": (tiny_formats.original_names, alpha_is_rank(ORIGINALS), "tencent"),
    "peft": (tiny_formats.peft_folder, {n: lora(n, 1 + i % 3, 7.0, i) for i, n in enumerate(ORIGINAL_BLOCKS)}, "peft"),
    "finetrainers": (tiny_formats.finetrainers, {n: lora(n, 4, 6.0, i) for i, n in enumerate(BLOCKS)}, "finetrainers"),
    "onetrainer, legacy": (tiny_formats.onetrainer_legacy, mixed(LAYERS), "onetrainer"),
    "onetrainer": (tiny_formats.onetrainer_omi, mixed(BLOCKS), "onetrainer"),
}


@pytest.mark.parametrize(("write", "layers", "kind"), FILES.values(), ids=FILES)
def test_changes_and_output_are_those_the_trainer_meant(tmp_path, write, layers, kind):
    file = tmp_path / "adapter_model.safetensors"
    write(file, layers)
    changes = expected_changes(layers)
    opened = open_adapter(file)
    assert opened.format == kind and opened.skipped == ()
    assert_same(opened.read(), changes)

    merged, pipeline = tiny_pipeline(**SIZE), tiny_pipeline(**SIZE)
    base = output(merged)
    with torch.no_grad():
        for name, layer in linear_layers(merged.transformer).items():
            layer.weight += changes.get(name, 0)
    info = load_adapter(pipeline, file)
    assert info.format == kind and info.tensors == 2 * len(changes)
    wanted = output(merged)
    assert (output(pipeline) - wanted).abs().max() <= 1e-5 * max(1.0, wanted.abs().max())  # weights were rounded once more
    assert (wanted - base).abs().max() > 1e-3


def test_half_precision_and_shared_downs(tmp_path):
    layers = mixed(ORIGINAL_BLOCKS)
    tensors = tiny_formats.tensors_of(layers, lambda n: "transformer." + n, dtype=torch.bfloat16)
    save_file(tensors, tmp_path / "x.safetensors")
    found = open_adapter(tmp_path / "x.safetensors").read()
    q, k = (found[f"transformer_blocks.0.attn.{name}"] for name in ("to_q", "to_k"))
    assert torch.equal(q.down, k.down) and q.down.dtype == torch.bfloat16


def test_keys_of_text_encoders_and_unknown_layers_are_listed(tmp_path, caplog):
    layers = mixed(ORIGINAL_BLOCKS[:3])
    tiny_formats.kohya(tmp_path / "x.safetensors", layers)
    strange = {"lora_te1_text_model_layers_0.lora_down.weight": torch.ones(2, 2), "lora_unet_img_in_proj.lora_down.weight":
               torch.ones(2, 2), "double_blocks.0.img_attn_q_norm.diff": torch.ones(2)}  # fmt: skip
    save_file(load_file(tmp_path / "x.safetensors") | strange, tmp_path / "y.safetensors")
    with caplog.at_level(logging.WARNING, "phys_pipeline"):
        info = load_adapter(tiny_pipeline(**SIZE), tmp_path / "y.safetensors")
    assert set(info.skipped) == set(strange) and info.tensors == 2 * len(expected_changes(layers))
    assert "3 of 12 tensors" in caplog.text
    save_file(strange, tmp_path / "z.safetensors")
    with pytest.raises(AdapterError, match="none of its 3 tensors belongs to a LoRA of this kind"):
        load_adapter(tiny_pipeline(**SIZE), tmp_path / "z.safetensors")


def test_one_layer_under_two_names_is_refused(tmp_path):
    layers = {"double_blocks.0.img_attn_qkv": lora("double_blocks.0.img_attn_qkv", 2, 2.0)}
    one = tiny_formats.tensors_of(layers, lambda n: n)
    for other, message in (
        (tiny_formats.tensors_of(layers, lambda n: "diffusion_model." + n), "two tensors for one half"),
        (tiny_formats.tensors_of(layers, lambda n: n.replace(".", "_")), "changes transformer_blocks.0.attn.to_q twice"),
    ):
        save_file(one | {key: value.clone() for key, value in other.items()}, tmp_path / "x.safetensors")
        with pytest.raises(AdapterError, match=message):
            open_adapter(tmp_path / "x.safetensors")
