import json
import math
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tiny import save_tiny

from phys_pipeline.errors import ConfigError
from phys_pipeline.media import Video, write_video
from training.buckets import Bucket, batch_indices, config_buckets, nearest_bucket, steps_of_epochs, steps_per_epoch
from training.config import TrainConfig, load_config
from training.schedule import generator

ROOT = Path(__file__).parents[2]
THREE = [0, 1, 1, 2, 0, 0, 0]  # 7 samples in 3 buckets


def test_auto_keeps_the_area():
    found = config_buckets(TrainConfig(buckets="auto", frames=16, height=64, width=64))
    assert found == [(16, 64, 64), (16, 48, 80), (16, 80, 48)]
    large = config_buckets(TrainConfig(buckets="auto", frames=33, height=544, width=960))
    assert large[0] == (33, 544, 960) and all(b.frames == 33 and b.height % 16 == b.width % 16 == 0 for b in large)
    assert all(abs(b.height * b.width / (544 * 960) - 1) < 0.02 for b in large)
    assert config_buckets(TrainConfig()) == [(16, 64, 64)]


def test_a_clip_goes_to_the_nearest_aspect_that_it_fills():
    buckets = [Bucket(16, 64, 64), Bucket(16, 48, 80), Bucket(8, 48, 80), Bucket(8, 80, 48)]
    assert nearest_bucket(buckets, 20, 720, 1280) == (16, 48, 80)
    assert nearest_bucket(buckets, 12, 720, 1280) == (8, 48, 80)
    assert nearest_bucket(buckets, 20, 100, 101) == (16, 64, 64)
    assert nearest_bucket(buckets, 12, 100, 100) in buckets[2:]  # the square one is too long
    assert nearest_bucket(buckets, 20, 1280, 720) == (8, 80, 48)
    assert nearest_bucket(buckets, 7, 100, 100) is None


def test_one_bucket_is_the_order_that_there_was():
    for count, batch in ((7, 2), (3, 8), (5, 5)):
        epochs = [torch.randperm(count, generator=generator(9, "order", e)).tolist() for e in range(6 * batch // count + 1)]
        order = [index for epoch in epochs for index in epoch]
        found = [batch_indices([4] * count, 9, s, batch) for s in range(6)]
        assert found == [order[s * batch : (s + 1) * batch] for s in range(6)]


@pytest.mark.parametrize("batch", [1, 2, 3, 8])
def test_batches_never_mix_and_every_epoch_covers_everything(batch):
    steps = steps_per_epoch(THREE, batch)
    for epoch in range(5):
        batches = [batch_indices(THREE, 1, epoch * steps + s, batch) for s in range(steps)]
        assert all(len(b) == batch and len({THREE[i] for i in b}) == 1 for b in batches)
        counts = Counter(i for b in batches for i in b)
        assert set(counts) == set(range(7))
        for bucket in range(3):
            inside = [counts[i] for i in range(7) if THREE[i] == bucket]
            assert max(inside) - min(inside) <= 1
    first, second = ([batch_indices(THREE, 1, e * steps + s, batch) for s in range(steps)] for e in range(2))
    assert first != second and first != [batch_indices(THREE, 2, s, batch) for s in range(steps)]


@pytest.mark.parametrize("batch", [1, 2, 3, 8])
def test_epochs_count_the_steps_that_buckets_make(batch):
    """Two epochs are the first steps in which every sample is seen twice; one bucket has no step that wraps."""
    config = TrainConfig(num_epochs=2, train_batch_size=batch)
    steps = steps_of_epochs(config, THREE, 1).max_train_steps
    counts = Counter(i for s in range(steps) for i in batch_indices(THREE, config.seed, s, batch))
    assert steps == 2 * steps_per_epoch(THREE, batch) and min(counts[i] for i in range(7)) >= 2
    assert steps_of_epochs(config, [0] * 7, 1).max_train_steps == math.ceil(14 / batch)
    half = replace(config, gradient_accumulation_steps=2)
    assert steps_of_epochs(half, THREE, 3).max_train_steps == 2 * steps_per_epoch(THREE, 6 * batch)
    assert steps_of_epochs(TrainConfig(max_train_steps=5), THREE, 1).max_train_steps == 5


def test_settings(tmp_path):
    load_config(None, ["buckets=[[16, 64, 64], [16, 48, 80]]"]).save(tmp_path / "c.yaml")
    assert load_config(tmp_path / "c.yaml").buckets == [[16, 64, 64], [16, 48, 80]]
    assert load_config(None, ["buckets=off"]).buckets == "off"  # YAML's off is false
    for wrong in ("buckets=[]", "buckets=[[16, 64]]", "buckets=[[16, 64, 0]]", "buckets=yes"):
        with pytest.raises(ConfigError, match="should be off, auto or a list"):
            load_config(None, [wrong])
    with pytest.raises(ConfigError, match="needs at least 3 frames, frames=1"):
        load_config(None, ["buckets=[[16, 64, 64], [1, 64, 64]]"])


@pytest.mark.slow
def test_two_processes_train_seven_clips_in_three_buckets_without_waiting_for_each_other(tmp_path):
    save_tiny(tmp_path / "model")
    (tmp_path / "clips").mkdir()
    for i, bucket in enumerate(THREE):
        size = [(16, 16), (16, 32), (32, 16)][bucket]
        video = torch.rand(3, 5, *size, generator=torch.Generator().manual_seed(i))
        write_video(tmp_path / "clips" / f"{i}.mp4", Video.from_tensor(video, 8.0))
        (tmp_path / "clips" / f"{i}.txt").write_text(f"clip number {i}")
    launch = ["-m", "accelerate.commands.launch", "-q", "--multi_gpu", "--num_processes", "2", "--num_machines", "1"]
    launch += ["--main_process_port", "0", "--mixed_precision", "no", "--dynamo_backend", "no"]
    settings = [
        "training/train_lora.py", f"model={tmp_path / 'model'}", f"data={tmp_path / 'clips'}", f"cache_dir={tmp_path / 'cache'}",
        "frames=5", "height=16", "width=16", "rank=2", "buckets=[[5,16,16],[5,16,32],[5,32,16]]", "max_train_steps=9",
        "motion_weight=0", "precision=fp32",
    ]  # fmt: skip
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"}
    losses = []
    for name, command in (("two", [*launch, *settings]), ("one", [*settings, "train_batch_size=2"])):
        command = [sys.executable, *command, f"output_dir={tmp_path / name}"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, env=environment)
        assert done.returncode == 0, done.stderr
        assert "clips: 7 used, 0 skipped" in done.stderr
        lines = (tmp_path / name / "log.jsonl").read_text().splitlines()
        losses.append([json.loads(line)["denoising"] for line in lines])
    assert len(losses[0]) == 9 and losses[0] == pytest.approx(losses[1], rel=1e-4)  # the same samples in the same steps
