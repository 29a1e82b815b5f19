"""All files of a report."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from phys_pipeline.atomic import atomic_file
from phys_pipeline.errors import DataError
from phys_pipeline.evaluation.metric import MetricInfo
from phys_pipeline.evaluation.report.build import build_report
from phys_pipeline.evaluation.report.columns import Column
from phys_pipeline.evaluation.report.csv import csv_text
from phys_pipeline.evaluation.report.document import document
from phys_pipeline.evaluation.report.html import html_text
from phys_pipeline.evaluation.report.latex import latex_text
from phys_pipeline.evaluation.report.markdown import markdown_text
from phys_pipeline.evaluation.report.videos import EMBED_LIMIT, sources
from phys_pipeline.evaluation.rows import Row


def write_report(
    rows: Sequence[Row],
    infos: Sequence[MetricInfo],
    columns: Sequence[Column],
    run: Mapping[str, Any],
    folder: str | os.PathLike[str],
    *,
    videos: Mapping[str, Path] | None = None,
    tables: Sequence[str] = (),
    allow_mismatch: bool = False,
    embed_limit: int = EMBED_LIMIT,
) -> dict[str, Any]:
    """Write `report.json`, `.csv`, `.md`, `.tex` and `.html` into ``folder`` and return the report.

    Nothing is written before everything is made; each file appears whole.

    Args:
        run: of :func:`~phys_pipeline.evaluation.report.run.describe_run`.
        videos: the file of each sample, by ``VideoSample.name``, for the page.
        tables: layouts of the paper's tables ("T1a", "T1b", "T2", "T3", "T4"), filled by the columns' roles.
        allow_mismatch: report columns whose clips differ in size, rate or length, with a warning.
        embed_limit: bytes of video inside the page; more is linked.

    Raises:
        ConfigError, DataError: as :func:`~phys_pipeline.evaluation.report.build.build_report`; a table whose role no column has;
            a video that can't be read; a folder that can't be written.
    """
    target = Path(folder)
    report = build_report(rows, infos, columns, run, allow_mismatch=allow_mismatch)
    blocks = document(report, tables)
    texts = {
        "report.csv": csv_text(report),
        "report.md": markdown_text(blocks),
        "report.tex": latex_text(blocks),
        "report.html": html_text(report, blocks, sources(rows, videos or {}, target, embed_limit)),
        "report.json": json.dumps(report, indent=1, ensure_ascii=False, allow_nan=False) + "\n",
    }
    try:
        for name, text in texts.items():
            with atomic_file(target / name) as temporary:
                temporary.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise DataError(f"{target} can't be written to: {error.strerror}") from None
    return report
