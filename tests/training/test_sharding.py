"""FSDP2 on two real processes (gloo, CPU): the same numbers as DDP and as one process, and exact resuming."""

import importlib.util
import json
import multiprocessing
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tiny import tiny_transformer
from torch import nn
from training_run import ADAPTER, finish, make_base, records, settings, start_two, weights

from phys_pipeline.adapters import load_adapter
from phys_pipeline.errors import ConfigError
from phys_pipeline.families import get_family
from training.loop import train
from training.sharding import gathered, placed_like, transformer_blocks, whole

STEP = ("denoising", "motion", "preference", "gradient_norm", "sigma_mean")
pytestmark = pytest.mark.usefixtures("fresh_accelerate_state")


def test_blocks_are_those_of_the_forward_pass():
    model = tiny_transformer(num_layers=2, num_single_layers=3)
    assert transformer_blocks(model) == [*model.transformer_blocks, *model.single_transformer_blocks]
    with pytest.raises(ConfigError, match="has no list of blocks"):
        transformer_blocks(nn.Linear(2, 2))


def test_without_shards_nothing_moves():
    value = torch.ones(2)
    assert whole({"a": [value, 3]}, keep=False)["a"][0] is value and placed_like(value, torch.zeros(2)) is value
    model = nn.Linear(2, 2)
    parameter = model.weight
    with gathered(model, keep=True):
        assert model.weight is parameter


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The folders of one run on one process and of seven on two, eight with torchao."""
    root = tmp_path_factory.mktemp("runs")
    base = make_base(root / "base")
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(["training.loop", "training_run", "accelerate", "diffusers", "transformers", "peft"])
    common = {"max_train_steps": 3, "checkpoint_every": 2, "motion_weight": 0.3, "sigma_max": 1.0, "trackers": []}
    common |= {"preference_space": "pixel", "objective": ["spectral", "preference"]}
    alone = {**common, "validation_split": 0.4, "validation_quantiles": 2, "validation_prompts": ["a", "b", "c"]}
    split = {**alone, "train_batch_size": 1, "gradient_accumulation_steps": 2}

    full = {**common, "objective": ["spectral"], "train_batch_size": 1, "rank": None, "ema_decay": 0.5, "parallel": "fsdp2"}
    killed = settings(base, root / "killed", **{**full, "max_train_steps": 30})
    children = start_two(server, [killed])
    deadline = time.monotonic() + 200
    while not (root / "killed" / "checkpoint-2" / "state.json").is_file() and time.monotonic() < deadline:
        time.sleep(0.02)
    for child in children:
        child.kill()
        child.join()
    assert not (root / "killed" / "transformer").exists()

    sharded = {**split, "parallel": "fsdp2", "gradient_checkpointing": True}
    bf16 = {**sharded, "precision": "bf16", "validation_split": 0.0, "validation_prompts": [], "max_train_steps": 2}
    together = [
        settings(base, root / "ddp", **split),
        settings(base, root / "fsdp2", **sharded),
        settings(base, root / "killed", resume=str(root / "killed" / "checkpoint-2"), **full),
        settings(base, root / "full", **full),
        settings(base, root / "bf16", **bf16),
        settings(base, root / "moved", **{**split, "resume": str(root / "fsdp2" / "checkpoint-2")}),
    ]
    together.append(settings(base, root / "offload", **{**split, "block_offload": True, "gradient_checkpointing": True}))
    if importlib.util.find_spec("torchao"):
        plain = {name: value for name, value in bf16.items() if name != "parallel"}
        together.append(settings(base, root / "int8", base_quantization="int8", **plain))
    finish(start_two(server, together), 400)
    train(settings(base, root / "one", **{**alone, "train_batch_size": 4}), progress=False)
    return root


@pytest.mark.slow
@pytest.mark.parametrize("other", ["ddp", "one", "moved", "offload"])
def test_same_losses_gradients_and_adapter(runs, other):
    """As DDP, as one process with the whole batch, a sharded run that DDP goes on with, and blocks that wait on the CPU."""
    ours, theirs = records(runs / "fsdp2"), records(runs / other)
    for a, b in zip(ours[-len(theirs) :], theirs, strict=True):
        for key in STEP:
            assert a[key] == pytest.approx(b[key], rel=2e-3 if key == "preference" else 1e-4), key
    a, b = weights(runs / "fsdp2"), weights(runs / other)
    assert a.keys() == b.keys() and all(torch.allclose(a[k], b[k], rtol=1e-3, atol=2e-4) for k in a)
    assert all(value.dtype == torch.float32 for value in a.values())


@pytest.mark.slow
def test_validation_is_shared_out_and_the_same(runs):
    """Two held-out samples, three videos: one process does the odd one twice."""
    found = [json.loads((runs / n / "validation" / "step-3" / "results.json").read_text()) for n in ("one", "ddp", "fsdp2")]
    for other in found[1:]:
        for mine, theirs in zip(found[0]["held_out"], other["held_out"], strict=True):
            assert (mine["sample"], mine["sigma"]) == (theirs["sample"], theirs["sigma"])
            assert mine["denoising"] == pytest.approx(theirs["denoising"], rel=1e-3)
        assert [v["prompt"] for v in other["videos"]] == ["a", "b", "c"]
        assert all((runs / "fsdp2" / "validation" / "step-3" / v["pair"]).is_file() for v in other["videos"])


@pytest.mark.slow
def test_full_fine_tuning_is_saved_whole_and_goes_on_exactly_after_sigkill(runs):
    from diffusers import HunyuanVideoTransformer3DModel

    for place in ("transformer", "ema/transformer"):
        file = "diffusion_pytorch_model.safetensors"
        a, b = load_file(runs / "full" / place / file), load_file(runs / "killed" / place / file)
        assert a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)
        assert json.loads((runs / "full" / place / "config.json").read_text())["_class_name"] == "HunyuanVideoTransformer3DModel"
    assert [r["step"] for r in records(runs / "killed")] == [1, 2, 3]
    before = HunyuanVideoTransformer3DModel.from_pretrained(runs / "base" / "model" / "transformer").state_dict()
    after = HunyuanVideoTransformer3DModel.from_pretrained(runs / "full" / "transformer").state_dict()
    assert sum(not torch.equal(before[k], after[k]) for k in before) > 0.9 * len(before)


@pytest.mark.slow
@pytest.mark.parametrize("run", ["bf16", "int8"])
def test_adapter_of_a_bfloat16_or_quantised_base_loads_as_any_other(runs, run):
    if run == "int8":
        pytest.importorskip("torchao")
    pipeline = get_family("hunyuan_video").load("pipeline", str(runs / "base" / "model"))
    info = load_adapter(pipeline, runs / run)
    assert info.tensors == len(weights(runs / "one")) and info.delta > 0
    assert info.provenance["base_model"] == "model" and Path(info.path).name == ADAPTER
