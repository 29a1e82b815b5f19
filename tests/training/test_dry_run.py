import shutil
from dataclasses import replace
from functools import partial

import pytest
import torch
from tiny import tiny_transformer
from training_run import make_base

from phys_pipeline.errors import ConfigError
from phys_pipeline.families import get_family
from phys_pipeline.media import Video, write_video
from training.config import TrainConfig
from training.dry_run import Memory, dry_run, estimate_memory
from training.filling import prepare_dataset
from training.train_lora import main
from training.validate import hold_out
from training.weights import attach


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return make_base(tmp_path_factory.mktemp("base"))


def settings(base, tmp_path, **changes):
    values = {"model": str(base / "model"), "data": str(base / "clips"), "output_dir": str(tmp_path / "run"), "rank": 2}
    values |= {"cache_dir": str(tmp_path / "cache"), "frames": 5, "height": 16, "width": 16, "train_batch_size": 2}
    return TrainConfig(**{**values, **changes})


def test_counts_and_writes_nothing(base, tmp_path):
    text = dry_run(settings(base, tmp_path, num_epochs=4, sigma_law="uniform", shift=1.0, validation_split=0.3))
    assert "clips: 3 usable, 0 skipped; 2 samples to train on, 1 held out" in text
    assert "steps: 4 of 2 samples" in text and "4.00 epochs of 1.0 steps" in text
    assert "4x2x2x2 latents = 8 tokens, and up to 16 of text" in text
    assert "captions: 3 different ones, the longest of 3 words" in text
    assert "70.0 % expected" in text and "resume: no, from step 0" in text
    transformer = tiny_transformer()
    trained = sum(p.numel() for p in attach(transformer, TrainConfig(rank=2), get_family("hunyuan_video")))
    assert f"trainable parameters: {trained:,} (LoRA of rank 2)" in text
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("key", ["output_dir", "cache_dir"])
def test_a_folder_that_cannot_be_made_is_an_error(base, tmp_path, key):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(ConfigError, match="can't be written to: choose another output_dir or cache_dir"):
        dry_run(settings(base, tmp_path, **{key: str(tmp_path / "file" / "run")}))


def test_epochs_of_several_buckets_count_their_steps(base, tmp_path):
    (tmp_path / "clips").mkdir()
    for name, size in (("a", (16, 16)), ("b", (16, 32)), ("c", (16, 32)), ("d", (16, 32))):
        video = torch.rand(3, 5, *size, generator=torch.Generator().manual_seed(0))
        write_video(tmp_path / "clips" / f"{name}.mp4", Video.from_tensor(video, 8.0))
        (tmp_path / "clips" / f"{name}.txt").write_text(name)
    several = settings(base, tmp_path, data=str(tmp_path / "clips"), buckets=[[5, 16, 16], [5, 16, 32]], num_epochs=2)
    assert "steps: 6 of 2 samples" in dry_run(several)  # each epoch one step of the square clip and two of the three wide ones
    assert "steps: 4 of 2 samples" in dry_run(replace(several, buckets="off"))


def test_counts_are_those_of_the_run(base, tmp_path):
    """Windows of resampled clips, and the very clips that are held out, whose number of windows differs."""
    (tmp_path / "clips").mkdir()
    for i, frames in enumerate((20, 31, 42, 53, 64)):
        write_video(tmp_path / "clips" / f"{i}.mp4", Video.from_tensor(torch.rand(3, frames, 16, 16), 24.0))
        (tmp_path / "clips" / f"{i}.txt").write_text(f"clip {i}")
    more = {"data": str(tmp_path / "clips"), "frame_extraction": "sliding", "window_stride": 2, "validation_split": 0.4}
    config = settings(base, tmp_path, buckets=[[5, 16, 16], [9, 16, 32]], seed=1, **more)
    prepare = partial(prepare_dataset, family=get_family("hunyuan_video"), device=torch.device("cpu"))
    text = dry_run(config)
    dataset, held_out = hold_out(config, prepare(config)[0], prepare)
    assert f"{len(dataset)} samples to train on, {len(held_out)} held out" in text and len(dataset) != len(held_out)


def test_a_folder_without_weights_is_enough_and_said_so(base, tmp_path):
    shutil.copytree(base / "model", tmp_path / "model", ignore=shutil.ignore_patterns("*.safetensors"))
    text = dry_run(settings(base, tmp_path, model=str(tmp_path / "model"), rank=None))
    assert "not checked: no weights of the transformer" in text and "(every weight)" in text


def test_hunyuan_video_with_neither_weights_nor_config(base, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    text = dry_run(settings(base, tmp_path, model="hunyuanvideo-community/HunyuanVideo"))
    assert "transformer of 12,821,012,544" in text and "defaults of HunyuanVideoTransformer3DModel were taken" in text


def test_estimate_follows_its_formula():
    transformer = tiny_transformer(num_layers=2)  # 3 blocks of width 20
    full = estimate_memory(TrainConfig(rank=None, precision="bf16", ema_decay=0.9), transformer, 100, 100, 10)
    assert full == Memory(400, 0, 400, 1200, 3 * 34 * 200, 3 * 2 * 200 + 34 * 200)
    small = estimate_memory(TrainConfig(optimizer="adamw8bit"), transformer, 100, 7, 10)
    assert small == Memory(200, 28, 28, 14, 3 * 34 * 200, 3 * 2 * 200 + 34 * 200)
    model, lora = tiny_transformer(num_layers=2), {"rank": 2, "precision": "bf16"}
    everything = sum(p.numel() for p in model.parameters())
    blocks = [*model.transformer_blocks, *model.single_transformer_blocks]
    sizes = [sum(p.numel() for p in block.parameters()) for block in blocks]
    linear = sum(m.weight.numel() for block in blocks for m in block.modules() if isinstance(m, torch.nn.Linear))
    trained = sum(p.numel() for p in attach(model, TrainConfig(**lora), get_family("hunyuan_video")))

    def memory(processes=1, **changes):
        return estimate_memory(TrainConfig(**lora, **changes), model, everything, trained, 10, processes)

    assert memory().weights == memory(2).weights == 2 * everything
    assert memory(block_offload=True).weights == 2 * (everything - sum(sizes) + max(sizes))
    assert memory(base_quantization="int8").weights == 2 * (everything - linear) + linear
    assert memory(base_quantization="nf4").weights == 2 * (everything - linear) + round(0.5625 * linear)
    sharded = memory(4, parallel="fsdp2")
    assert sharded.weights == 2 * everything // 4 + 2 * 2 * max(sizes)
    assert (sharded.adapter, sharded.gradients, sharded.optimizer) == (trained, trained, 2 * trained)
    assert small.total(True) == 270 + 8000 and small.total(False) == 270 + 20400


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["data=nowhere"], "error: nowhere: no such folder"),
        (["model=nowhere"], "error: there is no model folder nowhere"),
        (["frames=6"], "error: 6 frames do not fit"),
        (["frames=129"], "error: no usable clip"),
        (["buckets=[[5,16,16],[6,16,32]]"], "error: 6 frames do not fit"),
        (["validation_split=0.9"], "error: validation_split=0.9 leaves none of 3 clips"),
        (["motion_space=latent"], "error: motion_space=latent leaves 1 of 5 frames"),
        (["lora_targets=nothing"], "error: LoRA target regex 'nothing' matches no linear layer"),
        (["resume=nowhere"], "error: resume=nowhere"),
        (["parallel=fsdp2"], "error: parallel=fsdp2 splits the model over processes"),
        (["block_offload=true"], "error: block_offload computes each block again"),
        (["trackers=[wandb]"], "error: trackers: wandb is not installed"),
        (["optimizer=adamw8bit"], "error: optimizer=adamw8bit needs bitsandbytes"),
    ],
)
def test_what_would_fail_later_fails_now(base, tmp_path, capsys, monkeypatch, more, message):
    for missing in ("wandb", "bitsandbytes"):
        monkeypatch.setitem(__import__("sys").modules, missing, None)
    usual = [f"model={base / 'model'}", f"data={base / 'clips'}", "frames=5", "height=16", "width=16", f"output_dir={tmp_path}"]
    assert main(["--dry-run", *usual, *more]) == 2
    assert message in capsys.readouterr().err
    assert main(["--dry-run", *usual]) == 0
    assert "nothing was loaded" in capsys.readouterr().out


def test_a_full_disk_is_an_error(base, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: type("Usage", (), {"free": 10})())
    with pytest.raises(ConfigError, match="are free: make room"):
        dry_run(settings(base, tmp_path))


def test_the_meta_model_takes_no_memory(base, tmp_path):
    from training.dry_run import empty_part

    model = empty_part("transformer", settings(base, tmp_path), get_family("hunyuan_video"), [])
    assert {p.device for p in model.parameters()} == {torch.device("meta")}
