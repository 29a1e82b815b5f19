"""Layouts of the paper, bold, marks, and how numbers are printed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from evaluation_rows import COLUMNS, INFOS, RUN, column_rows, info, plausible_values

from phys_pipeline.errors import ConfigError
from phys_pipeline.evaluation.report.build import build_report
from phys_pipeline.evaluation.report.columns import Column
from phys_pipeline.evaluation.report.tables import (
    FEW,
    GUARD,
    LAYOUTS,
    PAPER_ROWS,
    STANDIN,
    Entry,
    accuracy_table,
    difference,
    paired_table,
    paper_table,
    probability,
    value_table,
)

ROLES = ("baseline", "base_loss", "flow_loss", "ours", "without_translation", "without_rotation", "without_scaling")


def small_report(values: dict, direction: str = "up", flow: dict | None = None):
    """One metric of several columns that move alike; ``values[column]`` are its clips, ``flow[column]`` their flow, else 1."""
    rows = [
        r
        for column, numbers in values.items()
        for r in column_rows(column, {"score": numbers, "flow_score": [(flow or {}).get(column, 1.0)] * len(numbers)})
    ]
    infos = info("score", direction), info("flow_score", "neutral")
    return build_report(rows, infos, [Column(key) for key in values], RUN)


def bold(report) -> list[bool]:
    return [cell.bold for cell in value_table(report).rows[0][1:-1]]


@pytest.fixture(scope="module")
def report():
    columns = [Column(role, role.upper(), role, base) for base in ("Open-Sora 1.2",) for role in ROLES]
    rows = [
        r
        for number, column in enumerate(columns)
        for r in column_rows(
            column.key, plausible_values(20, 0.3 if column.role == "flow_loss" else 1.0 + 0.1 * number, noise=number),
            lambda index: {"stratum": "complex" if index < 5 else "simple"},
        )
    ]  # fmt: skip
    return build_report([replace(r, status="standin") if r.metric == "flow_score" else r for r in rows], INFOS, columns, RUN)


@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts_have_the_papers_rows_in_order_and_plausibility_below(report, name):
    table = paper_table(report, name)
    labels = [row[0].text.rstrip(" ↑↓") for row in table.rows]
    assert labels == [PAPER_ROWS[key][0] for key in LAYOUTS[name].metrics] + ["Plausibility"]
    assert [cell.text if isinstance(cell, Entry) else cell for cell in table.header] == [
        "metric", *(heading for heading, _, _ in LAYOUTS[name].columns), "clips",
    ]  # fmt: skip
    by_label = {row[0].text: row for row in table.rows}
    key, stratum = LAYOUTS[name].columns[0][1], LAYOUTS[name].columns[0][2]
    values = report["strata"]["stratum"][stratum] if stratum else report["values"]
    assert by_label["Warping Error ↓"][1].text == f"{values[key]['warping_error']['mean']:.4f}"
    assert by_label["VQA_A" if "VQA_A" in by_label else "SD Score"][1].text == "n/a"
    if name == "T2":
        assert table.groups == (3, 6, 9, 11)  # visual, temporal, motion, text, ours
        assert [cell.marks for cell in table.header[1:-1]] == ["", "", GUARD, ""]


def test_marks_of_standins_and_few_clips(report):
    row = {r[0].text: r for r in value_table(report).rows}["Flow score"]
    assert row[0].marks == FEW and all(cell.marks == STANDIN for cell in row[1:-1]) and row[-1] == "20"


def test_plausibility_comes_first_or_last_but_never_twice():
    values = {"flow_score": [1.0, 2.0], "plausibility": [0.5, 0.6]}
    report = build_report(column_rows("baseline", values) + column_rows("ours", values), INFOS[::-1], COLUMNS, RUN)
    assert [row[0].text for row in value_table(report).rows] == ["Plausibility ↑", "Flow score"]
    assert [row[0].text for row in value_table(report, metrics=["flow_score"]).rows] == ["Flow score", "Plausibility ↑"]
    assert len(value_table(report, ["ours"], ["plausibility"]).rows) == 1


def test_t3_counts_the_clips_of_both_strata(report):
    assert {row[-1] for row in paper_table(report, "T3").rows} == {"n/a", "5-15"}


def test_roles_pick_the_column_of_the_right_base():
    columns = [Column(f"{base}-{role}", "", role, base) for base in ("MVDiT", "Open-Sora") for role in ("baseline", "ours")]
    rows = [r for place, c in enumerate(columns) for r in column_rows(c.key, {"flow_score": [1.0 + place, 2.0 + place]})]
    report = build_report(rows, INFOS, columns, RUN)
    assert [cell.text for cell in paper_table(report, "T1a").rows[8][1:-1]] == ["3.50", "4.50"]
    assert [cell.text for cell in paper_table(report, "T1b").rows[8][1:-1]] == ["1.50", "2.50"]


def test_a_layout_that_can_not_be_filled_says_what_is_missing():
    rows = column_rows("baseline", {"flow_score": [1.0]}) + column_rows("ours", {"flow_score": [1.0]})
    report = build_report(rows, INFOS, COLUMNS, RUN)
    with pytest.raises(ConfigError, match="T2 needs a column with the role 'base_loss'"):
        paper_table(report, "T2")
    with pytest.raises(ConfigError, match="no clip has the label stratum=complex"):
        paper_table(report, "T3")
    with pytest.raises(ConfigError, match="unknown table 'T9'; use one of T1a"):
        paper_table(report, "T9")
    with pytest.raises(ConfigError, match="no column or metric nobody, nothing"):
        value_table(report, ["nobody"], ["nothing"])


def test_a_table_is_titled_with_the_base_of_its_columns_not_of_the_paper():
    columns = [Column("a", role="baseline", base="CogVideoX"), Column("b", role="ours", base="CogVideoX")]
    found = build_report([r for key in "ab" for r in column_rows(key, plausible_values(3))], INFOS, columns, RUN)
    assert paper_table(found, "T1a").title == "T1a. Baseline and ours, CogVideoX"


def test_motion_accuracy_stands_beside_constant_answers():
    labels = ["large", "large", "large", "slow"]
    rows = column_rows("a", {"motion_accuracy": [100.0, 100.0, 0.0, 0.0]}, lambda index: {"amplitude": labels[index]})
    infos = (info("motion_accuracy", low=0.0, high=100.0),)
    table = accuracy_table(build_report(rows, infos, [Column("a", "A")], RUN))
    assert table.rows == (("A", "2", "1", "0", "1", "75.00", "25.00"),)
    assert accuracy_table(small_report({"a": [1.0], "b": [2.0]})) is None


def test_bold_needs_the_runner_ups_interval():
    spread = [1.0, 2.0, 3.0, 4.0, 5.0] * 4
    assert bold(small_report({"a": spread, "b": [v + 3 for v in spread]})) == [False, True]
    assert bold(small_report({"a": spread, "b": [v + 3 for v in spread]}, "down")) == [True, False]
    assert bold(small_report({"a": spread, "b": [v + 0.2 for v in spread]})) == [False, False]
    assert bold(small_report({"a": spread, "b": [v + 3 for v in spread]}, "neutral")) == [False, False]


def test_a_column_with_the_red_line_is_never_bold():
    spread = [1.0, 2.0, 3.0, 4.0, 5.0] * 4
    values = {"a": spread, "b": [v + 3 for v in spread]}
    assert bold(small_report(values, flow={"b": 0.95})) == [False, True]
    assert bold(small_report(values, flow={"b": 0.5})) == [False, False]


def test_ties_are_bold_together_and_only_above_the_rest():
    spread = [1.0, 2.0, 3.0, 4.0, 5.0] * 4
    assert bold(small_report({"a": spread, "b": [v + 3 for v in spread], "c": [v + 3.001 for v in spread]})) == [
        False,
        True,
        True,
    ]
    assert bold(small_report({"a": spread, "b": spread})) == [False, False]
    assert bold(small_report({"a": [1.0], "b": [2.0]})) == [False, False]  # one clip has no interval


def test_nothing_is_bold_next_to_another_backend():
    rows = column_rows("a", {"score": [1.0] * 9 + [1.1]}) + column_rows("b", {"score": [5.0] * 10}, status="standin")
    report = build_report(rows, (info("score"),), [Column("a"), Column("b")], RUN)
    assert bold(report) == [False, False]


def test_paired_table_has_plausibility_beside_every_metric(report):
    table = paired_table(report, "baseline", "flow_loss")
    assert table.title == f"FLOW_LOSS{GUARD} minus BASELINE, paired by prompt and seed"
    assert len(table.rows) == len(INFOS) and table.header[-1] == "plausibility on these clips"
    entry = report["paired"]["baseline"]["flow_loss"]["warping_error"]
    row = {r[0]: r for r in table.rows}["Warping error ↓"]
    assert float(row[1].text) == pytest.approx(entry["diff"], abs=5e-6) and row[4] == Entry("20", marks=FEW)
    assert float(row[5].text) == pytest.approx(entry["plausibility"]["diff"], abs=5e-4)


@pytest.mark.parametrize(
    ("diff", "ci", "decimals", "text", "interval"),
    [
        (-0.000031, [-0.00004, -0.00002], 4, "-0.000031", "[-0.000040, -0.000020]"),
        (12.3456, [1.0, 20.0], 2, "+12.35", "[1.00, 20.00]"),
        (0.012, None, 1, "+0.012", ""),
        (1e-12, [0.0, 1e-12], 2, "+0.00", "[0.00, 0.00]"),
        (0.0, [0.0, 0.0], 2, "+0.00", "[0.00, 0.00]"),
    ],
)
def test_differences_keep_two_digits(diff, ci, decimals, text, interval):
    cell = difference({"diff": diff, "ci": ci, "status": "ok"}, decimals)
    assert (cell.text, cell.interval) == (text, interval)


def test_probabilities():
    assert [probability(p) for p in (None, 0.0002, 0.001, 0.04999, 1.0)] == ["n/a", "<0.001", "0.001", "0.050", "1.000"]
