import json

import pytest
from safetensors.torch import save_file
from tiny_open_sora import golden_weights

from phys_pipeline.cli import main
from phys_pipeline.errors import ConfigError
from phys_pipeline.models.convert_command import conversions_of


def test_the_command_writes_the_part_and_says_what_is_missing(tmp_path, capsys):
    save_file(golden_weights(), tmp_path / "model.safetensors")
    folder = tmp_path / "out"
    command = ["convert", "--family", "open-sora-1.2", str(tmp_path / "model.safetensors"), str(folder)]
    assert main(command) == 0
    said = capsys.readouterr().out
    assert f"wrote {folder / 'transformer'}" in said and "vae (phys-pipeline convert of hpcai-tech/OpenSora-VAE-v1.2)" in said
    assert "text_encoder" in said and "transformer (" not in said
    assert json.loads((folder / "model_index.json").read_text())["_class_name"] == "OpenSoraPipeline"

    (folder / "phys_pipeline.json").write_text('{"family": "mine"}')
    assert main(command) == 0
    assert json.loads((folder / "phys_pipeline.json").read_text()) == {"family": "mine"}  # a changed file stays
    assert "kept" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--family", "open-sora-9", "x", "y"], "nothing to convert for 'open-sora-9': use one of "),
        (["--family", "wan", "x", "y"], "nothing to convert for 'wan': use one of mvdit, open_sora_1_2, open_sora_2"),
        (["--family", "open_sora_1_2", "nowhere.safetensors", "out"], "no checkpoint at nowhere.safetensors"),
        (["--family", "open_sora_1_2", "nobody/nothing", "out"], "nobody/nothing is no file here"),
    ],
)
def test_errors_are_one_line(arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["convert", *arguments]) == 2
    assert capsys.readouterr().err.startswith(f"error: {message}")


def test_families_may_be_spelled_with_dashes_and_dots():
    assert conversions_of("open-sora-1.2") is conversions_of("open_sora_1_2")
    assert conversions_of("open-sora-2.0") is conversions_of("open_sora_2")
    with pytest.raises(ConfigError):
        conversions_of("wan")
