"""Open-Sora 1.2 trained by the real script, end to end."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from tiny import save_clips
from tiny_open_sora import save_tiny

import training.loop
from phys_pipeline.families import get_family, load_model
from phys_pipeline.models.open_sora_conversion import FILES
from phys_pipeline.pipelines import generate_pair
from training.config import TrainConfig
from training.train_lora import main
from training.weights import attach, load_trained, save_trained

ROOT = Path(__file__).parents[2]
GIVEN = {
    "hidden_states": torch.randn(1, 4, 5, 2, 2, generator=torch.Generator().manual_seed(0)), "timestep": torch.tensor([300.0]),
    "encoder_hidden_states": torch.randn(1, 10, 48, generator=torch.Generator().manual_seed(1)),
    "encoder_attention_mask": torch.ones(1, 10), "fps": torch.tensor([8.0]), "height": 16, "width": 16,
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.usefixtures("fresh_accelerate_state")
def test_trained_adapter_comes_back_exactly_and_changes_the_video(tmp_path, monkeypatch, capsys):
    folder = save_tiny(tmp_path / "model")
    outputs, told = [], []

    def recorded(transformer, *arguments):
        with torch.no_grad():
            outputs.append(transformer(**GIVEN).sample)
        return save_trained(transformer, *arguments)

    family = type(get_family("open_sora_1_2"))
    uncaptioned = family.uncaptioned
    monkeypatch.setattr(family, "uncaptioned", lambda *given: told.append(uncaptioned(*given)) or told[-1])
    monkeypatch.setattr(training.loop, "save_trained", recorded)
    clips, run = save_clips(tmp_path / "clips", count=2, frames=17), tmp_path / "run"
    arguments = [
        f"model={folder}", f"data={clips}", f"cache_dir={tmp_path / 'cache'}", f"output_dir={run}", "frames=17",
        "height=16", "width=16", "fps=8", "rank=2", "num_epochs=null", "max_train_steps=2", "learning_rate=0.1",
        "lr_warmup_steps=0", "precision=fp32", "vae_precision=fp32", "sigma_max=1.0", "caption_dropout=0.5", "train_batch_size=2",
        "gradient_checkpointing=true", "samples_per_clip=1",
    ]  # fmt: skip
    assert main(["--config", str(ROOT / "training/configs/open_sora_1_2.yaml"), *arguments]) == 0, capsys.readouterr().err
    assert not (run / "comfyui").exists() and told
    assert json.loads((run / "provenance.json").read_text())["family"] == "open_sora_1_2"

    fresh = load_model(str(folder))
    pair = generate_pair(fresh, "clip number 0", run, seed=1)
    assert not (pair.baseline.frames == pair.physics.frames).all()
    off = generate_pair(fresh, "clip number 0", run, seed=1, weight=0.0)
    assert (off.baseline.frames == off.physics.frames).all() and (off.baseline.frames == pair.baseline.frames).all()
    fresh.pipeline.load_lora_weights(run)
    with torch.no_grad():
        assert torch.equal(fresh.pipeline.transformer(**GIVEN).sample, outputs[-1])


def test_training_everything_keeps_the_null_caption_and_comes_back(tmp_path):
    folder = save_tiny(tmp_path / "model")
    family = get_family("open_sora_1_2")
    config = TrainConfig(model=str(folder), family="open_sora_1_2", output_dir=str(tmp_path / "run"), rank=None, precision="fp32")
    transformer = family.load("transformer", str(folder))
    before = transformer.null_caption.clone()
    with torch.no_grad():
        for parameter in attach(transformer, config, family):
            parameter.add_(0.5)
    (tmp_path / "run").mkdir()
    save_trained(transformer, tmp_path / "run", config, family, {})
    again = family.load("transformer", str(folder))
    attach(again, config, family)
    load_trained(again, tmp_path / "run")
    assert torch.equal(again.null_caption, before)
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in transformer.state_dict().items())


def test_the_shipped_settings_are_valid_and_their_memory_is_known(tmp_path, capsys, monkeypatch):
    """--dry-run on the released size, whose weights are never allocated; its checkpoints would take 58 GB of any disk."""
    free = 10**12
    monkeypatch.setattr(shutil, "disk_usage", lambda place: SimpleNamespace(free=free))
    model, clips = tmp_path / "model", save_clips(tmp_path / "clips", count=1, frames=51)
    for name, content in {**FILES, "transformer/config.json": {}, "vae/config.json": {}}.items():
        (model / name).parent.mkdir(parents=True, exist_ok=True)
        (model / name).write_text(json.dumps(content))
    arguments = ["--config", str(ROOT / "training/configs/open_sora_1_2.yaml"), "--dry-run", f"model={model}", f"data={clips}"]
    assert main([*arguments, "fps=8", f"output_dir={tmp_path / 'run'}"]) == 0
    said = capsys.readouterr().out
    assert "51x240x424 pixels = 4x15x30x53 latents" in said
    assert "trainable parameters: 1,207,643,936 (every weight) of a transformer of 1,207,643,936" in said
    assert main([*arguments, "fps=8", f"output_dir={tmp_path / 'run'}", "rank=16"]) == 0
    assert "(LoRA of rank 16)" in capsys.readouterr().out
    free = 10**9
    assert main([*arguments, "fps=8", f"output_dir={tmp_path / 'run'}"]) == 2
    assert "needs about 58 GB, 1 GB are free: make room or lower checkpoint_limit" in capsys.readouterr().err
