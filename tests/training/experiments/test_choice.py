"""The choice: by motion among settings that keep the guards, written once, and worthless when edited."""

from __future__ import annotations

import json
import math
from types import SimpleNamespace

import numpy as np
import pytest

from phys_pipeline.errors import ConfigError
from phys_pipeline.evaluation.metrics.frame_quality import latent_moments
from phys_pipeline.evaluation.registry import infos
from phys_pipeline.evaluation.rows import Row
from training.experiments import effects
from training.experiments.choice import Judgement, choose, judge, read_choice, record_choice
from training.experiments.effects import columns_of

MOMENTS = latent_moments(np.random.default_rng(0).normal(size=(3, 50)))
METRICS = ("sim2_jerk", "sim2_residual", "direction_accuracy", "dynamic_degree", "flow_score", "spectrum_distance")


@pytest.fixture(autouse=True)
def clean_set(monkeypatch):
    other = latent_moments(np.random.default_rng(1).normal(size=(3, 50)))
    monkeypatch.setattr(effects, "clean_moments", lambda folder: other)


def column(**changes):
    """A column of 8 prompts: 1 for every metric, or what ``changes`` says."""
    rows = [
        Row(f"c/p{n}", f"p{n}", "c", 0, metric, changes.get(metric, 1.0), "ok", backend="b",
            details={"latent_moments": MOMENTS.tolist()})
        for metric in METRICS
        for n in range(8)
    ]  # fmt: skip
    return columns_of(rows, list(infos().values()))["c"]


def test_the_score_is_the_mean_ratio_of_jerk_and_residual():
    found = judge(column(), column(sim2_jerk=0.5, sim2_residual=0.8), {"motion_weight": 1}, None)
    assert found.score == pytest.approx(math.sqrt(0.5 * 0.8)) and found.broken == ()


@pytest.mark.parametrize(
    "guard", [{"direction_accuracy": 0.0}, {"dynamic_degree": 0.5}, {"flow_score": 0.9}, {"spectrum_distance": 1.1}]
)
def test_a_calmer_clip_that_breaks_a_guard_loses(guard):
    calm = judge(column(), column(sim2_jerk=0.2, **guard), {"w": 1}, None)
    honest = judge(column(), column(sim2_jerk=0.9), {"w": 2}, None)
    assert calm.broken == tuple(guard) and calm.score < honest.score
    assert choose({"a": [calm, honest]}, ["a"], {})["chosen"]["a"] == {"w": 2}


def test_a_guard_that_one_clip_of_many_may_have_crossed_by_chance_is_not_broken():
    noisy = column()
    still = next(iter(noisy["dynamic_degree"].values))
    one_still = dict(noisy["dynamic_degree"].values) | {still: 0.0}
    noisy["dynamic_degree"] = SimpleNamespace(values=one_still)
    found = judge(column(), noisy, {}, None)
    value, low, high = found.effects["dynamic_degree"]
    assert low < value < 0.95 < high and found.broken == ()


def test_what_stands_still_is_not_chosen():
    base, still = column(), {k: v for k, v in column().items() if k not in ("sim2_jerk", "sim2_residual")}
    found = judge(base, still, {}, None)
    assert math.isinf(found.score)


def test_ours_is_the_best_candidate_and_equals_keep_their_order():
    judged = {
        "a": [Judgement({"w": 1}, 0.9, (), {}), Judgement({"w": 2}, 0.9, (), {})],
        "b": [Judgement({}, 0.7, (), {})],
        "c": [Judgement({}, 0.1, (), {})],
    }
    found = choose(judged, ["a", "b"], {})
    assert found["ours"] == "b" and found["chosen"]["a"] == {"w": 1}


def test_a_choice_is_recorded_once_and_an_edited_one_is_refused(tmp_path):
    file = tmp_path / "choice.json"
    with pytest.raises(ConfigError, match="no choice is recorded"):
        read_choice(file)
    judged = {"a": [Judgement({"w": 1}, 0.9, (), {"sim2_jerk": 0.9})]}
    first = record_choice(file, choose(judged, ["a"], {"world": "x"}))
    assert record_choice(file, choose(judged, ["a"], {"world": "x"})) == read_choice(file) == first
    with pytest.raises(ConfigError, match="another choice"):
        record_choice(file, choose(judged, ["a"], {"world": "y"}))
    edited = json.loads(file.read_text())
    edited["chosen"]["a"] = {"w": 2}
    file.write_text(json.dumps(edited))
    with pytest.raises(ConfigError, match="changed after"):
        read_choice(file)
