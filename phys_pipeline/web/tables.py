"""Measurements as HTML: everything that is not ours is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

_ARROWS = {"up": "higher is better", "down": "lower is better", "neutral": "neither"}
_LOSSES = (
    ("composite", "Motion loss"), ("translation", "Translation loss"), ("rotation", "Rotation loss"), ("scaling", "Scaling loss"),
    ("pace", "Pace"), ("coherence", "Coherence"),
)  # fmt: skip


def html_table(caption: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of texts; the first cell of a row is its heading."""
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in header)
    body = "".join(
        f'<tr><th scope="row">{escape(row[0])}</th>' + "".join(f"<td>{escape(cell)}</td>" for cell in row[1:]) + "</tr>"
        for row in rows
    )
    return (
        f'<div class="table-scroll" tabindex="0" role="group" aria-label="{escape(caption)}"><table><caption>{escape(caption)}'
        f"</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def warnings_html(texts: Iterable[str]) -> str:
    """Warnings that stay on the page."""
    return "".join(f'<p class="warning">{escape(text)}</p>' for text in texts)


def report_table(reports: Mapping[str, Mapping[str, Any]]) -> str:
    """Motion reports side by side, in the order given."""
    rows = [[label, *(f"{report['loss'][key]:.3f}" for report in reports.values())] for key, label in _LOSSES]
    numbers = (
        ("Dynamic degree", lambda r: f"{r['dynamic_degree']:.3f}"),
        ("Velocity x, % of the width/s", lambda r: f"{r['velocity']['x_percent_per_s']:+.1f}"),
        ("Velocity y, % of the width/s", lambda r: f"{r['velocity']['y_percent_per_s']:+.1f}"),
        ("Rotation, degrees/s", lambda r: f"{r['rotation_deg_per_s']:+.1f}"),
        ("Zoom, %/s", lambda r: f"{r['zoom_percent_per_s']:+.1f}"),
        ("Dominant motion", lambda r: str(r["dominant"])),
        ("Confidence", lambda r: f"{r['confidence']:.2f}"),
    )
    rows += [[label, *(show(report) for report in reports.values())] for label, show in numbers]
    return html_table("Motion report (losses: lower is steadier, 0 is a still clip)", ["", *reports], rows)


def measured_table(measured: Mapping[str, Any], infos: Mapping[str, Any], labels: Sequence[str]) -> str:
    """Metrics without weights of two videos; ``measured`` of ``engine.measures``, ``infos`` the metrics' descriptions."""
    rows, missing = [], []
    for key, entry in measured["metrics"].items():
        info = infos[key]
        first, second = entry["values"]
        if first is None and second is None:
            missing.append(f"{info.label}: {entry['reason']}")
            continue
        better = ""
        if first is not None and second is not None and first != second and info.direction != "neutral":
            better = labels[int((second > first) == (info.direction == "up"))]
        shown = ["–" if value is None else f"{value:.{info.decimals}f}" for value in (first, second)]
        unit = f" ({info.unit})" if info.unit else ""
        rows.append([f"{info.label}{unit}", *shown, _ARROWS[info.direction], better])
    text = warnings_html(measured["warnings"])
    text += html_table("Metrics that need no weights", ["", *labels, "direction", "better"], rows)
    if missing:
        text += f"<p>Without a value: {escape('; '.join(missing))}.</p>"
    return text
