"""The procedural world written as a folder: what is where, labels, and that nothing overlaps."""

import json

import pytest

from phys_pipeline.media import read_video
from training.experiments.world import read_prompts, world_digest
from training.world.clips import world_clip
from training.world.folder import SPREAD, write_procedural, write_unflawed

CLIPS = {"train": 6, "held_out": 2, "clean": 2}
PROMPTS = {"validation": 3, "test": 5}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("world") / "folder"
    write_procedural(folder, CLIPS, PROMPTS, seed=0)
    return folder


def test_it_holds_what_was_asked_for_and_is_the_same_every_time(world, tmp_path):
    assert {name: len(list((world / name).glob("*.mp4"))) for name in CLIPS} == CLIPS
    write_procedural(tmp_path / "again", CLIPS, PROMPTS, seed=0)
    assert world_digest(tmp_path / "again") == world_digest(world)
    write_procedural(tmp_path / "other", CLIPS, PROMPTS, seed=1)
    assert world_digest(tmp_path / "other") != world_digest(world)


def test_training_clips_are_those_of_the_flawed_world(world):
    for number in range(CLIPS["train"]):
        clip = world_clip(0, number, spread=SPREAD)
        shown = read_video(world / "train" / f"{number:05d}.mp4").frames
        wanted = (clip.video.permute(1, 2, 3, 0) * 255).numpy()
        assert abs(shown.astype(float) - wanted).mean() < 6  # compression
        assert (world / "train" / f"{number:05d}.txt").read_text() == clip.caption


def test_unflawed_clips_are_the_training_clips_but_for_their_flaws(world, tmp_path):
    write_unflawed(tmp_path / "unflawed", CLIPS["train"], seed=0)
    same = 0
    for number in range(CLIPS["train"]):
        name = f"{number:05d}"
        files = [folder / f"{name}.mp4" for folder in (world / "train", tmp_path / "unflawed")]
        assert files[1].with_suffix(".txt").read_text() == files[0].with_suffix(".txt").read_text()
        same += (equal := files[0].read_bytes() == files[1].read_bytes())
        assert equal == (world_clip(0, number, spread=SPREAD).flaw == "")
    assert 0 < same < CLIPS["train"]


def test_prompts_are_disjoint_and_carry_the_scenes_own_labels(world):
    validation, test = (read_prompts(world, split) for split in ("validation", "test"))
    assert (len(validation), len(test)) == (3, 5)
    assert not {a.text for a in validation} & {a.text for a in test}
    rows = [json.loads(line) for line in (world / "test.jsonl").read_text().splitlines()]
    assert all(row["stratum"] in ("simple", "complex") and row["motion"] for row in rows)


def test_more_test_prompts_leave_the_validation_as_it_is(world, tmp_path):
    write_procedural(tmp_path / "more", CLIPS, {**PROMPTS, "test": 9}, seed=0)
    assert read_prompts(tmp_path / "more", "validation") == read_prompts(world, "validation")
    assert read_prompts(tmp_path / "more", "test")[:5] == read_prompts(world, "test")
