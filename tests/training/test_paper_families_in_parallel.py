"""The paper's other backbones on two real processes (gloo, CPU), where a parameter without a gradient would stop the run."""

import json
import multiprocessing

import pytest
import tiny_mvdit
import tiny_open_sora
import torch
from safetensors.torch import load_file
from tiny import save_clips
from training_run import finish, records, settings, start_two

WEIGHTS = "diffusion_pytorch_model.safetensors"
RUNS = {  # name: builder, family, changes
    "mvdit": (tiny_mvdit, "mvdit", {"rank": None, "train_batch_size": 1}),
    "mvdit_split": (tiny_mvdit, "mvdit", {"rank": None, "train_batch_size": 1, "parallel": "fsdp2"}),
    "open_sora_split": (tiny_open_sora, "open_sora_1_2", {"rank": None, "train_batch_size": 1, "parallel": "fsdp2"}),
}


@pytest.mark.slow
def test_every_weight_trains_on_two_processes_and_is_saved_also_where_it_was_split(tmp_path):
    clips = save_clips(tmp_path / "clips", count=2, frames=17)
    configs = []
    for name, (builder, family, changes) in RUNS.items():
        model = tmp_path / family
        if not model.exists():
            builder.save_tiny(model)
        common = {"model": str(model), "data": str(clips), "cache_dir": str(tmp_path / "cache" / family), "family": family}
        common |= {"frames": 17, "fps": 8, "max_train_steps": 2, "learning_rate": 1e-3, "motion_weight": 0.1, "trackers": []}
        configs.append(settings(tmp_path, tmp_path / "runs" / name, **common, **changes))
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(["training.loop", "training_run", "accelerate", "diffusers", "transformers", "peft"])
    finish(start_two(server, configs), 400)

    losses = {name: [record["denoising"] for record in records(tmp_path / "runs" / name)] for name in RUNS}
    assert all(len(found) == 2 for found in losses.values())
    assert losses["mvdit_split"] == pytest.approx(losses["mvdit"], rel=1e-4)
    whole, split = (load_file(tmp_path / "runs" / name / "transformer" / WEIGHTS) for name in ("mvdit", "mvdit_split"))
    assert whole.keys() == split.keys()
    assert all(torch.allclose(whole[name], split[name], rtol=1e-3, atol=2e-4) for name in whole)
    for name, (_, family, _) in RUNS.items():
        assert json.loads((tmp_path / "runs" / name / "provenance.json").read_text())["family"] == family
