"""The page's parts from made-up rows: the paper's layouts, the count of looks at the test prompts."""

from __future__ import annotations

import json

import pytest

from phys_pipeline.errors import ConfigError
from phys_pipeline.evaluation.registry import infos
from phys_pipeline.evaluation.report import describe_run, write_report
from phys_pipeline.evaluation.rows import Row
from training.experiments.config import Arm, Experiment
from training.experiments.effects import BESIDE, MUST_HOLD, Effect
from training.experiments.results import _ablation, _columns, _finished_part, _in_short, _layouts, _left_out, _note_look, _suite
from training.experiments.runner import Job

METRICS = ("sim2_jerk", "warping_error", "flow_score", "direction_accuracy", "dynamic_degree")
ARMS = (
    Arm("plain", role="base_loss", settings={"objective": "none"}),
    Arm("flow", role="flow_loss", settings={"objective": "flow"}),
    Arm("mine", label="my loss", candidate=True),
    *(Arm(f"no_{part}", ablates="mine", role=f"without_{part}") for part in ("translation", "rotation", "scaling")),
)
CHOICE = {"ours": "mine", "chosen": {"mine": {"motion_weight": 0.3}}}
MOTIONS = ("translation", "rotation")


@pytest.fixture(scope="module")
def rows():
    columns = ["baseline", *(arm.name for arm in ARMS)]
    clip = {"backend": "b", "frames": 16, "width": 64, "height": 64, "fps": 8.0}
    return [
        Row(
            f"{column}/p{n}#0", f"p{n}", column, 0, metric, 1.0 if metric == "dynamic_degree" else round(0.1 + place / 100, 4),
            "ok", prompt=f"prompt {n}", labels={"motion": MOTIONS[n % 2], "stratum": "simple"}, **clip,
        )
        for place, column in enumerate(columns)
        for metric in METRICS
        for n in range(4)
    ]  # fmt: skip


def test_table_2_has_its_columns_and_table_4_takes_the_ablated_arm_for_ours(rows, tmp_path):
    about = Experiment(ARMS)
    known = [infos()[key] for key in METRICS]
    report = write_report(rows, known, _columns(about, CHOICE), describe_run("x"), tmp_path, tables=_layouts(ARMS, {"simple"}))
    assert {column["key"]: column["role"] for column in report["columns"]} == {
        "baseline": "baseline", "plain": "base_loss", "flow": "flow_loss", "mine": "ours",
        "no_translation": "", "no_rotation": "", "no_scaling": "",
    }  # fmt: skip
    assert "T2. Losses" in (tmp_path / "report.md").read_text()
    parts = _ablation(about, CHOICE, known, rows, describe_run("x"), tmp_path)
    header = next(line for line in parts[0].splitlines() if "w/o Translation" in line)
    assert "Full" in header and "my loss" in parts[0]
    full = next(line for line in parts[0].splitlines() if "Warping" in line)
    assert "0.13000" in full.split("|")[2], "the ablated arm's own values"
    suite = _suite(report)
    assert "my loss" in suite[0] and len(suite[0].splitlines()) == 4 + len(METRICS)
    assert [part.splitlines()[0] for part in suite] == [
        "## All prompts", "## stratum simple: 4 prompts", "## motion rotation: 2 prompts", "## motion translation: 2 prompts",
    ]  # fmt: skip


def test_layouts_need_their_columns():
    assert _layouts(ARMS, {"simple", "complex"}) == ["T2", "T3"] and _layouts(ARMS[:1], {"simple"}) == []
    assert _ablation(Experiment(ARMS[:3]), CHOICE, [], [], {}, None) == []


def test_every_column_shown_has_the_same_seeds_and_the_rest_is_named():
    about = Experiment((*ARMS, Arm("other"), Arm("no_other", ablates="other")), seeds=(2, 0, 1))
    whole = [Job(arm, {}, seed, "test") for arm in (None, *ARMS[:1], *ARMS[2:3]) for seed in (1, 2)]
    flow = [Job(ARMS[1], {}, seed, "test") for seed in (0, 1)]  # has another seed, but not seed 2
    orphan = [Job(about.arm("no_other"), {}, seed, "test") for seed in (1, 2)]
    part = _finished_part(about, [*whole, *flow, *orphan, Job(None, {}, 0, "test")], "mine")
    assert [arm.name for arm in part.arms] == ["plain", "mine"] and part.seeds == (2, 1)
    assert _left_out(flow) == ["**Left out, because not finished for every seed shown:** flow (seed 0, 1)."]
    assert _left_out([]) == []
    with pytest.raises(ConfigError, match="no seed of baseline, plain, mine is finished"):
        _finished_part(about, [*whole[:4], *flow], "mine")


def test_an_arm_of_adapters_is_shown_with_the_arms_that_it_is_made_of_or_not_at_all():
    strong = Arm("strong", adapters={"mine": 2.0}, candidate=True)
    about = Experiment((*ARMS[:3], strong), seeds=(0, 1))
    done = [Job(arm, {}, seed, "test") for arm in (None, ARMS[0], strong) for seed in (0, 1)]
    part = _finished_part(about, [*done, Job(ARMS[2], {}, 1, "test")], "strong")
    assert part.seeds == (1,) and [arm.name for arm in part.arms] == ["plain", "mine", "strong"]
    with pytest.raises(ConfigError, match="no seed of baseline, plain, strong, mine is finished"):
        _finished_part(about, done, "strong")
    whole = [Job(ARMS[2], {}, seed, "test") for seed in (0, 1)]
    other = Experiment((*ARMS[:3], Arm("weak", candidate=True), strong), seeds=(0, 1))
    others = [Job(other.arm("weak"), {}, seed, "test") for seed in (0, 1)]
    assert [arm.name for arm in _finished_part(other, [*done, *others], "weak").arms] == ["plain", "weak"]
    assert [arm.name for arm in _finished_part(other, [*done, *others, *whole], "weak").arms] == [
        "plain",
        "mine",
        "weak",
        "strong",
    ]
    assert _columns(about, {"ours": "strong", "chosen": {}})[-1].loss == "strength of mine 2.0"


def test_an_ablation_shows_its_parents_chosen_setting():
    about = Experiment(
        (ARMS[0], Arm("mine", settings={"sigma_max": 0.5}, candidate=True), Arm("part", ablates="mine", settings={"rank": 2}))
    )
    assert _columns(about, CHOICE)[-1].loss == "sigma_max 0.5, rank 2, motion_weight 0.3"


def test_the_answer_says_what_is_reached_and_what_is_not():
    own = {one.metric: Effect(0.7, (0.6, 0.75), 8) for one in MUST_HOLD} | {"direction_accuracy": Effect(3.0, (1.0, 5.0), 8)}
    text = _in_short(own | {one.metric: Effect(1.25, (1.2, 1.3), 8) for one in BESIDE}, "mine", 3)
    assert "SIM(2) jerk 0.700 [0.600, 0.750] (asked: at most 0.80)" in text and "with 3 training seeds" in text
    reached, missed = text.partition("reached: ")[2].split("; not reached: ")
    assert "SIM(2) residual" in reached and missed.startswith("Direction right. Guards kept: 2 of 4")
    assert "Warping error, raw 1.250 [1.200, 1.300]" in text


def test_every_choice_and_set_of_columns_that_the_test_was_read_for_is_counted_once(tmp_path):
    file = tmp_path / "log.jsonl"
    looks = [("a", ["x", "y"]), ("a", ["y", "x"]), ("b", ["x", "y"]), ("a", ["x"])]
    assert [_note_look(file, *look) for look in looks] == [(1, 1), (1, 1), (2, 1), (2, 2)]
    assert [json.loads(line)["choice"] for line in file.read_text().splitlines()] == ["a", "b", "a"]
