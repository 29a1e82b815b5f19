"""`report.csv`: one line for each clip and metric, for spreadsheets and data frames."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from typing import Any

FIELDS = (
    "column", "metric", "stratum", "motion", "video_id", "seed", "value", "status", "used", "protocol", "backend", "reason",
    "prompt",
)  # fmt: skip


def csv_text(report: Mapping[str, Any]) -> str:
    """The long format. Values are printed so that reading them back gives the same number."""
    clips = {(clip["id"], clip["seed"]): clip for clip in report["clips"]}
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(FIELDS)
    for column, metrics in report["per_video"].items():
        for metric, rows in metrics.items():
            backend = report["values"][column][metric]["backend"]
            for row in rows:
                clip = clips[row["id"], row["seed"]]
                labels = clip["labels"]
                value = "" if row["value"] is None else repr(row["value"])
                seed = "" if row["seed"] is None else str(row["seed"])
                writer.writerow([
                    *map(plain, (column, metric, labels.get("stratum", ""), labels.get("motion", ""), row["id"])),
                    seed, value, row["status"], "yes" if row["used"] else "no", report["run"]["protocol"],
                    *map(plain, (backend if row["used"] else "", row.get("reason", ""), clip["prompt"])),
                ])  # fmt: skip
    return out.getvalue()


def plain(text: str) -> str:
    """Text that a spreadsheet does not take for a formula: an apostrophe before =, +, -, @, tab and line breaks."""
    return f"'{text}" if text.lstrip(" ")[:1] in ("=", "+", "-", "@", "\t", "\r", "\n") and text.strip(" ") else text
