"""Runs that die: at every rename of a run (each atomic write has one), at random times by SIGKILL, and on two processes."""

import multiprocessing
import os
import random
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from training_run import ADAPTER, make_base, records, run_in_child, settings, weights

from training.checkpoint import list_checkpoints
from training.loop import train

ROOT = Path(__file__).parents[2]
SIGKILLS = 6
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("fresh_accelerate_state")]
PATIENCE = 200  # seconds for a child that should end by itself


@pytest.fixture(scope="module")
def server():
    """Children that start in milliseconds, since their parent has imported everything."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["training.loop", "training_run", "accelerate", "diffusers", "transformers", "peft"])
    yield context
    for child in multiprocessing.active_children():  # a test that fails while it waits must not keep pytest from ending
        child.kill()


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return make_base(tmp_path_factory.mktemp("base"), clips=2)


@pytest.fixture(scope="module")
def straight(base, server, tmp_path_factory):
    """A run that nothing disturbed, and the seconds it took."""
    config = short(base, tmp_path_factory.mktemp("straight"))
    for _ in range(2):  # the first start also pays for the imports
        began = time.monotonic()
        child = server.Process(target=run_in_child, args=(config,))
        child.start()
        child.join(PATIENCE)
        assert child.exitcode == 0
    return Path(config.output_dir), time.monotonic() - began


def short(base, root, **changes):
    return settings(
        base, root / "run", cache_dir=str(root / "cache"), max_train_steps=2, checkpoint_every=1, motion_weight=0,
        trackers=[], **changes,
    )  # fmt: skip


def check_and_resume(config, expected):
    """Nothing that is there is damaged, and going on gives the adapter of the undisturbed run, byte for byte."""
    for entry in Path(config.cache_dir).rglob("*.safetensors"):
        if ".partial" not in entry.name:
            load_file(entry)
    for folder in list_checkpoints(config.output_dir):
        load_file(folder / ADAPTER)
        torch.load(folder / "optimizer.pt", weights_only=True)
    train(replace(config, resume="true"), progress=False)
    assert (Path(config.output_dir) / ADAPTER).read_bytes() == (expected / ADAPTER).read_bytes()
    assert [r["step"] for r in records(config.output_dir)] == [1, 2]
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state(True)


def test_dying_at_every_rename(base, straight, server, tmp_path):
    expected, _ = straight
    for number in range(1, 60):
        config = short(base, tmp_path / str(number))
        child = server.Process(target=run_in_child, args=(config, number))
        child.start()
        child.join(PATIENCE)
        if child.exitcode == 0:
            break
        assert child.exitcode == 77
        check_and_resume(config, expected)
    assert number > 12  # two clips, two captions, a checkpoint, and what a finished run writes
    print(f"{number - 1} renames")


def test_sigkill_at_random_times(base, straight, server, tmp_path):
    expected, seconds = straight
    killed = 0
    for number in range(SIGKILLS):
        config = short(base, tmp_path / str(number))
        child = server.Process(target=run_in_child, args=(config,))
        child.start()
        child.join((number + random.Random(number).random()) / SIGKILLS * seconds)
        child.kill()
        child.join()
        killed += child.exitcode != 0
        check_and_resume(config, expected)
    assert killed


def test_two_processes_equal_one_and_resume_exactly(base, server, tmp_path):
    """1 x batch 2 and 2 x batch 1 see the same samples, noise and sigma; on two processes a resumed run is bit-equal."""
    changes = {"max_train_steps": 4, "checkpoint_every": 2, "motion_weight": 0.3, "sigma_max": 1.0, "trackers": []}
    changes |= {"validation_prompts": ["a ball"], "validate_every": 2}
    train(settings(base, tmp_path / "one", **changes), progress=False)
    pair = settings(base, tmp_path / "two", train_batch_size=1, num_processes=2, **changes)
    pair.save(tmp_path / "pair.yaml")
    launch = [
        sys.executable, "-m", "accelerate.commands.launch", "-q", "--multi_gpu", "--num_processes", "2", "--num_machines", "1",
        "--main_process_port", str(free_port()), "--mixed_precision", "no", "--dynamo_backend", "no",
        "training/train_lora.py", "--config", str(tmp_path / "pair.yaml"),
    ]  # fmt: skip
    environment = {**os.environ, "ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(launch, cwd=ROOT, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "two" / "validation" / "step-4" / "results.json").is_file()
    one, two = weights(tmp_path / "one"), weights(tmp_path / "two")
    assert all(torch.allclose(one[k], two[k], rtol=1e-3, atol=1e-5) for k in one)  # Adam divides by tiny gradients
    for a, b in zip(records(tmp_path / "one"), records(tmp_path / "two"), strict=True):
        for key in ("denoising", "motion", "gradient_norm", "sigma_mean"):
            assert a[key] == pytest.approx(b[key], rel=1e-4), key

    resumed = replace(pair, output_dir=str(tmp_path / "again"), resume=str(tmp_path / "two" / "checkpoint-2"))
    port = str(free_port())
    ranks = [
        {"RANK": str(r), "LOCAL_RANK": str(r), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port} for r in (0, 1)
    ]
    children = [server.Process(target=run_in_child, args=(resumed, None, rank)) for rank in ranks]
    for child in children:
        child.start()
    for child in children:
        child.join(PATIENCE)
        assert child.exitcode == 0
    assert (tmp_path / "again" / ADAPTER).read_bytes() == (tmp_path / "two" / ADAPTER).read_bytes()


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]
