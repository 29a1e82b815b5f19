"""MVDiT trained by the real script, end to end."""

import json
from pathlib import Path

import pytest
import torch
from tiny import save_clips
from tiny_mvdit import save_tiny

import training.loop
from phys_pipeline.families import load_model
from phys_pipeline.pipelines import generate_pair
from training.train_lora import main
from training.weights import save_trained

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.usefixtures("fresh_accelerate_state")
def test_trained_adapter_comes_back_exactly_and_changes_the_video(tmp_path, monkeypatch, capsys):
    folder = save_tiny(tmp_path / "model")
    given = {
        "hidden_states": torch.randn(1, 4, 5, 2, 2), "timestep": torch.tensor([300]),
        "encoder_hidden_states": torch.randn(1, 24, 48), "encoder_attention_mask": torch.ones(1, 24),
    }  # fmt: skip
    outputs = []

    def recorded(transformer, *arguments):
        with torch.no_grad():
            outputs.append(transformer(**given).sample)
        return save_trained(transformer, *arguments)

    monkeypatch.setattr(training.loop, "save_trained", recorded)
    clips, run = save_clips(tmp_path / "clips", count=2, frames=5), tmp_path / "run"
    arguments = [
        f"model={folder}", f"data={clips}", f"cache_dir={tmp_path / 'cache'}", f"output_dir={run}", "family=mvdit", "frames=5",
        "height=16", "width=16", "fps=8", "rank=2", "max_train_steps=2", "learning_rate=0.1", "lr_warmup_steps=0",
        "precision=fp32", "sigma_max=1.0", "caption_dropout=0.5", "train_batch_size=2", "gradient_checkpointing=true",
    ]  # fmt: skip
    assert main(["--config", str(ROOT / "training/configs/mvdit.yaml"), *arguments]) == 0, capsys.readouterr().err
    assert not (run / "comfyui").exists()
    assert json.loads((run / "provenance.json").read_text())["family"] == "mvdit"

    fresh = load_model(str(folder))
    pair = generate_pair(fresh, "clip number 0", run, seed=1)
    assert not (pair.baseline.frames == pair.physics.frames).all()
    off = generate_pair(fresh, "clip number 0", run, seed=1, weight=0.0)
    assert (off.baseline.frames == off.physics.frames).all() and (off.baseline.frames == pair.baseline.frames).all()
    fresh.pipeline.load_lora_weights(run)
    with torch.no_grad():
        assert torch.equal(fresh.pipeline.transformer(**given).sample, outputs[-1])
