"""The clean column shows what the test prompts ask for, once measured."""

from __future__ import annotations

from dataclasses import replace

from training.experiments.config import PROCEDURAL, Arm, Experiment
from training.experiments.effects import columns_of
from training.experiments.reference import CLEAN, clean_rows
from training.experiments.runner import Runner


def test_clean_clips_move_as_asked_and_are_measured_once(tmp_path):
    about = Experiment(
        (Arm("plain", role="base_loss", settings={"objective": "none"}), Arm("mine", candidate=True)), world=PROCEDURAL,
        output_dir=str(tmp_path / "out"), clips={"train": 2, "held_out": 1, "clean": 2}, flawed_share=0.4,
        prompts={"validation": 2, "test": 3}, train={"frames": 16, "height": 64, "width": 64, "fps": 8},
    )  # fmt: skip
    runner = Runner(about)
    rows = clean_rows(runner)
    found = columns_of(rows, runner.infos)
    assert set(found) == {CLEAN} and {row.id for row in rows} == {asked.id for asked in runner.prompts("test")}
    right = found[CLEAN]["direction_accuracy"].values
    assert set(right.values()) <= {1.0} and found[CLEAN]["flow_score"].values.keys() == {
        (a.id, 0) for a in runner.prompts("test")
    }
    videos = [(file.name, file.stat().st_mtime_ns) for file in (tmp_path / "out").glob("cells/measure/*/videos/*.mp4")]
    assert len(videos) == 3 and clean_rows(Runner(about)) == rows
    assert [(file.name, file.stat().st_mtime_ns) for file in (tmp_path / "out").glob("cells/measure/*/videos/*.mp4")] == videos


def test_another_world_has_none(tmp_path):
    about = Experiment((Arm("plain", role="base_loss", settings={"objective": "none"}), Arm("mine", candidate=True)))
    assert clean_rows(Runner(replace(about, world=str(tmp_path)))) == []
