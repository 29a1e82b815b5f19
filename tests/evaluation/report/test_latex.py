"""LaTeX: tables that close what they open, with the red line in their captions and the numbers of the report."""

from __future__ import annotations

import re

import pytest
from evaluation_report import hostile_report

from phys_pipeline.evaluation.guards import RED_LINE
from phys_pipeline.evaluation.report.document import document
from phys_pipeline.evaluation.report.latex import escape, latex_text
from phys_pipeline.evaluation.report.tables import Entry, Table


def tables(text: str) -> list[str]:
    return re.findall(r"\\begin{table}.*?\\end{table}", text, re.S)


def test_special_characters():
    assert escape("50% & $x_1^2$ #{~}\\<|>") == (
        r"50\% \& \$x\_1\textasciicircum{}2\$ \#\{\textasciitilde{}\}\textbackslash{}\textless{}\textbar{}\textgreater{}"
    )
    assert escape("a\n% b") == r"a \% b"


def test_cells_and_lines_between_groups():
    table = Table("T", ("m", Entry("A", marks="‡")), (("x ↑", Entry("1", "[0, 2]", True, "†")), ("[y]", "2")), (1,))
    text = latex_text([table])
    assert "m & A$^{\\ddag}$ \\\\" in text
    assert "x $\\uparrow$ & \\textbf{1}$^{\\dag}$ {\\scriptsize [0, 2]} \\\\\n\\midrule\n{}[y] & 2 \\\\" in text


def test_every_table_is_closed_and_every_row_has_its_cells():
    text = latex_text(document(hostile_report()))
    assert len(tables(text)) == text.count(r"\begin{table}") == text.count(r"\begin{tabular}") > 5
    plain = re.sub(r"\\[{}]", "", text)
    depth = 0
    for character in plain:
        depth += (character == "{") - (character == "}")
        assert depth >= 0
    assert depth == 0
    for table in tables(text):
        places = re.search(r"\\begin{tabular}{(l?c*)}", table)
        rows = [line for line in table.splitlines() if line.endswith(r"\\")]
        assert places and rows
        assert {len(re.findall(r"(?<!\\)&", row)) + 1 for row in rows} == {len(places[1])}
        assert not re.search(r"(?<!\\)[%#]", table)


def test_the_red_line_is_in_every_caption():
    for table in tables(latex_text(document(hostile_report()))):
        assert RED_LINE in table


def test_numbers_are_those_of_the_report():
    report = hostile_report()
    (means,) = [table for table in tables(latex_text(document(report))) if r"\caption{Means." in table]
    for info in report["metrics"].values():
        (row,) = [line for line in means.splitlines() if line.startswith(info["label"])]
        for column, cell in zip(("baseline", "ours"), row.split(" & ")[1:3], strict=True):
            numbers = [float(n) for n in re.findall(r"-?\d+\.\d+", cell)]
            value = report["values"][column][info["key"]]
            assert numbers == pytest.approx([value["mean"], *value["ci"]], abs=0.51 * 10 ** -info["decimals"])


def test_every_cell_of_every_table_is_printed_in_its_place():
    blocks = [block for block in document(hostile_report()) if isinstance(block, Table)]
    for block, table in zip(blocks, tables(latex_text(document(hostile_report()))), strict=True):
        lines = [line for line in table.splitlines() if line.endswith(r"\\")][1:]
        for row, line in zip(block.rows, lines, strict=True):
            for cell, shown in zip(row, re.split(r" (?<!\\)& ", line), strict=True):
                parts = (cell.text, cell.interval, cell.note) if isinstance(cell, Entry) else (cell,)
                assert all(escape(part) in shown for part in parts)
