"""`report.html`: one file with everything in it: tables, drawings, clips side by side in step, a sortable table of clips."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any

from phys_pipeline.evaluation.report.document import Alert, Block, Heading
from phys_pipeline.evaluation.report.strips import strip
from phys_pipeline.evaluation.report.tables import ARROWS, GUARD, Entry, Table
from phys_pipeline.evaluation.report.videos import Sources


def html_text(report: Mapping[str, Any], blocks: Sequence[Block], clips: Sources) -> str:
    """The page. ``clips`` are the videos that it can show."""
    parts = files(__package__)
    style, script = (parts.joinpath(name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    columns = [column["key"] for column in report["columns"] if column["role"] != "control"]
    alerts = "".join(
        f'<p class="{"red" if block.red else "careful"}">{escape(block.text)}</p>' for block in blocks if isinstance(block, Alert)
    )
    first = next(index for index, block in enumerate(blocks) if isinstance(block, Heading))
    body = [
        f"<header><h1>Evaluation</h1>{_blocks([b for b in blocks[:first] if not isinstance(b, Alert)])}</header>",
        f'<section class="alert" role="alert"><h2>Before you read a gain</h2>{alerts}</section>' if alerts else "",
        _glance(report, columns),
        _viewer() if clips else "",
        _blocks(blocks[first:]),
        _clip_table(),
        f'<script type="application/json" id="data">{_json(_data(report, clips))}</script>',
        f"<script>{script}</script>",
    ]
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Evaluation</title>'
    main = "\n".join(filter(None, body))
    head += f"<style>{style}</style>"
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body><main>\n{main}\n</main></body></html>\n'


def _blocks(blocks: Sequence[Block]) -> str:
    """Sections under their headings."""
    parts = []
    for block in blocks:
        if isinstance(block, Heading):
            parts.append(f"<h2>{escape(block.text)}</h2>")
        elif isinstance(block, Table):
            parts.append(_table(block))
        elif not isinstance(block, Alert):
            parts.append(f"<p>{escape(block)}</p>")
    return "\n".join(parts)


def _table(table: Table) -> str:
    head = "".join(f'<th scope="col">{_cell(cell)}</th>' for cell in table.header)
    rows = []
    for index, row in enumerate(table.rows):
        rule = ' class="rule"' if index in table.groups else ""
        cells = f'<th scope="row">{_cell(row[0])}</th>' + "".join(f"<td>{_cell(cell)}</td>" for cell in row[1:])
        rows.append(f"<tr{rule}>{cells}</tr>")
    words = "" if any(isinstance(cell, Entry) for row in table.rows for cell in row) else ' class="words"'
    return (
        f'<div class="scroll"><table{words}><caption>{escape(table.title)}</caption><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _cell(cell: Entry | str) -> str:
    if isinstance(cell, str):
        return escape(cell)
    text = f"<strong>{escape(cell.text)}</strong>" if cell.bold else escape(cell.text)
    marks = f"<sup>{escape(cell.marks)}</sup>" if cell.marks else ""
    interval = f' <span class="interval">{escape(cell.interval)}</span>' if cell.interval else ""
    note = f' <span class="note {escape(cell.note)}">{escape(cell.note)}</span>' if cell.note else ""
    return text + marks + interval + note


def _glance(report: Mapping[str, Any], columns: list[str]) -> str:
    """A card with a drawing for every metric that some column has."""
    labels = {column["key"]: column["label"] for column in report["columns"]}
    red = {key for key, guard in report["guards"].items() if guard["red"]}
    legend = "".join(
        f'<li class="c{index % 6}">{escape(labels[key])}{GUARD if key in red else ""}</li>' for index, key in enumerate(columns)
    )
    cards = []
    for key, info in report["metrics"].items():
        if any(report["values"][column][key]["n"] for column in columns):
            name, drawing = f"{escape(info['label'])} {ARROWS[info['direction']]}", strip(report, key, columns)
            cards.append(f'<figure title="{escape(info["about"])}"><figcaption>{name}</figcaption>{drawing}</figure>')
    heading = f'<h2>At a glance</h2><ul class="legend">{legend}</ul>'
    return f'<section>{heading}<div class="cards">{"".join(cards)}</div></section>'


def _viewer() -> str:
    return (
        '<section id="viewer"><h2>Clips side by side</h2><noscript>Needs JavaScript.</noscript><p id="prompt"></p>'
        '<div id="videos"></div><div class="controls"><button id="previous" title="Left arrow">Previous</button>'
        '<button id="play" title="Space">Pause</button><button id="next" title="Right arrow">Next</button>'
        '<input id="time" type="range" min="0" max="1000" value="0" aria-label="Time">'
        '<label>speed <select id="speed"><option value="1">1</option><option value="0.5">1/2</option>'
        '<option value="0.25">1/4</option></select></label><label>clip <select id="clip"></select></label></div></section>'
    )


def _clip_table() -> str:
    return (
        '<section id="clips"><h2>Every clip</h2><p>Choose a metric; click a heading to sort, a row to see its clips.</p>'
        '<label>metric <select id="metric"></select></label><div class="scroll tall"><table id="rows"><thead></thead>'
        "<tbody></tbody></table></div></section>"
    )


def _data(report: Mapping[str, Any], clips: Sources) -> dict[str, Any]:
    """What the script needs; values and videos are lists in the order of ``clips``."""
    places = [(clip["id"], clip["seed"]) for clip in report["clips"]]
    values: dict[str, dict[str, list[float | None]]] = {}
    for column, metrics in report["per_video"].items():
        found = {key: {(row["id"], row["seed"]): row["value"] for row in rows if row["used"]} for key, rows in metrics.items()}
        values[column] = {key: [row.get(place) for place in places] for key, row in found.items() if row}
    metrics = report["metrics"]
    return {
        "columns": [{"key": column["key"], "label": column["label"]} for column in report["columns"]],
        "metrics": [{"key": key, "label": metrics[key]["label"], "decimals": metrics[key]["decimals"]} for key in metrics],
        "clips": report["clips"],
        "values": values,
        "videos": {column: [found.get(place) for place in places] for column, found in clips.items()},
    }


def _json(value: Any) -> str:
    """JSON that can't end the script element that holds it."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
