"""A mean and the interval that fits it."""

from __future__ import annotations

import pytest
from evaluation_rows import column_rows, info, row

from phys_pipeline.evaluation.report.summary import summarize
from phys_pipeline.evaluation.scores import NO_SCORES, collect
from phys_pipeline.evaluation.statistics import cluster_bootstrap, wilson

SHARE, FREE = info("share", low=0.0, high=100.0), info("free")


def scores(metric, rows):
    return collect(rows, (metric,))["a"][metric.key]


def test_shares_get_wilson_in_the_metrics_unit():
    found = summarize(scores(SHARE, column_rows("a", {"share": [100.0] * 3 + [0.0] * 7})), (0.0, 100.0))
    assert found["mean"] == 30.0 and found["interval"] == "wilson" and found["n"] == 10
    assert found["ci"] == pytest.approx([100 * end for end in wilson(3, 10)])


def test_other_means_get_the_bootstrap():
    values = [1.0, 2.0, 4.0, 8.0]
    found = summarize(scores(FREE, column_rows("a", {"free": values})), seed=5)
    assert found["mean"] == 3.75 and found["interval"] == "bootstrap" and found["prompts"] == 4
    assert found["ci"] == list(cluster_bootstrap([(f"p{i:03d}", v) for i, v in enumerate(values)], seed=5))


def test_seeds_of_one_prompt_are_drawn_together():
    rows = [row("a", f"p{i}", "share", 100.0 * (i % 2), seed) for i in range(6) for seed in range(4)]
    found = summarize(scores(SHARE, rows), (0.0, 100.0))
    assert (found["n"], found["prompts"], found["interval"]) == (24, 6, "bootstrap")
    assert found["ci"][1] - found["ci"][0] > 100 * (wilson(12, 24)[1] - wilson(12, 24)[0])


def test_one_prompt_has_no_interval():
    found = summarize(scores(FREE, [row("a", "p", "free", value, seed) for seed, value in enumerate((1.0, 3.0))]))
    assert (found["mean"], found["ci"], found["interval"]) == (2.0, None, "")


def test_a_stratum_takes_its_clips_alone():
    rows = column_rows("a", {"free": [1.0, 2.0, 3.0]}, lambda i: {"stratum": "simple" if i else "complex"})
    assert summarize(scores(FREE, rows), stratum=("stratum", "simple"))["mean"] == 2.5
    nobody = summarize(scores(FREE, rows), stratum=("stratum", "other"))
    assert (nobody["mean"], nobody["n"], nobody["reason"]) == (None, 0, "no clip")


def test_no_value_says_why():
    found = summarize(scores(FREE, [row("a", "p", "free", None)]))
    assert (found["mean"], found["n"], found["status"], found["reason"]) == (None, 0, "skipped", "nothing moves")
    assert summarize(NO_SCORES)["reason"] == "not evaluated"
