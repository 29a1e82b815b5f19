"""A report with everything in it, hostile texts included, for the tests of what prints it."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

from evaluation_rows import COLUMNS, INFOS, RUN, column_rows, plausible_values

from phys_pipeline.evaluation.report.build import build_report
from phys_pipeline.evaluation.report.columns import Column
from phys_pipeline.evaluation.rows import Row

HOSTILE = (
    '=HYPERLINK("http://x","y")', "</script><script>alert(1)</script>", r"50% of \input{x} & $y_1^2$ #1 {~}", "+1|2|`3` *4* _5_",
    "@SUM(1)", "-2+3", "kühl — 猫が跳ぶ 🎈", '"quoted", with a comma\nand a line',
)  # fmt: skip
LABEL = '<b>"ours" | $x_1$ & 100% [0]</b>'


def hostile_rows() -> list[Row]:
    """Two columns and a frozen control; ``ours`` stands almost still; every hostile text is a prompt."""
    rows = column_rows("baseline", plausible_values(8), lambda i: {"stratum": "simple" if i else "complex"})
    rows += column_rows("ours", plausible_values(8, 0.1), lambda i: {"stratum": "simple" if i else "complex"})
    rows += column_rows("control:frozen", plausible_values(8, 0.0))
    rows = [replace(r, prompt=HOSTILE[int(r.id[1:])]) for r in rows]
    rows = [replace(r, status="standin") if r.metric == "warping_error" else r for r in rows]
    rows[2] = replace(rows[2], value=None, status="failed", reason="=cmd|' /C calc'!A0 <img src=x onerror=alert(1)>")
    return rows


@lru_cache
def hostile_report() -> dict[str, Any]:
    columns = [COLUMNS[0], Column("ours", LABEL, "ours", "HunyuanVideo", loss="=1+1")]
    return build_report(hostile_rows(), INFOS, columns, {**RUN, "command": "phys-pipeline evaluate '<x>' && rm"})
