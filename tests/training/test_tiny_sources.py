"""Clip sources: what is shown fits its caption, the world's clips turn only where they may; a run in pieces is the same run."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("pymunk", reason='the extra "pretrain" is not installed')
pytest.importorskip("skimage", reason='the extra "pretrain" is not installed')
pytest.importorskip("sklearn", reason='the extra "pretrain" is not installed')

from training import pretrain_tiny
from training.tiny_sources import ShapeSource, WorldSource, clip_source
from training.world.clips import world_clip
from training.world.scenes import ONE_WAY, Scene, is_held_out


def shown(source: WorldSource, scene: Scene, flaw: str = "", one_way: bool = False) -> set[tuple[bool, str]]:
    found = {source.shown([scene.to_list(), flaw], np.random.default_rng(i), one_way) for i in range(60)}
    return {item for item in found if item is not None}


@pytest.fixture(scope="module")
def world() -> WorldSource:
    return WorldSource(1, 4, 32)


def test_names_and_captions():
    assert {name: type(clip_source(name, 0, 4, 32, 1.0)) for name in ("shapes", "clean", "flawed")} == {
        "shapes": ShapeSource, "clean": WorldSource, "flawed": WorldSource,
    }  # fmt: skip
    assert [clip_source(name, 0, 4, 32, 1.0).name for name in ("shapes", "clean", "flawed")] == ["shapes", "clean", "flawed"]


def test_chunks_are_consecutive_clips_of_the_world(world: WorldSource):
    second = list(world.chunk(1, 5))
    for offset, (video, label) in enumerate(second):
        clip = world_clip(1, 5 + offset, frames=4, side=32)
        assert torch.equal(video, clip.video) and label == [clip.scene.to_list(), clip.flaw]
    assert all(label[1] == "" for _, label in WorldSource(1, 4, 32, flawed=False).chunk(0, 20))
    assert world.frames(np.random.default_rng(0), 3).shape == (3, 3, 32, 32)


def test_a_clip_played_backwards_has_the_caption_of_what_it_then_shows(world: WorldSource):
    left = Scene("shape", "red square", ("moves left",))
    texts = shown(world, left)
    assert {backwards for backwards, _ in texts} == {True, False}
    assert all(("left" in text) != backwards and ("right" in text) == backwards for backwards, text in texts)


def test_events_reversals_and_cuts_are_never_played_backwards(world: WorldSource):
    fall = Scene("event", "red circle", ("falls and bounces",))
    left = Scene("shape", "red square", ("moves left",))
    assert {backwards for backwards, _ in shown(world, fall)} == {False}
    for flaw in ("reverse", "cut"):
        assert {backwards for backwards, _ in shown(world, left, flaw)} == {False}


def test_one_way_shows_simple_scenes_in_one_sense_only(world: WorldSource):
    assert not shown(world, Scene("event", "red circle", ("falls and bounces",)), one_way=True)
    assert not shown(world, Scene("shape", "red square", ("moves left", "grows")), one_way=True)
    assert not shown(world, Scene("shape", "red square", ("moves left",)), "reverse", one_way=True)
    for word in ONE_WAY:
        scene = (
            Scene("photograph", "cat", camera=word)
            if word.split()[0] in ("pans", "tilts", "zooms", "rolls")
            else Scene("shape", "red square", (word,))
        )
        assert {backwards for backwards, _ in shown(world, scene, one_way=True)} == {True}
        reverse = scene.backwards()
        assert reverse is not None and {backwards for backwards, _ in shown(world, reverse, one_way=True)} == {False}


def test_nothing_held_out_is_shown(world: WorldSource):
    for _, label in world.chunk(0, 60):
        scene = Scene.from_list(label[0])
        reverse = scene.backwards()
        assert not is_held_out(scene) and (reverse is None or not is_held_out(reverse))


@pytest.mark.slow
def test_a_run_in_pieces_of_no_time_is_the_run_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    def arguments(name: str) -> list[str]:
        work, output = str(tmp_path / name / "work"), str(tmp_path / name / "model")
        return ["--smoke", "--world", "flawed", "--steps", "3", "--seed", "3", "--work", work, "--output", output, "--resume"]

    assert pretrain_tiny.main(arguments("straight")) == 0
    capsys.readouterr()
    for _ in range(12):  # each stops after the first step that it takes
        assert pretrain_tiny.main([*arguments("pieces"), "--minutes", "0"]) == 0
        if "go on with --resume" not in capsys.readouterr().err:
            break
    else:
        pytest.fail("the run in pieces never finished")
    straight, pieces = (
        torch.load(tmp_path / name / "work" / "checkpoint.pt", weights_only=True) for name in ("straight", "pieces")
    )
    assert straight["step"] == pieces["step"] == 3
    assert json.loads((tmp_path / "pieces" / "work" / "settings.json").read_text())["world"] == "flawed"
    assert all(torch.equal(value, pieces["averaged"][name]) for name, value in straight["averaged"].items())
    weights = [
        (tmp_path / name / "model/vae/diffusion_pytorch_model.safetensors").read_bytes() for name in ("straight", "pieces")
    ]
    assert weights[0] == weights[1]


def test_a_device_that_is_not_there_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    common = ["--smoke", "--steps", "3", "--work", str(tmp_path / "work"), "--output", str(tmp_path / "model")]
    assert pretrain_tiny.main([*common, "--device", "cuda", "--workers", "1"]) == 2
    assert "use --device cpu" in capsys.readouterr().err
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert pretrain_tiny.main([*common, "--device", "cuda"]) == 2
    assert "--workers 1" in capsys.readouterr().err
