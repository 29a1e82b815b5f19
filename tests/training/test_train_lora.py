import _thread
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from training_run import ADAPTER, make_base

from training.train_lora import main, parse

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / "training" / "configs" / "tiny.yaml"
pytestmark = pytest.mark.usefixtures("fresh_accelerate_state")


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return make_base(tmp_path_factory.mktemp("base"), clips=2, frames=5)


def arguments(base, output, *more):
    return [
        "--config", str(CONFIG), f"model={base / 'model'}", f"data={base / 'clips'}", f"cache_dir={base / 'cache'}",
        f"output_dir={output}", "frames=5", "height=16", "width=16", "rank=2", *more,
    ]  # fmt: skip


@pytest.mark.slow
def test_the_documented_command_end_to_end(base, tmp_path, caplog, capsys):
    """accelerate launch, files, metadata, the adapter in diffusers' own loader, and the cache of a second run."""
    run = tmp_path / "run"
    launch = [
        sys.executable, "-m", "accelerate.commands.launch", "--cpu", "--num_processes", "1", "--num_machines", "1",
        "--mixed_precision", "no", "--dynamo_backend", "no", "training/train_lora.py",
    ]  # fmt: skip
    more = ["max_train_steps=2", "learning_rate=0.1", "sigma_max=1.0", "lr_warmup_steps=0"]
    command, environment = launch + arguments(base, run, *more), {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().splitlines()[-1] == f"saved {run / ADAPTER}"
    assert "clips: 2 used, 0 skipped" in done.stderr and "encoded 2 clips and 2 captions, reused 0 and 0" in done.stderr
    assert {p.name for p in run.iterdir()} == {
        ADAPTER, "provenance.json", "config.yaml", "log.jsonl", "tensorboard", "report.md", "report.html", "curves.png",
        "comfyui",
    }  # fmt: skip
    assert [json.loads(line)["step"] for line in (run / "log.jsonl").read_text().splitlines()] == [1, 2]

    with safe_open(run / ADAPTER, "pt") as reader:
        metadata = reader.metadata()
        blocks = ("transformer.transformer_blocks.", "transformer.single_transformer_blocks.")
        assert all(key.startswith(blocks) for key in reader.keys())  # noqa: SIM118
    assert json.loads(metadata["lora_adapter_metadata"])["transformer.r"] == 2
    about = json.loads((run / "provenance.json").read_text())
    assert about["family"] == "hunyuan_video" and about["base_model"] == "model" and len(about["clips"]) == 2
    assert str(base) not in (run / "provenance.json").read_text()

    from phys_pipeline.families import get_family

    family = get_family("hunyuan_video")
    pipeline = family.load("pipeline", str(base / "model"))
    x = torch.randn(1, 4, 2, 2, 2, generator=torch.Generator().manual_seed(0))
    inputs = family.inputs(x, torch.tensor([0.5]), family.encode_text(pipeline, ["clip number 0"]))
    with torch.no_grad():
        before = pipeline.transformer(**inputs)[0]
        pipeline.load_lora_weights(run)
        after = pipeline.transformer(**inputs)[0]
        pipeline.unload_lora_weights()
        again = pipeline.transformer(**inputs)[0]
    assert (after - before).abs().mean() > 1e-4 and torch.allclose(again, before, atol=1e-5)

    with caplog.at_level(logging.INFO):  # a second run, in this process
        assert main(arguments(base, tmp_path / "second", *more)) == 0
    assert "encoded 0 clips and 0 captions, reused 2 and 2" in caplog.text
    assert capsys.readouterr().out.strip().splitlines()[-1] == f"saved {tmp_path / 'second' / ADAPTER}"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["motion_wieght=1"], "error: unknown setting 'motion_wieght'; did you mean 'motion_weight'?"),
        (["precision=fp8"], "error: precision='fp8' is not one of"),
        (["data=nowhere"], "error: nowhere: no such folder"),
        (["model=nowhere"], "error: there is no model folder nowhere"),
        (["family=hunyuan"], "error: unknown model family"),
        (["motion_overrides.patchs=1"], "error: motion_overrides: unknown field 'patchs'"),
        (["lora_targets=nothing"], "error: LoRA target regex 'nothing' matches no linear layer"),
        (["resume=nowhere"], "error: resume=nowhere"),
        (["frames=9"], "error: no usable clip"),
    ],
)
def test_expected_errors_are_one_line_and_exit_code_2(base, tmp_path, capsys, more, message):
    assert main(arguments(base, tmp_path / "run", "max_train_steps=1", *more)) == 2
    output = capsys.readouterr()
    errors = [line for line in output.err.splitlines() if line.startswith("error:")]
    assert len(errors) == 1 and errors[0].startswith(message) and output.err.rstrip().endswith(errors[0])
    assert "Traceback" not in output.err and "saved" not in output.out


def test_ctrl_c_says_how_to_go_on_and_leaves_nothing_half_written(base, tmp_path, capsys):
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job may ignore it
    try:
        interrupt_and_resume(base, tmp_path, capsys)
    finally:
        signal.signal(signal.SIGINT, before)


def interrupt_and_resume(base, tmp_path, capsys):
    run = tmp_path / "run"
    command = arguments(base, run, "max_train_steps=3000", "checkpoint_every=3", "motion_weight=0")

    def press():
        deadline = time.monotonic() + 60
        while not list(run.glob("checkpoint-*/state.json")) and time.monotonic() < deadline:
            time.sleep(0.02)
        _thread.interrupt_main()

    threading.Thread(target=press, daemon=True).start()
    assert main(command) == 130
    captured = capsys.readouterr()
    last = captured.err.strip().splitlines()[-1]
    assert last.startswith("interrupted: the same command with resume=true continues from") and "checkpoint-" in last
    assert not (run / ADAPTER).exists() and not list(run.rglob("*partial*")) and "saved" not in captured.out

    newest = max(int(p.name.split("-")[1]) for p in run.glob("checkpoint-*"))
    command[command.index("max_train_steps=3000")] = f"max_train_steps={newest + 1}"
    assert main(command) == 2  # starting afresh would lose the unfinished run
    assert "resume=true" in capsys.readouterr().err
    assert main([*command, "resume=true"]) == 0
    steps = [json.loads(line)["step"] for line in (run / "log.jsonl").read_text().splitlines()]
    assert steps == list(range(1, newest + 2))


def test_overrides_may_stand_anywhere():
    config, instead = parse(["rank=3", "--config", str(CONFIG), "seed=7"])
    assert (config.rank, config.seed, config.frames, instead) == (3, 7, 16, None)
    assert parse(["seed=1", "--dry-run"])[1] == "dry-run" and parse(["--cache-only"])[1] == "cache-only"
