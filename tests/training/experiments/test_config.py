"""Settings of an experiment: only the loss differs between arms, and mistakes are one line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from phys_pipeline.errors import ConfigError
from training.experiments.config import Arm, Experiment, load_experiment

ROOT = Path(__file__).resolve().parents[3]
SHIPPED = ROOT / "training" / "configs" / "experiment.yaml"
LOSS = ("objective", "motion_", "flow_", "sigma_max", "repaired_", "coherence_", "preference_", "ltd_", "anchored_", "sampled_")
BASE = Arm("plain", role="base_loss", settings={"objective": "none"})
OURS = Arm("ours_too", settings={"objective": "anchored"}, sweep={"motion_weight": [0.1, 1.0]}, candidate=True)


def test_arms_of_the_shipped_file_differ_in_their_loss_alone():
    experiment = load_experiment(SHIPPED)
    configs = [
        experiment.train_config(arm, setting, seed=1, output="o", world="w").to_dict()
        for arm in experiment.arms
        if arm.trains
        for setting in arm.combinations()
    ]
    different = {key for key in configs[0] if len({str(config[key]) for config in configs}) > 1}
    assert different and all(key.startswith(LOSS) for key in different)
    assert len(experiment.seeds) >= 3 and experiment.prompts["test"] >= 128


def test_further_columns_share_everything_with_the_others_but_arms_and_page():
    first, further = load_experiment(SHIPPED), load_experiment(SHIPPED.with_name("experiment_further.yaml"))
    own = {"arms": further.arms, "report": further.report, "title": further.title}
    assert replace(first, **own) == further and first.report != further.report and first.title != further.title
    assert further.base_loss.settings == first.base_loss.settings
    assert {arm.name for arm in further.arms if arm.adapters} == {"coherence_2", "coherence_3"}


def test_the_shipped_file_has_every_arm_of_the_study():
    experiment = load_experiment(SHIPPED)
    objectives = {str(arm.settings.get("objective")) for arm in experiment.arms}
    assert {"none", "flow", "spectral", "anchored", "coherence_weighted", "preference", "repaired", "ltd"} <= objectives
    roles = {arm.role for arm in experiment.arms}
    assert {"base_loss", "flow_loss", "without_translation", "without_rotation", "without_scaling"} <= roles
    paper = experiment.train_config(experiment.arm("paper"), {}, seed=0, output="o", world="w")
    assert (paper.motion_preset, paper.motion_form, paper.motion_sigma) == ("paper", "absolute", "every_step")
    spaces = {experiment.train_config(arm, {}, seed=0, output="o", world="w").motion_space for arm in experiment.arms}
    assert spaces == {"pixel", "latent"} and any(arm.best_of for arm in experiment.arms)


def test_a_sweep_is_every_combination_and_an_ablation_takes_its_parents_loss():
    arm = Arm("x", sweep={"motion_weight": [1, 2], "sigma_max": [0.5, 0.7]}, candidate=True)
    assert arm.combinations()[1] == {"motion_weight": 1, "sigma_max": 0.7} and len(arm.combinations()) == 4
    part = Arm("part", ablates="ours_too", settings={"motion_terms": ["rotation"]})
    config = Experiment((BASE, OURS, part)).train_config(part, {"motion_weight": 0.3}, seed=2, output="o", world="w")
    assert (config.objective, config.motion_terms, config.motion_weight, config.seed) == (["anchored"], ["rotation"], 0.3, 2)


def test_an_arm_of_adapters_is_made_of_others_and_may_be_a_candidate():
    fixed = Arm("fixed", settings={"objective": "anchored"}, sweep={"motion_weight": [0.5]})
    strong = Arm("strong", adapters={"fixed": 2.0, "plain": -1.0}, candidate=True)
    about = Experiment((BASE, OURS, fixed, strong))
    assert not strong.trains and [arm.name for arm in about.swept()] == ["plain", "ours_too", "fixed", "strong"]
    assert about.parts(strong, {}) == [(fixed, {"motion_weight": 0.5}, 2.0), (BASE, {}, -1.0)]
    assert about.parts(OURS, {"motion_weight": 0.3}) == [(OURS, {"motion_weight": 0.3}, 1.0)]
    assert about.parts(Arm("best", best_of=True), {}) == []


def test_the_base_loss_is_judged_first_and_ablations_never():
    part = Arm("part", ablates="ours_too", settings={"motion_terms": ["rotation"]})
    still = Arm("fixed", settings={"objective": "ltd"})
    assert [arm.name for arm in Experiment((part, still, OURS, BASE)).swept()] == ["plain", "ours_too"]


@pytest.mark.parametrize(
    ("arms", "changes", "words"),
    [
        ((OURS,), {}, "role base_loss"),
        ((BASE,), {}, "candidate"),
        ((BASE, OURS, OURS), {}, "share a name"),
        ((BASE, OURS), {"sweep_seed": 1}, "sweep_seed"),
        ((BASE, OURS, Arm("a", ablates="nobody")), {}, "nobody"),
        ((BASE, Arm("a", settings={"motion_wait": 1}, candidate=True)), {}, "motion_wait"),
        ((BASE, Arm("a", settings={"seed": 1}, candidate=True)), {}, "seed is set by the experiment"),
        ((BASE, OURS), {"train": {"sigma_max": 7}}, "sigma_max"),
        ((BASE, OURS, Arm("a", adapters={"nobody": 2.0})), {}, "uses the adapter of nobody: there must be such an arm"),
        ((BASE, OURS, Arm("b", best_of=True), Arm("a", adapters={"b": 2.0})), {}, "uses the adapter of b"),
        (
            (BASE, Arm("b", sweep={"motion_weight": [1, 2]}, candidate=True), Arm("a", adapters={"b": 2.0})),
            {},
            "trains one setting",
        ),
    ],
)
def test_mistakes_are_named(arms, changes, words):
    with pytest.raises(ConfigError, match=words):
        Experiment(arms, **changes)


def test_an_arm_that_says_too_much_is_refused():
    with pytest.raises(ConfigError, match="best_of trains nothing"):
        Arm("a", best_of=True, settings={"objective": "ltd"})
    with pytest.raises(ConfigError, match="sampler trains nothing"):
        Arm("a", sampler={"true_cfg_scale": 3.0}, sweep={"motion_weight": [1.0]})
    with pytest.raises(ConfigError, match="adapters trains nothing"):
        Arm("a", adapters={"b": 2.0}, settings={"objective": "ltd"})
    with pytest.raises(ConfigError, match="exclude each other"):
        Arm("a", adapters={"b": 2.0}, best_of=True)
    with pytest.raises(ConfigError, match="role 'ours'"):
        Arm("a", role="ours")


def test_overrides_reach_into_the_file(tmp_path):
    file = tmp_path / "e.yaml"
    arms = {"plain": {"role": "base_loss"}, "a": {"candidate": True}, "b": None}
    file.write_text(
        yaml.safe_dump({"arms": arms, "train": {"rank": 4}, "prompts": {"validation": 1, "test": 2}}, sort_keys=False)
    )
    found = load_experiment(file, ["train.max_train_steps=7", "seeds=[5]", "prompts.test=3"], ["plain", "a"])
    assert found.train == {"rank": 4, "max_train_steps": 7} and found.seeds == (5,) and found.prompts["test"] == 3
    assert [arm.name for arm in found.arms] == ["plain", "a"]
    with pytest.raises(ConfigError, match="no arm 'c'"):
        load_experiment(file, [], ["c"])
    with pytest.raises(ConfigError, match="unexpected keyword"):
        load_experiment(file, ["colour=red"])
    file.write_text("just words")
    with pytest.raises(ConfigError, match="found str"):
        load_experiment(file, ["seeds=[5]"])
