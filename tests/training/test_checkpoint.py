import json
import logging

import pytest
import torch
from tiny import tiny_transformer

from phys_pipeline.adapters import inject_lora, save_adapter
from phys_pipeline.errors import ConfigError
from training.checkpoint import (
    check_resume,
    find_resume,
    is_fresh,
    list_checkpoints,
    load_checkpoint,
    run_states,
    save_checkpoint,
    step_of,
)
from training.config import TrainConfig


def fresh(seed=0):
    transformer = tiny_transformer()
    parameters = inject_lora(transformer, rank=2, seed=seed)
    return transformer, parameters, torch.optim.AdamW(parameters, lr=1e-2)


def train(parameters, optimizer, steps, seed=0):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        for p in parameters:
            p.grad = torch.randn(p.shape, generator=generator)
        optimizer.step()


def save(config, step, transformer, optimizer):
    def write(folder):
        new = folder / "adapter"
        save_adapter(transformer, new, family="hunyuan_video", base_model="tiny", comfyui=False)
        for file in new.iterdir():
            file.rename(folder / file.name)
        new.rmdir()

    return save_checkpoint(config, step, "digest", 1, write, run_states(optimizer))


@pytest.fixture
def config(tmp_path):
    return TrainConfig(output_dir=str(tmp_path / "run"), rank=2, checkpoint_limit=2, max_train_steps=100)


def test_state_comes_back_bit_for_bit(config):
    transformer, parameters, optimizer = fresh()
    train(parameters, optimizer, 3)
    folder = save(config, 3, transformer, optimizer)
    assert sorted(p.name for p in folder.iterdir()) == [
        "optimizer.pt", "provenance.json", "pytorch_lora_weights.safetensors", "state.json",
    ]  # fmt: skip
    other, others, other_optimizer = fresh(seed=1)
    assert not torch.equal(others[0], parameters[0])
    config.resume = "true"
    resumed = find_resume(config)
    assert resumed.step == 3 and resumed.folder == folder
    load_checkpoint(resumed, other, other_optimizer)
    assert all(torch.equal(a, b) for a, b in zip(parameters, others, strict=True))
    train(parameters, optimizer, 2, seed=5)
    train(others, other_optimizer, 2, seed=5)
    assert all(torch.equal(a, b) for a, b in zip(parameters, others, strict=True))


def test_only_the_newest_are_kept_in_numerical_order(config, tmp_path):
    transformer, parameters, optimizer = fresh()
    train(parameters, optimizer, 1)
    for step in (9, 10, 100):
        save(config, step, transformer, optimizer)
    assert [step_of(p) for p in list_checkpoints(config.output_dir)] == [10, 100]
    config.checkpoint_limit = 0
    save(config, 200, transformer, optimizer)
    assert len(list_checkpoints(config.output_dir)) == 3


def test_going_on_from_an_earlier_step_leaves_no_later_one_of_the_abandoned_run(config):
    """Else resume=true would take up the abandoned run after the new one is killed."""
    transformer, parameters, optimizer = fresh()
    train(parameters, optimizer, 1)
    for step in (10, 20, 30):
        config.checkpoint_limit = 3
        save(config, step, transformer, optimizer)
    save(config, 15, transformer, optimizer)
    assert [step_of(p) for p in list_checkpoints(config.output_dir)] == [10, 15]


def test_a_run_is_fresh_in_a_folder_that_is_not_its_checkpoints(config, tmp_path, monkeypatch):
    transformer, parameters, optimizer = fresh()
    train(parameters, optimizer, 1)
    folder = save(config, 5, transformer, optimizer)
    assert is_fresh(config, None)
    monkeypatch.chdir(tmp_path)
    for name in ("true", str(folder), "run/checkpoint-5"):
        config.resume = name
        assert not is_fresh(config, find_resume(config))
    config.resume, config.output_dir = str(folder), str(tmp_path / "other")
    assert is_fresh(config, find_resume(config))


def test_names_that_are_no_checkpoints_are_ignored(config, tmp_path):
    root = tmp_path / "run"
    for name in ("checkpoint-5.safetensors", "checkpoint-6-old", "checkpoint-x", ".checkpoint-8.abc.partial", "my-checkpoint-9"):
        (root / name).mkdir(parents=True)
        (root / name / "state.json").write_text('{"step": 3, "config": {}}')
    (root / "checkpoint-7").mkdir()  # without state.json: not complete
    for name in ("checkpoint-9", "checkpoint-100.safetensors"):
        (root / name).write_text("a file")
    assert list_checkpoints(root) == []
    config.resume = "true"
    assert find_resume(config) is None


def test_a_failure_while_writing_leaves_the_older_checkpoint(config):
    transformer, parameters, optimizer = fresh()
    train(parameters, optimizer, 1)
    save(config, 1, transformer, optimizer)

    def interrupted(folder):
        (folder / "half").write_text("x")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        save_checkpoint(config, 2, "digest", 1, interrupted, run_states(optimizer))
    root = list_checkpoints(config.output_dir)[0].parent
    assert [p.name for p in root.iterdir()] == ["checkpoint-1"]


def test_which_checkpoint_is_resumed(config, tmp_path, caplog):
    assert find_resume(config) is None
    config.resume = "true"
    assert find_resume(config) is None  # nothing yet: the same command can start and continue a run
    transformer, parameters, optimizer = fresh()
    train(parameters, optimizer, 1)
    first = save(config, 1, transformer, optimizer)
    save(config, 2, transformer, optimizer)
    assert find_resume(config).step == 2
    config.resume = str(first)
    assert find_resume(config).step == 1
    config.learning_rate, config.parallel, config.flow_smoothness = 5.0, "fsdp2", 0.2
    with caplog.at_level(logging.WARNING):
        check_resume(find_resume(config), config, "digest", 4)
    for change in ("learning_rate 0.0001 -> 5.0", "parallel ddp -> fsdp2", "flow_smoothness 0.1 -> 0.2", "processes 1 -> 4"):
        assert change in caplog.text
    config.resume = str(tmp_path)
    with pytest.raises(ConfigError, match="no complete checkpoint"):
        find_resume(config)
    (first / "state.json").write_text(json.dumps({"step": "x"}))
    config.resume = str(first)
    with pytest.raises(ConfigError, match="no complete checkpoint"):
        find_resume(config)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rank": 4}, "rank=2 and this run rank=4"),
        ({"motion_weight": 0.7}, "motion_weight=0.1 and this run motion_weight=0.7"),
        ({"buckets": [[16, 64, 64], [16, 48, 80]]}, "buckets=off and this run buckets="),
        ({"frame_extraction": "head"}, "frame_extraction=middle and this run frame_extraction=head"),
        ({"vae_tiling": False}, "vae_tiling=True and this run vae_tiling=False"),
        ({"base_quantization": "int8"}, "base_quantization=none and this run base_quantization=int8"),
        ({"max_train_steps": 1}, "has 2 steps, max_train_steps=1"),
        ({}, "other clips or captions"),
    ],
)
def test_a_checkpoint_that_would_make_the_adapters_record_untrue_is_refused(config, change, words):
    transformer, parameters, optimizer = fresh()
    train(parameters, optimizer, 2)
    save(config, 2, transformer, optimizer)
    config.resume = "true"
    for key, value in change.items():
        setattr(config, key, value)
    with pytest.raises(ConfigError, match=words):
        check_resume(find_resume(config), config, "digest" if change else "another digest", 1)


def test_a_setting_newer_than_the_checkpoint_had_its_default(config):
    transformer, parameters, optimizer = fresh()
    train(parameters, optimizer, 1)
    folder = save(config, 1, transformer, optimizer)
    state = json.loads((folder / "state.json").read_text())
    del state["config"]["objective"]
    (folder / "state.json").write_text(json.dumps(state))
    config.resume = "true"
    check_resume(find_resume(config), config, "digest", 1)
    config.objective = ["anchored"]
    with pytest.raises(ConfigError, match="objective="):
        check_resume(find_resume(config), config, "digest", 1)


def test_another_models_checkpoint_is_refused(config):
    transformer, parameters, optimizer = fresh()
    train(parameters, optimizer, 1)
    save(config, 1, transformer, optimizer)
    config.resume = "true"
    larger = tiny_transformer(num_layers=2)
    others = inject_lora(larger, rank=2)
    with pytest.raises(ConfigError, match="another base model"):
        load_checkpoint(find_resume(config), larger, torch.optim.AdamW(others))
    smaller = tiny_transformer()
    regex = r"transformer_blocks\.\d+\.attn\.to_q"
    others = inject_lora(smaller, rank=2, regex=regex)
    with pytest.raises(ConfigError, match="no place in this model"):
        load_checkpoint(find_resume(config), smaller, torch.optim.AdamW(others))
