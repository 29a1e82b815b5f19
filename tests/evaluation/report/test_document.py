"""What a report says, and in which order."""

from __future__ import annotations

import pytest
from evaluation_report import LABEL, hostile_report
from evaluation_rows import COLUMNS, INFOS, RUN, column_rows, plausible_values

from phys_pipeline.evaluation.report.build import build_report
from phys_pipeline.evaluation.report.document import HOW_TO_READ, Alert, Heading, alerts, document
from phys_pipeline.evaluation.report.tables import Entry, Table


def named(blocks, title: str) -> Table:
    (table,) = [block for block in blocks if isinstance(block, Table) and block.title.startswith(title)]
    return table


def test_alerts_name_the_column_and_the_gameable_metrics_but_no_control():
    red, games = alerts(hostile_report())
    assert red.text.startswith(f"{LABEL}: temporal gains are not separable")
    assert games.text.startswith("Gameable here") and "Warping error (frozen)" in games.text


def test_sections_in_order_and_how_to_read_is_there():
    blocks = document(hostile_report())
    headings = [block.text for block in blocks if isinstance(block, Heading)]
    assert headings == ["Values", "How to read", "Differences", "Guards", "Controls", "Strata", "Columns", "Left out"]
    assert all(line in blocks for line in HOW_TO_READ)
    assert all(isinstance(block, Alert) for block in blocks[1:3])


def test_marks_are_explained_where_they_are_used():
    notes = [block for block in document(hostile_report()) if isinstance(block, str) and block[0] in "†‡*"]
    assert len(notes) == 2 and "† a stand-in" in notes[0] and "‡ moves less" in notes[0] and "* fewer than 100" in notes[0]
    rows = column_rows("baseline", {"flow_score": [1.0] * 100}) + column_rows("ours", {"flow_score": [1.0] * 100})
    plain = document(build_report(rows, INFOS, COLUMNS, RUN))
    assert not [block for block in plain if isinstance(block, str) and block[0] in "†‡*"]


def test_guards_show_every_check_and_its_verdict():
    report = hostile_report()
    rows = {row[0]: row for row in named(document(report), "How much each column moves").rows}
    check = report["guards"]["ours"]["checks"]["flow_score"]
    assert float(rows[LABEL][2].text) == pytest.approx(check["value"], abs=0.0051)
    assert rows[LABEL][-1] == rows["frozen"][-1] == Entry("red", bold=True)


def test_flow_bins_and_controls_are_tables_of_their_own():
    blocks = document(hostile_report())
    assert len(named(blocks, "Warping error of clips that move alike").rows) == 5
    controls = named(blocks, "Controls against Hunyuan-Baseline")
    assert {row[0]: row[-1] for row in controls.rows}["Warping error"] == "gameable"
    assert controls.rows[1][1].note in ("prefers", "rejects", "blind")


def test_failures_are_listed_with_their_reason():
    left_out = named(document(hostile_report()), "What has no value")
    (line,) = left_out.rows
    assert "onerror" in line[0] and line[1:] == ("failed", "1", "Plausibility", "Hunyuan-Baseline", "baseline/p002#0")


def test_equal_reasons_share_a_line():
    skipped = {"plausibility": [0.5, 0.5], "flow_score": [None, None], "clip_temporal": [None, None]}
    report = build_report(column_rows("baseline", skipped) + column_rows("ours", skipped), INFOS, COLUMNS, RUN)
    (line,) = named(document(report), "What has no value").rows
    assert line == ("nothing moves", "skipped", "8", "Clip temporal, Flow score", "all", "baseline/p000#0")


def test_the_same_file_in_two_columns_is_an_alert():
    rows = column_rows("baseline", {"flow_score": [1.0]}, digest="f00") + column_rows("ours", {"flow_score": [1.0]}, digest="f00")
    texts = [alert.text for alert in alerts(build_report(rows, INFOS, COLUMNS, RUN))]
    assert texts == ["The same file: baseline and ours show the same video for 1 prompts, for example p000."]


def test_a_single_column_needs_no_comparison():
    report = build_report(column_rows("baseline", plausible_values(3)), INFOS, COLUMNS[:1], RUN)
    headings = [block.text for block in document(report) if isinstance(block, Heading)]
    assert headings == ["Values", "How to read", "Columns"]


def test_an_allowed_mismatch_is_an_alert():
    rows = column_rows("baseline", {"flow_score": [1.0]}) + column_rows("ours", {"flow_score": [1.0]}, fps=24.0)
    blocks = document(build_report(rows, INFOS, COLUMNS, RUN, allow_mismatch=True))
    assert next(block.text for block in blocks if isinstance(block, Alert)).startswith("Not alike: baseline and ours differ")
