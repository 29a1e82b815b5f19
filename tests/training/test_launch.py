import os

import pytest
import torch
from accelerate.commands.launch import launch_command_parser
from accelerate.utils.launch import prepare_simple_launcher_cmd_env

from phys_pipeline.errors import ConfigError
from training.config import TrainConfig
from training.launch import check_devices, start_accelerator


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"parallel": "fsdp2", "precision": "fp16"}, "no loss scaling for fp16"),
        ({"parallel": "fsdp2", "optimizer": "adamw8bit"}, "use optimizer=adamw"),
        ({"parallel": "fsdp2", "gradient_ratio_every": 5}, "set it to 0"),
        ({"parallel": "fsdp2", "base_quantization": "int8"}, "can't split a quantised base"),
        ({"parallel": "fsdp2", "block_offload": True, "gradient_checkpointing": True}, "use one of them"),
        ({"block_offload": True}, "set gradient_checkpointing=true"),
        ({"block_offload": True, "gradient_checkpointing": True, "rank": None}, "block_offload is for frozen weights"),
        ({"base_quantization": "nf4", "rank": None}, "base_quantization is for frozen weights"),
        ({"block_offload": True, "gradient_checkpointing": True, "base_quantization": "int8"}, "moves plain weights"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        check_devices(TrainConfig(**changes), processes=2)


def test_splitting_needs_several_processes_and_offload_and_quantising_do_not():
    with pytest.raises(ConfigError, match="launch with --num_processes 2 or more"):
        check_devices(TrainConfig(parallel="fsdp2"), processes=1)
    check_devices(TrainConfig(parallel="fsdp2", rank=None), processes=2)
    check_devices(TrainConfig(block_offload=True, gradient_checkpointing=True), processes=1)
    check_devices(TrainConfig(base_quantization="nf4"), processes=4)


@pytest.mark.usefixtures("fresh_accelerate_state")
def test_autocast_keeps_no_copies_of_weights():
    """With a cache, all blocks' 16-bit copies would live until the forward pass ends, split over processes or not."""
    accelerator, layer = start_accelerator(TrainConfig(precision="bf16")), torch.nn.Linear(8, 8)
    with accelerator.autocast():
        assert layer(torch.ones(2, 8)).dtype == torch.bfloat16 and not torch.is_autocast_cache_enabled()


@pytest.mark.parametrize("name", ["FSDP", "DEEPSPEED"])
def test_accelerates_own_splitting_is_refused(name, monkeypatch):
    """On a CPU it would silently be DDP, on a GPU it would split a second time."""
    monkeypatch.setenv(f"ACCELERATE_USE_{name}", "true")
    with pytest.raises(ConfigError, match=f"use {name}, but the trainer splits the model itself: .*set parallel=fsdp2"):
        start_accelerator(TrainConfig())


@pytest.mark.usefixtures("fresh_accelerate_state")
def test_a_launcher_that_starts_one_process_for_two_is_refused(monkeypatch):
    """`accelerate launch --num_processes 2` on a CPU, without --multi_gpu: one process would train on half the batch."""
    environment = launcher_environment("--num_processes", "2")
    assert "WORLD_SIZE" not in environment
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match="asked for several processes and started one: add --multi_gpu"):
        start_accelerator(TrainConfig())


@pytest.mark.usefixtures("fresh_accelerate_state")
def test_a_launcher_of_one_process_is_not_refused(monkeypatch):
    for name, value in launcher_environment("--num_processes", "1").items():
        monkeypatch.setenv(name, value)
    assert start_accelerator(TrainConfig()).num_processes == 1


def launcher_environment(*options):
    """What accelerate's launcher of a single process would set for its child."""
    usual = ["--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no"]
    arguments = launch_command_parser().parse_args([*usual, *options, "train.py"])
    arguments.use_cpu = True
    _, environment = prepare_simple_launcher_cmd_env(arguments)
    return {name: value for name, value in environment.items() if os.environ.get(name) != value}
