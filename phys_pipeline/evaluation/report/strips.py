"""Means with their intervals as small drawings (SVG), one for each metric."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

_WIDTH, _STEP, _EDGE, _AXIS = 240.0, 16.0, 8.0, 12.0


def strip(report: Mapping[str, Any], metric: str, columns: Sequence[str]) -> str:
    """A dot and a line for each column that has a value, on one axis; colours are classes "c0", "c1", ... in their order."""
    labels = {column["key"]: column["label"] for column in report["columns"]}
    info, cells = report["metrics"][metric], [report["values"][key][metric] for key in columns]
    ends = [end for cell in cells if cell["mean"] is not None for end in (cell["mean"], *(cell["ci"] or ()))]
    low, high = min(ends), max(ends)

    def place(value: float) -> str:
        return f"{_EDGE + (value - low) / ((high - low) or 1.0) * (_WIDTH - 2 * _EDGE):.1f}"

    height = _STEP * len(columns) + _EDGE + _AXIS
    parts = [f'<svg viewBox="0 0 {_WIDTH:g} {height:g}" role="img" aria-label="{escape(info["label"])}">']
    for index, (key, cell) in enumerate(zip(columns, cells, strict=True)):
        if cell["mean"] is None:
            continue
        y = f"{_STEP * (index + 0.5) + _EDGE / 2:g}"
        text = f"{labels[key]}: {cell['mean']:.{info['decimals']}f}, n = {cell['n']}"
        parts.append(f'<g class="c{index % 6}"><title>{escape(text)}</title>')
        if cell["ci"]:
            parts.append(f'<line x1="{place(cell["ci"][0])}" x2="{place(cell["ci"][1])}" y1="{y}" y2="{y}"/>')
        parts.append(f'<circle cx="{place(cell["mean"])}" cy="{y}" r="4.5"/></g>')
    for value, x, anchor in ((low, _EDGE, "start"), (high, _WIDTH - _EDGE, "end"))[: 1 + (high > low)]:
        text = f"{value:.{info['decimals']}f}"
        parts.append(f'<text x="{x:g}" y="{height - 3:g}" text-anchor="{anchor}">{text}</text>')
    return "".join([*parts, "</svg>"])
