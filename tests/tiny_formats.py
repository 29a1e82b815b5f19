"""LoRA files as other trainers write them, made from changes of the original model's layers, and what they must do."""

import json

import torch
from safetensors.torch import save_file
from tiny import tiny_transformer

from phys_pipeline.adapters.layers import linear_layers
from phys_pipeline.adapters.names import original_layer
from phys_pipeline.adapters.weights import LoraLayer

SIZE = {"num_layers": 2, "num_single_layers": 2, "num_attention_heads": 3}
LAYERS = linear_layers(tiny_transformer(**SIZE))
BLOCKS = sorted(name for name in LAYERS if name.startswith(("transformer_blocks.", "single_transformer_blocks.")))
ORIGINALS = {original_layer(name)[1]: original_layer(name)[0] for name in LAYERS}
ORIGINAL_BLOCKS = [name for name in ORIGINALS if name.startswith(("double", "single"))]


def lora(module, rank, alpha, seed=0):
    """A random LoRA of a diffusers layer, or of a fused layer of the original."""
    g, parts = torch.Generator().manual_seed(seed), ORIGINALS[module].parts if module in ORIGINALS else (module,)
    rows, columns = sum(LAYERS[part].out_features for part in parts), LAYERS[parts[0]].in_features
    return LoraLayer(0.2 * torch.randn(rank, columns, generator=g), 0.2 * torch.randn(rows, rank, generator=g), alpha)


def expected_changes(layers):
    """Changes of diffusers layers that LoRAs of original or diffusers layers make: each part has its rows, halves may swap."""
    changes = {}
    for name, layer in layers.items():
        original = ORIGINALS.get(name)
        delta = layer.delta()
        if original is None:
            changes[name] = delta
            continue
        if original.swapped:
            delta = delta.roll(len(delta) // 2, 0)
        rows = [LAYERS[part].out_features for part in original.parts]
        changes |= dict(zip(original.parts, delta.split(rows), strict=True))
    return changes


def assert_same(found, changes):
    """Every change is read within a millionth of its largest entry."""
    assert found.keys() == changes.keys()
    for module, change in changes.items():
        assert (found[module].delta() - change).abs().max() <= 1e-6 * change.abs().max(), module


def tensors_of(layers, key, halves=("lora_A.weight", "lora_B.weight"), alpha=False, dtype=torch.float32):
    tensors = {}
    for name, layer in layers.items():
        tensors[f"{key(name)}.{halves[0]}"], tensors[f"{key(name)}.{halves[1]}"] = layer.down.to(dtype), layer.up.to(dtype)
        if alpha:
            tensors[f"{key(name)}.alpha"] = torch.tensor(layer.alpha)
    return tensors


_KOHYA = ("lora_down.weight", "lora_up.weight")


def kohya(file, layers):
    save_file(tensors_of(layers, lambda n: "lora_unet_" + n.replace(".", "_"), _KOHYA, alpha=True), file)


def comfyui_names(file, layers):
    save_file(tensors_of(layers, lambda n: "diffusion_model." + _last_spelling(n), _KOHYA, alpha=True), file)


def diffusion_pipe(file, layers):
    save_file(tensors_of(layers, lambda n: "transformer." + n), file)


def diffusion_pipe_old(file, layers):
    save_file(tensors_of(layers, lambda n: "diffusion_model." + n), file)


def original_names(file, layers):
    save_file(tensors_of(layers, lambda n: n), file)


def peft_folder(file, layers):
    alpha = next(iter(layers.values())).alpha
    ranks = {name: layer.rank for name, layer in layers.items()}
    config = {"peft_type": "LORA", "r": 1, "lora_alpha": alpha, "rank_pattern": ranks, "target_modules": list(layers)}
    (file.parent / "adapter_config.json").write_text(json.dumps(config))
    save_file(tensors_of(layers, lambda n: "base_model.model." + n), file)


def finetrainers(file, layers):
    first = next(iter(layers.values()))
    config = {"r": first.rank, "lora_alpha": first.alpha, "init_lora_weights": True, "target_modules": ["to_q"]}
    save_file(tensors_of(layers, lambda n: "transformer." + n), file, metadata={"lora_config": json.dumps(config, indent=4)})


def onetrainer_legacy(file, layers):
    save_file(tensors_of(layers, lambda n: "lora_transformer_" + n.replace(".", "_"), _KOHYA, alpha=True), file)


def onetrainer_omi(file, layers):
    save_file(tensors_of(layers, lambda n: "transformer." + _numbered_part(n), _KOHYA, alpha=True), file)


def _numbered_part(module):
    original, name, part = original_layer(module)
    return f"{name}.{part}" if len(original.parts) > 1 else name.replace("mlp.fc1", "mlp.fc0")


def _last_spelling(name):
    number = next((word for word in name.split(".") if word.isdigit()), None)
    return ORIGINALS[name].names[1 if len(ORIGINALS[name].names) > 1 else 0].replace(".N.", f".{number}.")
