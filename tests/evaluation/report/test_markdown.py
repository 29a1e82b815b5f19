"""Markdown: the numbers of the report, the red line, and texts that stay texts."""

from __future__ import annotations

import re

import pytest
from evaluation_report import hostile_report

from phys_pipeline.evaluation.guards import RED_LINE
from phys_pipeline.evaluation.report.document import document
from phys_pipeline.evaluation.report.markdown import escape, markdown_text, table_text
from phys_pipeline.evaluation.report.tables import Entry, Table


def test_cells():
    table = Table("t", ("metric", Entry("a|b", marks="‡")), (("x", Entry("1.0", "[0, 2]", True, "†", "prefers")),))
    assert table_text(table) == "| metric | a\\|b‡ |\n| --- | --- |\n| x | **1.0**† \\[0, 2\\] prefers |"


def test_texts_stay_texts():
    assert escape("a\nb  c") == "a b c"
    assert escape("<script>&`*_[x](y)|#~\\") == "&lt;script&gt;&amp;\\`\\*\\_\\[x\\](y)\\|\\#\\~\\\\"


def test_every_table_row_has_as_many_cells_as_its_header():
    text = markdown_text(document(hostile_report()))
    assert "<b>" not in text and "<img" not in text
    for block in text.split("\n\n"):
        lines = [line for line in block.splitlines() if line.startswith("| ")]
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in lines}) <= 1


def test_the_red_line_comes_before_the_first_value():
    text = markdown_text(document(hostile_report()))
    assert text.index(RED_LINE) < text.index("## Values") and text.index("Gameable") < text.index("## Values")


def test_numbers_are_those_of_the_report():
    report, text = hostile_report(), markdown_text(document(hostile_report()))
    means = text[text.index("**Means**") : text.index("## How to read")]
    found = {}
    for line in means.splitlines()[4:]:
        if line.startswith("| "):
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            found[cells[0].replace("\\*", "").rstrip(" ↑↓")] = cells[1:]
    for info in report["metrics"].values():
        for column, cell in zip(("baseline", "ours"), found[info["label"]][:2], strict=True):
            numbers = [float(n) for n in re.findall(r"-?\d+\.\d+", cell)]
            value = report["values"][column][info["key"]]
            assert numbers == pytest.approx([value["mean"], *value["ci"]], abs=0.51 * 10 ** -info["decimals"])
            assert ("†" in cell) is (info["key"] == "warping_error")


def test_every_cell_of_every_table_is_printed_in_its_place():
    blocks = document(hostile_report())
    text = markdown_text(blocks)
    for table in (block for block in blocks if isinstance(block, Table)):
        assert table_text(table) in text
        for row, line in zip(table.rows, table_text(table).splitlines()[2:], strict=True):
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            for cell, shown in zip(row, cells, strict=True):
                parts = (cell.text, cell.interval, cell.note) if isinstance(cell, Entry) else (cell,)
                assert all(escape(part) in shown for part in parts)
