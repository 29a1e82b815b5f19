"""The world's folder: prompts that training never shows, a share of flawed clips, the same bytes for the same seed."""

from __future__ import annotations

import numpy as np
import pytest

from phys_pipeline.errors import ConfigError, DataError
from phys_pipeline.media import read_video
from phys_pipeline.media.synthetic import MOTIONS
from training.experiments.world import read_prompts, split_captions, subject_of, world_digest, write_world

CLIPS, PROMPTS, SIZE = {"train": 10, "held_out": 2, "clean": 2}, {"validation": 9, "test": 18}, (5, 32, 32)


def written(folder, **changes):
    given = {"flawed_share": 0.5, "seed": 3, "size": SIZE, **changes}
    write_world(folder, CLIPS, PROMPTS, **given)
    return folder


def test_splits_are_disjoint_and_hold_every_motion_alike():
    split = split_captions(32, 128, 0)
    assert [len(split[name]) for name in ("validation", "test")] == [32, 128]
    assert len({subject for part in split.values() for subject in part}) == sum(map(len, split.values()))
    counts = [sum(subject[2] == motion for subject in split["test"]) for motion in MOTIONS]
    assert max(counts) - min(counts) <= 1
    with pytest.raises(ConfigError, match="leave none"):
        split_captions(200, 200, 0)


def test_no_training_caption_is_a_prompt_and_prompts_carry_labels(tmp_path):
    world = written(tmp_path / "world")
    asked = [a for name in ("validation", "test") for a in read_prompts(world, name)]
    captions = {file.read_text() for file in world.rglob("*.txt")}
    assert len(asked) == 27 and not captions & {a.text for a in asked}
    assert all("stratum" in a.labels for a in asked)
    right = next(a for a in asked if a.text.endswith("moves right"))
    assert right.labels["direction"] == "right" and right.labels["motion"] == "translation"


def test_the_share_of_flawed_clips_is_what_was_asked_for_and_clean_folders_have_none(tmp_path):
    clean, flawed = written(tmp_path / "a", flawed_share=0.0), written(tmp_path / "b", flawed_share=1.0)

    def same(name):
        pairs = [(read_video(f).frames, read_video(flawed / name / f.name).frames) for f in sorted((clean / name).glob("*.mp4"))]
        return [np.array_equal(a, b) for a, b in pairs]

    assert sum(same("train")) <= 1, "a still clip can survive some flaws"
    assert all(same("held_out") + same("clean"))


def test_a_seed_gives_one_world(tmp_path):
    assert world_digest(written(tmp_path / "a")) == world_digest(written(tmp_path / "b"))
    assert world_digest(written(tmp_path / "c", seed=4)) != world_digest(tmp_path / "a")


def test_what_is_no_world_is_refused(tmp_path):
    with pytest.raises(DataError, match="no folder train"):
        world_digest(tmp_path)
    with pytest.raises(DataError, match=r"test\.jsonl"):
        read_prompts(tmp_path, "test")
    (tmp_path / "test.jsonl").write_text('{"id": "a", "prompt": "x"}\n{"id": "a", "prompt": "y"}\n')
    with pytest.raises(DataError, match="twice"):
        read_prompts(tmp_path, "test")


def test_the_subject_of_a_caption():
    assert subject_of("a red square moves right, the camera pans left") == "red square"
    assert subject_of("a picture of a cat, the camera zooms in") == "cat"
    assert subject_of("Two dogs play") == "Two dogs play"
