"""Drawings are well-formed and show every column that has a value at its place."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from evaluation_report import LABEL, hostile_report
from evaluation_rows import RUN, column_rows, info

from phys_pipeline.evaluation.report.build import build_report
from phys_pipeline.evaluation.report.columns import Column
from phys_pipeline.evaluation.report.strips import strip


def test_hostile_labels_are_text():
    drawing = ElementTree.fromstring(strip(hostile_report(), "clip_temporal", ["baseline", "ours"]))
    assert [title.text.partition(":")[0] for title in drawing.iter("title")] == ["Hunyuan-Baseline", LABEL]


def test_places_on_the_axis():
    values = {"a": [1.0, 3.0], "b": [5.0, 5.0], "c": [None, None], "d": [None, 1.0]}
    rows = [r for column, numbers in values.items() for r in column_rows(column, {"x": numbers, "y": [1.0, 1.0]})]
    report = build_report(rows, (info("x"), info("y")), [Column(key) for key in values], RUN)
    drawing = ElementTree.fromstring(strip(report, "x", list(values)))
    groups = {group.get("class"): group for group in drawing.iter("g")}
    assert set(groups) == {"c0", "c1", "c3"}
    at = {name: float(group.find("circle").get("cx")) for name, group in groups.items()}
    assert at["c3"] == 6.0 and at["c1"] == 164.0 and at["c0"] == pytest.approx(6 + 158 / 4, abs=0.1)
    assert groups["c3"].find("line") is None and float(groups["c0"].find("line").get("x1")) == 6.0
    assert [text.text for text in drawing.iter("text")] == ["1.00", "5.00"]
    same = ElementTree.fromstring(strip(report, "y", list(values)))
    assert [text.text for text in same.iter("text")] == ["1.00"]
