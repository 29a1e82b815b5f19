"""The page's tables say what their effects and rows say."""

from __future__ import annotations

import pytest

from phys_pipeline.evaluation.registry import infos
from phys_pipeline.evaluation.rows import Row
from training.experiments import tables
from training.experiments.config import Arm, Experiment
from training.experiments.effects import EVERY, MUST_HOLD, Effect, columns_of, effect

METRICS = ("sim2_jerk", "flow_score", "direction_accuracy")
ABOUT = Experiment((Arm("plain", role="base_loss"), Arm("mine", candidate=True)), seeds=(0, 1))
JERK, DIRECTION = MUST_HOLD[0], MUST_HOLD[3]


@pytest.fixture(scope="module")
def columns():
    """In "mine" jerk halves and flow doubles on even prompts (rotation) alone; its directions are all right."""
    rows = []
    for column in ("baseline", "plain", "mine"):
        for number in range(4):
            for seed in (0, 1):
                better = column == "mine" and number % 2 == 0
                values = {"sim2_jerk": 0.5 if better else 1.0, "flow_score": 4.0 if better else 2.0}
                values["direction_accuracy"] = float(column == "mine" or number < 2)
                labels = {"motion": "rotation" if number % 2 == 0 else "scaling", "stratum": "simple"}
                rows += [
                    Row(f"{column}/p{number}#{seed}", f"p{number}", column, seed, metric, value, "ok", backend="b", labels=labels)
                    for metric, value in values.items()
                ]
    return columns_of(rows, [infos()[key] for key in METRICS])


def cells(text, first):
    """Cells of the line that begins so."""
    line = next(line for line in text.splitlines() if line.startswith(f"| {first}"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_a_requirement_stands_beside_its_verdict():
    effects = {"mine": {one.metric: None for one in MUST_HOLD} | {"sim2_jerk": Effect(0.7, (0.6, 0.75), 8)}}
    text = tables.must_hold(effects, ["mine"])
    assert cells(text, "SIM(2) jerk") == ["SIM(2) jerk", "at most 0.80", "0.700 [0.600, 0.750]", "met", "8"]
    assert cells(text, "Flow")[2:] == ["n/a", "not measured", "0"]


def test_amounts_are_means_and_the_jerk_in_pixels_takes_the_motion_back_in(columns):
    effects = {"mine": {one.metric: effect(columns["plain"], columns["mine"], one, None) for one in EVERY}}
    text = tables.amounts(columns, effects, "plain", ["baseline", "mine"], "mine")
    assert cells(text, "SIM(2) jerk |") == ["SIM(2) jerk", "1.000 [1.000, 1.000]", "0.750 [0.500, 1.000]", "0.750 [0.500, 1.000]"]
    assert cells(text, "SIM(2) jerk x flow")[1:] == ["2.000 [2.000, 2.000]", "2.000 [2.000, 2.000]", "1.000 [1.000, 1.000]"]
    assert cells(text, "Warping error, raw")[1:] == ["n/a", "n/a", "n/a"]


def test_effects_by_motion_are_of_its_prompts_alone(columns):
    text = tables.by_motion(columns, "plain", "mine", None)
    assert cells(text, "motion: rotation")[1:3] == ["2", "0.500 [0.500, 0.500]"]
    assert cells(text, "motion: scaling")[1:3] == ["2", "1.000 [1.000, 1.000]"]
    assert cells(text, "stratum: simple")[1] == "4" and cells(text, "motion: scaling")[5] == "+50.0 [+0.0, +100.0]"


def test_rivals_and_seeds(columns):
    text = tables.rivals(columns, "mine", ["plain", "baseline"], None)
    assert cells(text, "SIM(2) jerk |")[1:] == ["0.750 [0.500, 1.000]"] * 2
    assert cells(tables.seeds(columns, ABOUT, "mine", None), "SIM(2) jerk") == ["SIM(2) jerk", "0.750", "0.750"]


def test_settings_are_words():
    assert tables.setting_text({"objective": ["preference", "ltd"], "tau": 0.05}) == "objective preference + ltd, tau 0.05"
    assert tables.setting_text(None) == ""
    assert tables.effect_text(Effect(2.04, None, 1), DIRECTION) == "+2.0" and tables.effect_text(None, JERK) == "n/a"
