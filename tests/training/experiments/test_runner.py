"""Jobs and cells: a choice is needed for the test, ablations follow it, and a cell is named by all that changes its result."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from phys_pipeline.errors import ConfigError, DataError
from training.experiments.config import BASELINE, Arm, Experiment
from training.experiments.runner import Job, Runner

ARMS = (
    Arm("plain", role="base_loss", settings={"objective": "none"}),
    Arm("mine", settings={"objective": "anchored"}, sweep={"motion_weight": [0.1, 1.0]}, candidate=True),
    Arm("part", ablates="mine", settings={"motion_space": "latent"}),
    Arm("best", best_of=True),
)
CHOICE = {"chosen": {"plain": {}, "mine": {"motion_weight": 1.0}}}


@pytest.fixture
def experiment(tmp_path):
    about = Experiment(
        ARMS, output_dir=str(tmp_path / "out"), clips={"train": 2, "held_out": 1, "clean": 1}, seeds=(0, 1),
        prompts={"validation": 2, "test": 3}, train={"frames": 5, "height": 16, "width": 16},
    )  # fmt: skip
    return replace(about, world=str(Runner(about).world))


def test_the_sweep_has_every_setting_with_a_seed_of_its_own(experiment):
    jobs = Runner(experiment).sweep_jobs()
    assert [(job.column, job.setting) for job in jobs] == [
        ("plain", {}), ("mine", {"motion_weight": 0.1}), ("mine", {"motion_weight": 1.0}),
    ]  # fmt: skip
    assert {(job.seed, job.split) for job in jobs} == {(100, "validation")}


def test_the_test_takes_the_choice_and_ablations_their_parents(experiment):
    jobs = Runner(experiment).test_jobs(CHOICE)
    first = {job.column: job.setting for job in jobs if job.seed == 0}
    assert first == {BASELINE: {}, "plain": {}, "mine": {"motion_weight": 1.0}, "part": {"motion_weight": 1.0}, "best": {}}
    assert len(jobs) == 2 * len(first) and {job.split for job in jobs} == {"test"}


def test_nothing_about_the_test_without_a_recorded_choice(experiment):
    from training.experiments.results import write_results

    with pytest.raises(ConfigError, match="no choice is recorded"):
        Runner(experiment).recorded_choice()
    with pytest.raises(ConfigError, match="no choice is recorded"):
        write_results(Runner(experiment), "command")


def test_a_cell_changes_with_its_inputs_and_with_nothing_else(experiment):
    runner, mine = Runner(experiment), ARMS[1]
    job = Job(mine, {"motion_weight": 1.0}, 0, "test")
    key = runner.train_cell(job).key
    assert Runner(replace(experiment, output_dir="elsewhere", report="x.md", batch=3)).train_cell(job).key == key
    assert Runner(replace(experiment, train={**experiment.train, "rank": 3})).train_cell(job).key != key
    others = [
        Job(mine, {"motion_weight": 0.1}, 0, "test"),
        Job(mine, {"motion_weight": 1.0}, 1, "test"),
        Job(ARMS[0], {}, 0, "test"),
    ]
    assert len({key, *(runner.train_cell(other).key for other in others)}) == 4
    videos = {runner.sample_cell(j).key for j in (job, replace(job, split="validation"), Job(None, {}, 0, "test"))}
    assert len(videos) == 3 and runner.train_cell(Job(ARMS[3], {}, 0, "test")) is None


def test_a_changed_world_changes_every_cell(experiment):
    job = Job(ARMS[1], {"motion_weight": 1.0}, 0, "test")
    before = Runner(experiment).train_cell(job).key
    caption = next((Runner(experiment).world / "train").glob("*.txt"))
    caption.write_text("a green star grows")
    assert Runner(experiment).train_cell(job).key != before


def test_best_of_makes_several_and_the_others_one(experiment):
    runner = Runner(experiment)
    assert runner.candidates(Job(ARMS[3], {}, 0, "test")) >= 2
    assert runner.candidates(Job(ARMS[0], {}, 0, "test")) == runner.candidates(Job(None, {}, 0, "test")) == 1


def test_an_arm_with_its_own_sampling_trains_nothing_and_leaves_the_others_cells_alone(experiment):
    guided = Job(Arm("guided", sampler={"true_cfg_scale": 3.0}), {}, 0, "test")
    runner = Runner(experiment)
    assert runner.train_cell(guided) is None
    assert runner.sample_cell(guided).inputs["sampler"] == {**runner.sampler, "true_cfg_scale": 3.0}
    assert runner.sample_cell(Job(None, {}, 0, "test")).inputs["sampler"] == runner.sampler


def test_an_arm_of_adapters_trains_nothing_and_its_videos_depend_on_adapters_and_strengths(experiment):
    fixed = Arm("fixed", settings={"objective": "ltd"})
    strong = [Arm("strong", adapters=strengths) for strengths in ({"fixed": 2.0}, {"fixed": 3.0}, {"fixed": 2.0, "plain": 1.0})]
    keys = set()
    for arm in strong:
        runner = Runner(replace(experiment, arms=(*ARMS, fixed, arm)))
        job, alone = Job(arm, {}, 0, "test"), Job(fixed, {}, 0, "test")
        assert runner.train_cell(job) is None
        parts = runner.parts(job)
        assert [(one.column, weight) for one, _, weight in parts] == list(arm.adapters.items())
        assert parts[0][1].key == runner.train_cell(alone).key, "trained once, for both"
        assert runner.sample_cell(alone).inputs["adapter"] == runner.train_cell(alone).key
        keys.add(runner.sample_cell(job).key)
    assert len(keys) == 3


def test_an_unflawed_arm_trains_on_the_folder_beside_the_world_and_changes_with_it(experiment):
    arm = Arm("perfect", settings={"objective": "none"}, unflawed=True)
    about = replace(experiment, arms=(*ARMS, arm))
    job, plain = Job(arm, {}, 0, "test"), Job(ARMS[0], {}, 0, "test")
    with pytest.raises(DataError, match="world_unflawed: no such folder"):
        Runner(about).train_cell(job)
    beside = Path(f"{about.world}_unflawed")
    beside.mkdir()
    (beside / "00000.txt").write_text("a red square moves right")
    with pytest.raises(DataError, match="other captions"):
        Runner(about).train_cell(job)
    for file in (Path(about.world) / "train").glob("*"):
        (beside / file.name).write_bytes(file.read_bytes())
    key = Runner(about).train_cell(job).key
    assert Runner(about).train_cell(job).inputs["config"]["data"] == "-_unflawed"
    assert "unflawed" not in Runner(about).train_cell(plain).inputs
    next(beside.glob("*.mp4")).write_bytes(b"another video")
    assert Runner(about).train_cell(job).key != key


def test_a_setting_that_came_later_leaves_older_cells_alone_at_its_default(experiment):
    job, gated = (Job(ARMS[1], setting, 0, "test") for setting in ({}, {"coherence_gate": 0.5}))
    assert "coherence_gate" not in Runner(experiment).train_cell(job).inputs["config"]
    assert Runner(experiment).train_cell(gated).inputs["config"]["coherence_gate"] == 0.5


def test_the_procedural_world_comes_with_its_unflawed_clips_where_an_arm_asks(experiment):
    arm = Arm("perfect", settings={"objective": "none"}, unflawed=True)
    about = replace(
        experiment, arms=(*ARMS, arm), world="procedural", output_dir=f"{experiment.output_dir}/procedural",
        clips={"train": 4, "held_out": 1, "clean": 1},
    )  # fmt: skip
    runner = Runner(about)
    assert runner.train_cell(Job(arm, {}, 0, "test")).inputs["unflawed"] == runner.unflawed_digest
    assert len(list(Path(f"{runner.world}_unflawed").glob("*.mp4"))) == 4


def test_best_of_n_has_the_budget_of_all_adapters_of_a_candidate(experiment):
    long = {**experiment.train, "max_train_steps": 400}
    both = Arm("both", adapters={"plain": 1.0, "fixed": 1.0}, candidate=True)
    fixed = Arm("fixed", settings={"objective": "ltd"}, candidate=True)
    one = Runner(replace(experiment, arms=(*ARMS, fixed), train=long))
    two = Runner(replace(experiment, arms=(*ARMS, fixed, both), train=long))
    job = Job(ARMS[3], {}, 0, "test")
    assert two.candidates(job) - 1 == 2 * (one.candidates(job) - 1) > 2
