"""Motion scores of many clips: processes that may die, a record that survives, one table at the end."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

import numpy as np

from phys_pipeline.errors import DataError, PhysPipelineError
from phys_pipeline.media.cuts import has_cut
from phys_pipeline.tables import Row, check_suffix, read_table, write_table
from training.pool import Engine, Failure, Job, in_processes
from training.sources import Entry

log = logging.getLogger(__name__)

RowKey: TypeAlias = tuple[str, int, int, str]  # name, bytes, date in nanoseconds, preset

LOSSES = ("composite", "translation", "rotation", "scaling")
COLUMNS = (
    "video", "caption", "frames", "fps", "width", "height", "seconds", *LOSSES, "dominant", "confidence", "dynamic_degree",
    "is_static", "velocity_x_percent_per_s", "velocity_y_percent_per_s", "rotation_deg_per_s", "zoom_percent_per_s", "has_cut",
    "error", "preset", "bytes", "modified_ns",
)  # fmt: skip
BOOKKEEPING = ("error", "preset", "bytes", "modified_ns")  # columns that say nothing about the clip


def score_clip(path: Path, preset: str) -> Row:
    """The measured columns of one clip; only `error` when it can't be scored."""
    from phys_pipeline.scoring import score_file

    try:
        report = score_file(path, preset=preset).to_dict()  # type: ignore[arg-type]
        cut = has_cut(path)
    except PhysPipelineError as error:
        return {"error": str(error)}
    velocity = report["velocity"]
    return {
        **{name: report[name] for name in ("frames", "fps", "width", "height", "dominant", "confidence", "dynamic_degree")},
        **{name: report["loss"][name] for name in LOSSES},
        "is_static": report["is_static"],
        "seconds": report["duration_s"],
        "velocity_x_percent_per_s": velocity["x_percent_per_s"],
        "velocity_y_percent_per_s": velocity["y_percent_per_s"],
        "rotation_deg_per_s": report["rotation_deg_per_s"],
        "zoom_percent_per_s": report["zoom_percent_per_s"],
        "has_cut": cut,
    }


def score_entries(
    entries: Sequence[Entry],
    output: str | Path,
    *,
    workers: int = 1,
    preset: str = "calibrated",
    progress: Callable[[int, int], None] = lambda done, total: None,
    score: Callable[[Path, str], Row] = score_clip,
    engine: Engine = in_processes,
) -> list[Row]:
    """Score every clip into the table `output`, in the order of `entries`; returns its rows.

    Every finished clip is a line of `output`.partial.jsonl at once, so a killed run goes on where it was; rows of an older
    `output` are kept for clips that did not change. A clip that can't be read, or whose process dies twice, has a row with
    `error`. `engine` runs the scoring, by default in processes of this machine. Raises DataError without clips and ConfigError
    for a suffix that can't be written.
    """
    output = Path(output)
    check_suffix(output)
    if not entries:
        raise DataError("no clip to score")
    of_job = {_key(entry, preset): entry for entry in {entry.name: entry for entry in entries}.values()}
    record = output.with_name(f"{output.name}.partial.jsonl")
    done = {_row_key(row): row for row in _earlier(output, record)}
    todo = [Job(key, (entry.path, preset)) for key, entry in of_job.items() if key not in done]
    before = len(of_job) - len(todo)
    log.info("%d clips, %d scored before, %d to score", len(of_job), before, len(todo))
    record.parent.mkdir(parents=True, exist_ok=True)
    with record.open("a", encoding="utf-8") as stream, _unless_empty(record):
        for count, (job, result) in enumerate(engine(todo, workers, score), before + 1):
            measured = {"error": result.reason} if isinstance(result, Failure) else result
            name, size, modified_ns, _ = job.key
            row = {"video": name, "caption": of_job[job.key].caption, **measured, "preset": preset}
            row |= {"bytes": size, "modified_ns": modified_ns}
            done[job.key] = row
            stream.write(json.dumps(row, ensure_ascii=False) + "\n")
            stream.flush()
            progress(count, len(of_job))
    rows = [{**dict.fromkeys(COLUMNS), **done[key], "caption": entry.caption} for key, entry in of_job.items()]
    write_table(output, rows, COLUMNS)
    record.unlink(missing_ok=True)
    return rows


@contextmanager
def _unless_empty(record: Path) -> Iterator[None]:
    """Leave no record of a run that ended before its first clip."""
    try:
        yield
    finally:
        if record.stat().st_size == 0:
            record.unlink()


def _key(entry: Entry, preset: str) -> RowKey:
    """What tells whether an old row is still the clip's: name, bytes, date and preset."""
    try:
        status = entry.path.stat()
    except OSError:
        return entry.name, 0, 0, preset  # scoring says that it is missing
    return entry.name, status.st_size, status.st_mtime_ns, preset


def _row_key(row: Row) -> RowKey:
    return str(row.get("video")), int(row.get("bytes") or 0), int(row.get("modified_ns") or 0), str(row.get("preset"))


def _earlier(output: Path, record: Path) -> Iterator[Row]:
    """Rows of an older table and of an interrupted run; a line that was cut off by the end of its run is removed."""
    if output.is_file():
        yield from read_table(output)
    if not record.is_file():
        return
    lines = record.read_bytes().splitlines(keepends=True)
    whole = [line for line in lines if line.endswith(b"\n")]
    if len(whole) < len(lines):
        os.truncate(record, sum(map(len, whole)))
    yield from (json.loads(line) for line in whole)


def summary(rows: Iterable[Row]) -> str:
    """One line: how many clips were scored, how many were not, and the median loss."""
    rows = list(rows)
    losses = [float(row["composite"]) for row in rows if row.get("composite") not in (None, "")]
    middle = f"; median composite loss {np.median(losses):.3f}" if losses else ""
    return f"{len(losses)} clips scored, {len(rows) - len(losses)} could not be{middle}"
