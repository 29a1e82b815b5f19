import json

import pytest
import tiny_open_sora
import torch
from safetensors.torch import load_file
from tiny_open_sora_2 import golden, golden_transformer, golden_weights

from phys_pipeline.adapters.layers import linear_layers
from phys_pipeline.adapters.original import to_original
from phys_pipeline.adapters.weights import LoraLayer
from phys_pipeline.adapters.writers import write_adapter
from phys_pipeline.cli import main
from phys_pipeline.errors import ConfigError
from phys_pipeline.models.open_sora_2_conversion import transformer_key_map
from phys_pipeline.models.open_sora_conversion import FILES, TRANSFORMER_KEYS

KEY_MAP = transformer_key_map(head_dim=16, latent_channels=4)


def some_lora(layers, seed=0):
    """A LoRA of mixed ranks on the given linear layers."""
    g = torch.Generator().manual_seed(seed)
    found = {}
    for i, (name, layer) in enumerate(layers.items()):
        rank = 1 + i % 3
        down, up = torch.randn(rank, layer.in_features, generator=g), torch.randn(layer.out_features, rank, generator=g)
        found[name] = LoraLayer(down, up, alpha=2.5)
    return found


@pytest.mark.parametrize("which", ["all", "attention", "to_v"])
def test_an_adapter_trained_here_changes_the_original_weights_alike(which):
    """Original weights plus the change in the original layout, converted, are the converted weights plus the change."""
    tensors = golden()
    model = golden_transformer(tensors)
    linear = linear_layers(model)
    chosen = {name: layer for name, layer in linear.items() if which == "all" or (which in name and "." in name) or (
        which == "attention" and ".attn." in name)}  # fmt: skip
    lora = some_lora(chosen)
    original = to_original(lora, KEY_MAP, {name: layer.out_features for name, layer in linear.items()})

    changed = golden_weights(tensors)
    for name, layer in original.items():
        changed[f"{name}.weight"] = changed[f"{name}.weight"] + layer.delta()
    state = KEY_MAP.forward(changed)
    for name, value in model.state_dict().items():
        module = name.removesuffix(".weight")
        expected = value + lora[module].delta() if module in lora else value
        torch.testing.assert_close(state[name], expected, atol=1e-5, rtol=1e-5, msg=name)
    if which == "to_v":  # in the single blocks it is the first rows of a layer, whose others stay
        assert not original["single_blocks.0.v_mlp"].up[64:].any() and "double_blocks.1.img_attn.v_proj" in original


def test_layers_of_another_model_are_refused():
    with pytest.raises(ConfigError, match="no linear layer blocks"):
        to_original({"blocks.0.attn": LoraLayer(torch.ones(1, 2), torch.ones(2, 1), 1.0)}, KEY_MAP, {"proj_out": 16})


def test_the_command_writes_the_official_layout_of_a_converted_model(tmp_path, capsys):
    """Of the model nothing but two small files and the transformer's config is there."""
    transformer = tiny_open_sora.tiny_transformer()
    model = tmp_path / "model"
    transformer.save_config(model / "transformer")
    for name in ("model_index.json", "phys_pipeline.json"):
        (model / name).write_text(json.dumps(FILES[name]))
    lora = some_lora({name: layer for name, layer in linear_layers(transformer).items() if ".attn" in name})
    given = write_adapter(tmp_path / "lora.safetensors", lora, "diffusers", {"phys_pipeline": '{"family": "open_sora_1_2"}'})
    output = tmp_path / "original.safetensors"
    command = ["adapter", "convert", str(given), "--to", "original", "-o", str(output)]
    assert main([*command, "--model", str(model)]) == 0, capsys.readouterr().err

    tensors = load_file(output)
    changed = dict(tiny_open_sora.golden_weights())
    for name in {key.split(".lora_")[0] for key in tensors if ".lora_" in key}:
        down, up = tensors[f"{name}.lora_A.weight"], tensors[f"{name}.lora_B.weight"]
        changed[f"{name}.weight"] = changed[f"{name}.weight"] + tensors[f"{name}.alpha"] / len(down) * up @ down
    for name, value in TRANSFORMER_KEYS.forward(changed).items():
        module = name.removesuffix(".weight")
        expected = transformer.state_dict()[name] + (lora[module].delta() if module in lora else 0)
        torch.testing.assert_close(value, expected, atol=1e-5, rtol=1e-5, msg=name)

    assert main(command) == 2 and "needs --model" in capsys.readouterr().err
    (model / "transformer" / "config.json").unlink()
    assert main([*command, "--model", str(model)]) == 2 and "give a converted folder" in capsys.readouterr().err
    (model / "phys_pipeline.json").write_text('{"family": "wan"}')
    assert main([*command, "--model", str(model)]) == 2 and "nothing to convert for 'wan'" in capsys.readouterr().err
