"""`report.tex`: the tables for a paper. Needs the package booktabs; include the file with \\input."""

from __future__ import annotations

from collections.abc import Sequence

from phys_pipeline.evaluation.report.document import Alert, Block
from phys_pipeline.evaluation.report.tables import FEW, GUARD, STANDIN, Entry, Table

_ESCAPES = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "%": r"\%", "_": r"\_",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}",
    "↑": r"$\uparrow$", "↓": r"$\downarrow$", STANDIN: r"\dag{}", GUARD: r"\ddag{}", "°": r"\textdegree{}",
}  # fmt: skip
_MARKS = {STANDIN: r"\dag", GUARD: r"\ddag", FEW: "*"}


def latex_text(blocks: Sequence[Block]) -> str:
    """Every table of the document; alerts stay with the first table's caption and in comments, the text is left out."""
    warnings = [block.text for block in blocks if isinstance(block, Alert)]
    notes = [block for block in blocks if isinstance(block, str) and block[:1] in (STANDIN, GUARD, FEW)]
    lines = ["% \\usepackage{booktabs}", *(f"% {' '.join(text.split())}" for text in warnings)]
    for block in blocks:
        if isinstance(block, Table):
            lines += ["", *_table(block, [*warnings, *notes[:1]])]
    return "\n".join(lines) + "\n"


def escape(text: str) -> str:
    """Text without LaTeX's special characters, on one line."""
    return "".join(_ESCAPES.get(character, character) for character in " ".join(text.split()))


def _table(table: Table, remarks: Sequence[str]) -> list[str]:
    caption = " ".join(escape(text) for text in (table.title + ".", *remarks))
    lines = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{caption}}}",
        rf"\begin{{tabular}}{{l{'c' * (len(table.header) - 1)}}}",
    ]
    lines += [r"\toprule", _row(table.header), r"\midrule"]
    for index, row in enumerate(table.rows):
        if index in table.groups:
            lines.append(r"\midrule")
        lines.append(_row(row))
    return [*lines, r"\bottomrule", r"\end{tabular}", r"\end{table}"]


def _row(cells: Sequence[Entry | str]) -> str:
    text = " & ".join(_cell(cell) for cell in cells)
    guard = "{}" if text[:1] in ("[", "*") else ""  # the end of the row before would take these as its own
    return guard + text + r" \\"


def _cell(cell: Entry | str) -> str:
    if isinstance(cell, str):
        return escape(cell)
    text = rf"\textbf{{{escape(cell.text)}}}" if cell.bold else escape(cell.text)
    marks = "".join(_MARKS[mark] for mark in cell.marks)
    text += rf"$^{{{marks}}}$" if marks else ""
    interval = rf"{{\scriptsize {escape(cell.interval)}}}" if cell.interval else ""
    return " ".join(part for part in (text, interval, escape(cell.note)) if part)
