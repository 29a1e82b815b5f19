"""`report.md`: the document in GitHub's Markdown."""

from __future__ import annotations

import re
from collections.abc import Sequence

from phys_pipeline.evaluation.report.document import Alert, Block, Heading
from phys_pipeline.evaluation.report.tables import Entry, Table


def markdown_text(blocks: Sequence[Block]) -> str:
    """The whole document."""
    parts = ["# Evaluation"]
    for block in blocks:
        if isinstance(block, Heading):
            parts.append(f"## {escape(block.text)}")
        elif isinstance(block, Alert):
            parts.append(f"> **\N{LARGE RED CIRCLE} {escape(block.text)}**")
        elif isinstance(block, Table):
            parts.append(f"**{escape(block.title)}**\n\n{table_text(block)}")
        else:
            parts.append(escape(block))
    return "\n\n".join(parts) + "\n"


def table_text(table: Table) -> str:
    """A pipe table; lines between groups have no form in Markdown."""
    lines = [table.header, ("---",) * len(table.header), *table.rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in row) + " |" for row in lines)


def escape(text: str) -> str:
    """Text that Markdown and the HTML in it leave alone."""
    flat = " ".join(text.split())
    return re.sub(r"([\\`*_\[\]|#~])", r"\\\1", flat).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _cell(cell: Entry | str) -> str:
    if isinstance(cell, str):
        return cell if cell == "---" else escape(cell)
    text = f"**{escape(cell.text)}**" if cell.bold else escape(cell.text)
    return " ".join(part for part in (text + escape(cell.marks), escape(cell.interval), escape(cell.note)) if part)
