"""The command line as a user meets it: output, exit codes, one-line errors, nothing half-written."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from phys_pipeline.cli import _MODULES, build_parser, main
from phys_pipeline.media import Video, probe, read_video, write_video
from phys_pipeline.media.synthetic import textured_clip

SAMPLES = Path(__file__).resolve().parent.parent / "samples" / "clips"


@pytest.fixture
def clips(tmp_path: Path) -> dict[str, Path]:
    made = {}
    for name, motion in {"pan": {"velocity": (1.5, 0.0)}, "roll": {"rotation": 0.08}}.items():
        made[name] = tmp_path / f"{name}.mp4"
        write_video(made[name], Video.from_tensor(textured_clip(16, 64, 64, seed=3, **motion).video, fps=8))  # type: ignore[arg-type]
    return made


def bad_files(folder: Path) -> dict[str, Path]:
    """Every kind of file that can't be scored."""
    text, empty, one, tiny = (folder / name for name in ("text.mp4", "empty.mp4", "one.png", "tiny.mp4"))
    text.write_text("this is not a video\n" * 50)
    empty.write_bytes(b"")
    write_video(one, Video.from_frames(np.zeros((1, 32, 32, 3), np.uint8), fps=8))
    write_video(tiny, Video.from_frames(np.random.default_rng(0).integers(0, 255, (9, 2, 2, 3), np.uint8), fps=8))
    return {"missing": folder / "missing.mp4", "folder": folder, "text": text, "empty": empty, "one frame": one, "2x2": tiny}


def one_error(capsys: pytest.CaptureFixture[str]) -> str:
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1 and "Traceback" not in lines[0]
    return lines[0]


def test_score_prints_every_number(clips, capsys):
    assert main(["score", str(clips["pan"])]) == 0
    text = capsys.readouterr().out
    for word in ("composite", "translation", "rotation", "scaling", "weight", "velocity", "zoom", "dynamic degree"):
        assert word in text
    assert "dominant motion: translation" in text


def test_score_json_is_the_versioned_schema_on_stdout_alone(clips, capsys):
    assert main(["score", "--json", *map(str, clips.values())]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert (printed["schema"], printed["version"]) == ("phys-pipeline/scores", 1)
    assert [report["dominant"] for report in printed["reports"]] == ["translation", "rotation"]
    assert printed["errors"] == []


def test_one_bad_file_does_not_lose_the_others(clips, tmp_path, capsys):
    assert main(["score", "--json", str(tmp_path / "missing.mp4"), str(clips["pan"])]) == 2
    printed = json.loads(capsys.readouterr().out)
    assert len(printed["reports"]) == 1 and "missing.mp4" in printed["errors"][0]["source"]


@pytest.mark.parametrize("kind", ["missing", "folder", "text", "empty", "one frame", "2x2"])
@pytest.mark.parametrize("command", ["score", "overlay", "compare"])
def test_bad_input_is_one_line_and_exit_code_2(kind, command, tmp_path, clips, capsys):
    bad = bad_files(tmp_path)[kind]
    before = {path.name for path in tmp_path.iterdir()}
    output = ["-o", str(tmp_path / "result.mp4")] if command != "score" else []
    files = [str(clips["pan"]), str(bad)] if command == "compare" else [str(bad)]
    assert main([command, *files, *output]) == 2
    one_error(capsys)
    assert {path.name for path in tmp_path.iterdir()} == before


def test_a_huge_file_is_refused_with_the_way_out(clips, monkeypatch, capsys):
    monkeypatch.setenv("PHYS_PIPELINE_MAX_BYTES", "10000")
    assert main(["score", str(clips["pan"])]) == 2
    assert "max" in one_error(capsys)


def test_compare_writes_a_labelled_video_with_scores(clips, tmp_path, capsys):
    output, scores = tmp_path / "new" / "comparison.mp4", tmp_path / "new" / "scores.json"
    files = [str(path) for path in clips.values()]
    assert main(["compare", *files, "-o", str(output), "--scores", str(scores), "--labels", "left", "right"]) == 0
    assert len(read_video(output)) == 16 and probe(output).width > 2 * 360
    assert set(json.loads(scores.read_text())["videos"]) == {"left", "right"}
    out = capsys.readouterr().out
    assert str(output) in out and "dynamic degree" in out
    assert sorted(path.name for path in output.parent.iterdir()) == ["comparison.mp4", "scores.json"]


def test_overlay_writes_the_video_with_its_panel(clips, tmp_path):
    output = tmp_path / "overlay.mp4"
    assert main(["overlay", str(clips["roll"]), "-o", str(output), "--title", "roll"]) == 0
    assert probe(output).height >= 360


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["compare", "a.mp4", "b.mp4", "-o", "result.xyz"], ".mp4"),
        (["generate", "a red square", "--baseline", "-o", "x.mp4"], "--adapter"),
        (["generate", "  ", "-o", "x.mp4"], "prompt"),
        (["generate", "a", "--best-of", "0", "-o", "x.mp4"], "--best-of"),
        (["generate", "a", "--keep-all", "all", "-o", "x.mp4"], "--best-of N"),
        (["generate", "a", "--frames", "2", "-o", "x.mp4"], "2 frames"),
        (["generate", "a", "--height", "-64", "-o", "x.mp4"], "pixels"),
        (["generate", "a", "--device", "meta", "-o", "x.mp4"], "--device cpu"),
        (["overlay", "a.mp4", "-o", "new/folder/out.mp4"], "a.mp4 doesn't exist"),
        (["generate", "a", "--device", "nonsense", "-o", "x.mp4"], "--device cpu"),
        (["generate", "a", "--precision", "fp16", "--device", "cpu", "-o", "x.mp4"], "bf16"),
        (["generate", "a", "--model", "no/such/folder", "-o", "x.mp4"], "no/such/folder"),
        (["generate", "a", "--adapter", "x", "--baseline", "--weight", "nan", "-o", "x.mp4"], "--weight"),
    ],
)
def test_wrong_options_say_what_to_do(arguments, words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    assert words in one_error(capsys)
    assert list(tmp_path.iterdir()) == []


def test_every_option_of_every_command_is_explained():
    commands = next(action for action in build_parser()._actions if action.dest == "command").choices
    own = {"score", "compare", "overlay", "generate"}
    assert set(commands) == {*own, "data", *_MODULES}  # the latter have parsers of their own
    for name in own:
        parser = commands[name]
        assert len(parser.description) > 40
        for action in parser._actions:
            assert action.help, f"{name} {action.option_strings or action.dest} has no help"


@pytest.mark.parametrize("command", ["overlay", "compare"])
def test_an_input_is_never_overwritten(command, clips, capsys):
    source = clips["pan"]
    before = source.read_bytes()
    others = [str(clips["roll"])] if command == "compare" else []
    assert main([command, str(source), *others, "-o", str(source)]) == 2
    assert "is also the input" in one_error(capsys)
    assert source.read_bytes() == before


def test_two_outputs_need_two_names(clips, tmp_path, capsys):
    output = str(tmp_path / "same.mp4")
    assert main(["overlay", str(clips["pan"]), "-o", output, "--scores", output]) == 2
    assert "another output" in one_error(capsys)


def test_an_unknown_command_exits_with_2():
    with pytest.raises(SystemExit) as stop:
        main(["scroe", "x.mp4"])
    assert stop.value.code == 2


@pytest.fixture(scope="module")
def tiny_adapter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A LoRA with random weights for the embedded model."""
    import torch

    from phys_pipeline.adapters import inject_lora, save_adapter
    from phys_pipeline.families import load_model

    model = load_model("tiny")
    generator = torch.Generator().manual_seed(0)
    for parameter in inject_lora(model.pipeline.transformer, rank=2, seed=0):
        parameter.data.copy_(0.1 * torch.randn(parameter.shape, generator=generator))
    folder = tmp_path_factory.mktemp("adapters") / "tiny"
    save_adapter(model.pipeline.transformer, folder, family="hunyuan_video", base_model=model)
    return folder


def frames_of(path: Path) -> np.ndarray:
    return read_video(path).frames


def test_generate_pair_from_the_embedded_model(tiny_adapter, tmp_path, capsys):
    arguments = ["generate", "a red square moves right", "--adapter", str(tiny_adapter), "--baseline", "--steps", "2"]
    output, raw = tmp_path / "pair.mp4", tmp_path / "raw"
    assert main([*arguments, "-o", str(output), "--raw", str(raw), "--scores", str(tmp_path / "scores.json")]) == 0
    assert "physics" in capsys.readouterr().out
    assert not np.array_equal(frames_of(raw / "baseline.mp4"), frames_of(raw / "physics.mp4"))
    assert probe(output).width > probe(output).height
    scores = json.loads((tmp_path / "scores.json").read_text())
    assert (
        scores["seed"] == 0
        and scores["settings"]["num_inference_steps"] == 2
        and set(scores["videos"]) == {"baseline", "physics"}
    )

    assert main([*arguments, "--weight", "0", "-o", str(output), "--raw", str(raw)]) == 0
    assert np.array_equal(frames_of(raw / "baseline.mp4"), frames_of(raw / "physics.mp4"))


def test_generate_the_best_of_two_seeds(tiny_adapter, tmp_path, capsys):
    arguments = ["generate", "a red square moves right", "--adapter", str(tiny_adapter), "--baseline", "--steps", "2"]
    output, every, scores = tmp_path / "best.mp4", tmp_path / "all", tmp_path / "scores.json"
    arguments += ["--best-of", "2", "--seed", "3", "--keep-all", str(every), "--scores", str(scores), "--raw", str(tmp_path)]
    assert main([*arguments, "-o", str(output)]) == 0
    shown = capsys.readouterr()
    assert "motion loss" in shown.err and "  best" in shown.err and "physics" in shown.out and output.is_file()
    written = json.loads(scores.read_text())["best_of"]
    for name in ("baseline", "physics"):
        assert [c["seed"] for c in written[name]["candidates"]] == [3, 4]
        winner = every / f"{name}-seed-{written[name]['seed']}.mp4"
        assert np.array_equal(frames_of(winner), frames_of(tmp_path / f"{name}.mp4"))
    assert (every / "candidates.json").is_file()


def test_wrong_adapters_are_one_line_and_exit_code_2(tiny_adapter, tmp_path, capsys):
    from safetensors.torch import load_file, save_file
    from tiny import tiny_transformer

    from phys_pipeline.adapters import inject_lora, save_adapter

    other = tiny_transformer()
    inject_lora(other, rank=2, seed=1)
    save_adapter(other, tmp_path / "other", family="hunyuan_video", base_model="another-model")
    weights = load_file(tiny_adapter / "pytorch_lora_weights.safetensors")
    save_file(
        {key.replace("transformer.", "diffusion_model.blocks."): value for key, value in weights.items()},
        tmp_path / "comfy.safetensors",
    )
    (tmp_path / "text.safetensors").write_text("no weights")
    before = sorted(tmp_path.iterdir())
    for adapter, words in {
        tmp_path / "other": "another-model",
        tmp_path / "comfy.safetensors": "ComfyUI",
        tmp_path / "text.safetensors": "text.safetensors",
        tmp_path / "missing": "missing",
    }.items():
        arguments = ["generate", "a red square", "--adapter", str(adapter), "--baseline", "--steps", "1"]
        assert main([*arguments, "-o", str(tmp_path / "x.mp4")]) == 2
        assert words in one_error(capsys)
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.slow
def test_interrupting_a_long_overlay_leaves_nothing(tmp_path):
    output = tmp_path / "overlay.mp4"
    process = subprocess.Popen(
        [sys.executable, "-m", "phys_pipeline", "overlay", str(SAMPLES / "mdn_rabbit.webm"), "-o", str(output)],
        stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # a background job may ignore it
    )  # fmt: skip
    assert process.stderr is not None
    assert "reading" in process.stderr.readline()
    time.sleep(1.0)
    process.send_signal(signal.SIGINT)
    rest = process.communicate(timeout=120)[1]
    assert process.returncode == 130, rest
    assert "Traceback" not in rest and list(tmp_path.iterdir()) == []
