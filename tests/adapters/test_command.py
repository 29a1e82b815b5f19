"""`phys-pipeline adapter`, in this process: what it prints, what it writes, its exit codes."""

import json

import pytest
import tiny_formats
import torch
from safetensors.torch import load_file, save_file
from tiny import save_tiny
from tiny_formats import BLOCKS, assert_same, lora

from phys_pipeline.adapters.command import main
from phys_pipeline.adapters.formats import WEIGHTS_FILE
from phys_pipeline.adapters.readers import open_adapter
from phys_pipeline.cli import main as cli
from phys_pipeline.errors import AdapterError, ConfigError


def test_inspect_says_what_the_file_is(saved, capsys):
    assert main(["inspect", str(saved), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["format"] == "diffusers" and report["layers"] == 11 and report["tensors"] == 22 and report["problem"] is None
    assert report["groups"][0] == {"alpha": 10.0, "count": 1, "layer": "single_transformer_blocks.*.attn.to_k", "rank": 4}
    assert report["base_model"] == report["provenance"]["base_model"] == "hunyuanvideo-community/HunyuanVideo"
    assert main(["inspect", str(saved / "comfyui" / "good.safetensors")]) == 0
    text = capsys.readouterr().out
    assert "ComfyUI ('diffusion_model.' keys)" in text and "0 numbers not finite" in text and "preset: paper" in text


def test_inspect_finds_damage_and_other_formats(saved, tmp_path, capsys):
    tensors = load_file(saved / WEIGHTS_FILE)
    next(iter(tensors.values())).view(-1)[:3] = float("nan")
    save_file(tensors, tmp_path / "nan.safetensors")
    assert main(["inspect", str(tmp_path / "nan.safetensors")]) == 2
    assert "3 numbers are NaN or infinite" in capsys.readouterr().out
    save_file(
        {"transformer.a.lora_A.weight": torch.ones(2), "transformer.a.dora_scale": torch.ones(2)}, tmp_path / "dora.safetensors"
    )
    assert main(["inspect", str(tmp_path / "dora.safetensors")]) == 2
    assert "DoRA" in capsys.readouterr().out


def test_convert_there_and_back_keeps_changes_and_provenance(saved, tmp_path, capsys):
    there, back = tmp_path / "there.safetensors", tmp_path / "back.safetensors"
    assert main(["convert", str(saved), "--to", "comfyui", "-o", str(there)]) == 0
    assert there.read_bytes() == (saved / "comfyui" / "good.safetensors").read_bytes()
    assert main(["convert", str(there), "--to", "diffusers", "-o", str(back)]) == 0
    first, last = open_adapter(saved / WEIGHTS_FILE), open_adapter(back)
    assert_same(last.read(), {name: layer.delta() for name, layer in first.read().items()})
    assert last.provenance == first.provenance and last.format == "diffusers"
    kohya = tmp_path / "kohya.safetensors"
    tiny_formats.kohya(kohya, {"double_blocks.0.img_attn_qkv": lora("double_blocks.0.img_attn_qkv", 3, 5.0)})
    save_file(load_file(kohya) | {"lora_te1_x.alpha": torch.ones(())}, kohya)
    assert main(["convert", str(kohya), "--to", "diffusers", "-o", str(back)]) == 0
    captured = capsys.readouterr()
    assert "3 of kohya, 1 tensors left out" in captured.out and "left out 'lora_te1_x.alpha'" in captured.err


def test_verify_needs_an_effect(saved, tmp_path, capsys):
    model = str(save_tiny(tmp_path / "model"))
    assert main(["verify", str(saved), "--model", model]) == 0
    out = capsys.readouterr().out
    assert "11 changed, 0 tensors left out" in out and float(out.split("mean change")[1].split()[0]) > 1e-4
    save_file(
        {name: torch.zeros_like(value) for name, value in load_file(saved / WEIGHTS_FILE).items()}, tmp_path / "zero.safetensors"
    )
    with pytest.raises(AdapterError, match="applied to 11 layers and changes nothing"):
        main(["verify", str(tmp_path / "zero.safetensors"), "--model", model])
    with pytest.raises(AdapterError, match="for another model"):
        tiny_formats.finetrainers(tmp_path / "wide.safetensors", {name: lora(name, 2, 2.0) for name in BLOCKS})
        main(["verify", str(tmp_path / "wide.safetensors"), "--model", model])


def test_merge_writes_a_model(saved, tmp_path, capsys):
    model = str(save_tiny(tmp_path / "model"))
    assert main(["merge", str(saved), "--model", model, "-o", str(tmp_path / "merged"), "--weight", "0.5"]) == 0
    assert "11 merged" in capsys.readouterr().out and (tmp_path / "merged" / "model_index.json").is_file()
    with pytest.raises(AdapterError, match="exists: choose a new folder"):
        main(["merge", str(saved), "--model", model, "-o", str(tmp_path / "merged")])


def test_metadata_comes_out_as_json(saved, tmp_path, capsys):
    assert main(["extract-metadata", str(saved)]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["phys_pipeline"] == json.loads((saved / "provenance.json").read_text())
    assert printed["lora_adapter_metadata"]["transformer.r"] == 4 and printed["format"] == "pt"
    assert main(["extract-metadata", str(saved), "-o", str(tmp_path / "m.json")]) == 0
    assert json.loads((tmp_path / "m.json").read_text()) == printed


def test_mistakes_are_one_line(saved, tmp_path, capsys):
    source = tmp_path / "a.safetensors"
    source.write_bytes((saved / WEIGHTS_FILE).read_bytes())
    for arguments, message in (
        (["convert", str(saved), "--to", "comfyui", "-o", str(tmp_path / "x.pt")], "end it with .safetensors"),
        (["convert", str(source), "--to", "comfyui", "-o", str(source)], "is the input"),
        (["inspect", str(tmp_path / "none.safetensors")], "there is no adapter"),
    ):
        with pytest.raises(AdapterError, match=message):
            main(arguments)
    with pytest.raises(ConfigError, match="unknown command adapter 'explode'"):
        main(["explode"])
    assert cli(["adapter"]) == 0 and "adapter merge FILE" in capsys.readouterr().out
    assert cli(["adapter", "inspect", str(tmp_path / "none.safetensors")]) == 2
    assert capsys.readouterr().err.startswith("error: there is no adapter")
