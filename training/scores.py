"""Motion scores of many clips: processes that may die, a record that survives, one table at the end."""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import numpy as np

from phys_pipeline.errors import DataError, PhysPipelineError
from phys_pipeline.media.cuts import has_cut
from training.sources import Entry
from training.tables import Row, check_suffix, read_table, write_table

log = logging.getLogger(__name__)

LOSSES = ("composite", "translation", "rotation", "scaling")
COLUMNS = (
    "video", "caption", "frames", "fps", "width", "height", "seconds", *LOSSES, "dominant", "confidence", "dynamic_degree",
    "is_static", "velocity_x_percent_per_s", "velocity_y_percent_per_s", "rotation_deg_per_s", "zoom_percent_per_s", "has_cut",
    "error", "preset", "bytes", "modified_ns",
)  # fmt: skip
_ATTEMPTS = 2  # a clip whose process died is tried once more, in a new process


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


@dataclass(frozen=True)
class Job:
    """One clip to score and what tells whether an old row is still its row."""

    entry: Entry
    size: int  # bytes
    modified_ns: int
    preset: str

    @property
    def key(self) -> tuple[Any, ...]:
        """Name, bytes, date and preset."""
        return self.entry.name, self.size, self.modified_ns, self.preset


def score_entries(
    entries: Sequence[Entry],
    output: str | Path,
    *,
    workers: int = 1,
    preset: str = "calibrated",
    progress: Callable[[int, int], None] = lambda done, total: None,
    score: Callable[[Path, str], Row] = score_clip,
    engine: Callable[[Sequence[Job], int, Callable[[Path, str], Row]], Iterator[tuple[Job, Row]]] | None = None,
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
    jobs = [_job(entry, preset) for entry in dict((entry.name, entry) for entry in entries).values()]
    record = output.with_name(f"{output.name}.partial.jsonl")
    done = {_row_key(row): row for row in _earlier(output, record)}
    todo = [job for job in jobs if job.key not in done]
    log.info("%d clips, %d scored before, %d to score", len(jobs), len(jobs) - len(todo), len(todo))
    record.parent.mkdir(parents=True, exist_ok=True)
    with record.open("a", encoding="utf-8") as stream, _unless_empty(record):
        for count, (job, measured) in enumerate((engine or _in_processes)(todo, workers, score), 1):
            row = {"video": job.entry.name, "caption": job.entry.caption, **measured, "preset": preset}
            row |= {"bytes": job.size, "modified_ns": job.modified_ns}
            done[job.key] = row
            stream.write(json.dumps(row, ensure_ascii=False) + "\n")
            stream.flush()
            progress(len(jobs) - len(todo) + count, len(jobs))
    rows = [{**dict.fromkeys(COLUMNS), **done[job.key], "caption": job.entry.caption} for job in jobs]
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


def _job(entry: Entry, preset: str) -> Job:
    try:
        status = entry.path.stat()
    except OSError:
        return Job(entry, 0, 0, preset)  # scoring says that it is missing
    return Job(entry, status.st_size, status.st_mtime_ns, preset)


def _row_key(row: Row) -> tuple[Any, ...]:
    return row.get("video"), int(row.get("bytes") or 0), int(row.get("modified_ns") or 0), row.get("preset")


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


@dataclass
class _Worker:
    process: Any
    pipe: Connection
    job: Job | None = None


def _in_processes(jobs: Sequence[Job], workers: int, score: Callable[[Path, str], Row]) -> Iterator[tuple[Job, Row]]:
    """Each job with its measured columns, as they are done; a process that dies is replaced, its clip tried again once."""
    waiting, deaths = list(reversed(jobs)), dict.fromkeys((job.key for job in jobs), 0)
    pool: list[_Worker] = []
    try:
        while waiting or any(worker.job for worker in pool):
            while waiting and len(pool) < workers:
                pool.append(_start(workers, score))
                _give(pool[-1], waiting.pop())
            ready = wait([worker.pipe for worker in pool if worker.job])
            for worker in [worker for worker in pool if worker.pipe in ready]:
                job = worker.job
                assert job is not None
                try:
                    row = worker.pipe.recv()
                except (EOFError, ConnectionError):
                    pool.remove(worker)
                    worker.process.join()
                    deaths[job.key] += 1
                    if deaths[job.key] < _ATTEMPTS:
                        waiting.append(job)
                    else:
                        yield job, {"error": f"its process died {_ATTEMPTS} times (exit code {worker.process.exitcode})"}
                    continue
                worker.job = None
                if waiting:
                    _give(worker, waiting.pop())
                yield job, row
    finally:
        for worker in pool:
            worker.pipe.close()  # a process ends when its pipe does
        for worker in pool:
            if worker.job:
                worker.process.terminate()
            worker.process.join()


def _give(worker: _Worker, job: Job) -> None:
    worker.job = job
    with suppress(ConnectionError):  # it has died; receiving says so
        worker.pipe.send((job.entry.path, job.preset))


def _start(workers: int, score: Callable[[Path, str], Row]) -> _Worker:
    context = multiprocessing.get_context("spawn")  # torch's threads do not survive a fork
    here, there = context.Pipe()
    process = context.Process(target=_work, args=(there, workers, score), daemon=True)
    process.start()
    there.close()
    return _Worker(process, here)


def _work(pipe: Connection, workers: int, score: Callable[[Path, str], Row]) -> None:
    """A process: score what comes through the pipe until it closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // workers)))  # before torch is loaded
    try:
        while True:
            pipe.send(score(*pipe.recv()))
    except (EOFError, ConnectionError):
        return


def summary(rows: Iterable[Row]) -> str:
    """One line: how many clips were scored, how many were not, and the median loss."""
    rows = list(rows)
    losses = [float(row["composite"]) for row in rows if row.get("composite") not in (None, "")]
    middle = f"; median composite loss {np.median(losses):.3f}" if losses else ""
    return f"{len(losses)} clips scored, {len(rows) - len(losses)} could not be{middle}"
