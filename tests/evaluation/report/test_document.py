"""What a report says, and in which order."""

from __future__ import annotations

import numpy as np
import pytest
from evaluation_report import LABEL, hostile_report, hostile_rows
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
    assert float(rows[LABEL][3].text) == pytest.approx(check["value"], abs=0.0051)
    assert rows[LABEL][2] == rows["frozen"][2] == Entry("red", bold=True)


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


def by_clip(column: str, metric: str) -> dict[str, float]:
    """Values of the rows themselves."""
    return {r.id: r.value for r in hostile_rows() if (r.model, r.metric) == (column, metric) and r.value is not None}


def mean_difference(first: str, second: str, metric: str) -> float:
    one, other = by_clip(first, metric), by_clip(second, metric)
    return float(np.mean([other[clip] - one[clip] for clip in one if clip in other]))


def printed(cell, value: float) -> bool:
    """Whether a cell shows a value to its last digit."""
    text = cell.text if isinstance(cell, Entry) else cell
    return abs(float(text) - value) <= 0.51 * 10.0 ** -len(text.partition(".")[2])


def test_every_number_of_every_table_is_what_the_rows_give():
    blocks, keys = document(hostile_report()), {metric.label: metric.key for metric in INFOS}
    for row in named(blocks, f"{LABEL}‡ minus").rows:
        key = keys[row[0].rstrip(" ↑↓")]
        assert printed(row[1], mean_difference("baseline", "ours", key))
        clips = by_clip("baseline", key).keys() & by_clip("ours", key).keys() & by_clip("baseline", "plausibility").keys()
        assert row[4].text == str(len(by_clip("baseline", key).keys() & by_clip("ours", key).keys()))
        beside = [by_clip("ours", "plausibility")[c] - by_clip("baseline", "plausibility")[c] for c in clips]
        assert printed(row[5], float(np.mean(beside)))
    for row, column in zip(named(blocks, "How much").rows, ("ours", "control:frozen"), strict=True):
        for cell, key in zip((row[3], row[5]), ("flow_score", "temporal_energy"), strict=True):
            assert printed(cell, sum(by_clip(column, key).values()) / sum(by_clip("baseline", key).values()))
        for cell, key in zip(row[8:10], ("dynamic_degree", "active_share"), strict=True):
            assert printed(cell, 100 * mean_difference("baseline", column, key))
    for row in named(blocks, "Controls against").rows:
        assert printed(row[1], mean_difference("baseline", "control:frozen", keys[row[0]]))
    for value in ("complex", "simple"):
        for row in named(blocks, f"Means, stratum {value}").rows:
            key = keys[row[0].text.rstrip(" ↑↓")]
            inside = {r.id for r in hostile_rows() if r.labels.get("stratum") == value}
            for cell, column in zip(row[1:3], ("baseline", "ours"), strict=True):
                assert printed(cell, float(np.mean([v for clip, v in by_clip(column, key).items() if clip in inside])))


def test_flow_bins_are_what_the_rows_give():
    *bins, last = named(document(hostile_report()), "Warping error of clips that move alike").rows
    flows = {column: by_clip(column, "flow_score") for column in ("baseline", "ours")}
    edges = np.quantile([*flows["baseline"].values(), *flows["ours"].values()], [0, 0.25, 0.5, 0.75, 1])
    for number, row in enumerate(bins):
        assert row[0] == f"{edges[number]:.2f} to {edges[number + 1]:.2f}"
        for column, mean, count in (("baseline", row[1], row[2]), ("ours", row[3], row[4])):
            place = {clip: int(np.digitize(flow, edges[1:-1])) for clip, flow in flows[column].items()}
            inside = [value for clip, value in by_clip(column, "warping_error").items() if place[clip] == number]
            assert count == str(len(inside)) and (mean == "n/a" if not inside else printed(mean, float(np.mean(inside))))
    assert last[3].text == "n/a"  # ours stands almost still: no bin has clips of both
