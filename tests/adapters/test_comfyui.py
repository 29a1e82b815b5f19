"""LoRA files made to fit a model under ComfyUI's names."""

import pytest
import torch
from safetensors.torch import save_file
from tiny import tiny_transformer
from tiny_formats import LAYERS, SIZE, lora

from benchmarks.comfyui_loader import comfyui_weights
from phys_pipeline.adapters.comfyui import tensors_for_comfyui
from phys_pipeline.adapters.readers import open_adapter
from phys_pipeline.errors import AdapterError

MODEL = tiny_transformer(**SIZE)
WEIGHTS = {f"diffusion_model.{name}": value for name, value in comfyui_weights(MODEL).items()}
SHAPES = {name: tuple(value.shape) for name, value in WEIGHTS.items()}


def saved(path, layers):
    tensors = {}
    for name, layer in layers.items():
        tensors |= {f"transformer.{name}.lora_A.weight": layer.down, f"transformer.{name}.lora_B.weight": layer.up}
        tensors[f"transformer.{name}.alpha"] = torch.tensor(layer.alpha)
    save_file(tensors, path)
    return open_adapter(path)


@torch.no_grad()
def test_every_layer_changes_as_in_diffusers(tmp_path):
    """Base weights plus the tensors' products are the renamed weights of a diffusers model with the change merged: of every
    layer, with ranks and alphas of its own, the swapped one included."""
    layers = {name: lora(name, 2 + i % 3, 1.0 + i % 5, seed=i) for i, name in enumerate(LAYERS)}
    tensors = tensors_for_comfyui(saved(tmp_path / "all.safetensors", layers), SHAPES, "model")
    merged = tiny_transformer(**SIZE)
    merged.load_state_dict(MODEL.state_dict())
    modules = dict(merged.named_modules())
    for name, layer in layers.items():
        modules[name].weight += layer.delta()
    expected = {f"diffusion_model.{name}": value for name, value in comfyui_weights(merged).items()}
    changed = set()
    for key, down in tensors.items():
        if key.endswith("lora_A.weight"):
            name = key.replace("lora_A.weight", "weight")
            changed.add(name)
            up = tensors[key.replace("lora_A", "lora_B")]
            torch.testing.assert_close(WEIGHTS[name] + up @ down, expected[name], atol=1e-5, rtol=1e-5)
    assert changed == {name for name in expected if not torch.equal(expected[name], WEIGHTS[name])}


@pytest.mark.parametrize("part", ["attn.to_k", "proj_mlp"])
def test_part_of_a_fused_layer(tmp_path, part):
    """The other rows are left alone, whatever their width."""
    name = f"single_transformer_blocks.1.{part}"
    tensors = tensors_for_comfyui(saved(tmp_path / "part.safetensors", {name: lora(name, 3, 3.0)}), SHAPES, "model")
    up = tensors["diffusion_model.single_blocks.1.linear1.lora_B.weight"]
    assert len(tensors) == 2 and len(up) == SHAPES["diffusion_model.single_blocks.1.linear1.weight"][0]
    assert int(up.any(dim=1).sum()) == LAYERS[name].out_features


def test_a_file_for_another_model(tmp_path):
    name = "transformer_blocks.1.attn.to_q"
    file = saved(tmp_path / "lora.safetensors", {name: lora(name, 2, 2.0)})
    with pytest.raises(AdapterError, match="not in this Flux"):
        tensors_for_comfyui(file, {"diffusion_model.double_blocks.0.img_attn.qkv.weight": (8, 8)}, "Flux")
    narrow = {key: (shape[0] // 2, *shape[1:]) for key, shape in SHAPES.items()}
    with pytest.raises(AdapterError, match="here and"):
        tensors_for_comfyui(file, narrow, "model")
