"""What is done: one folder per cell, named after all that it depends on, with a record that is written last.

A cell with a record is not done again; one without, because its run was killed, goes on from what its folder holds. Several
processes may work on one ledger: a cell that another one holds is busy, and a dead process holds nothing.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from phys_pipeline.atomic import atomic_file
from training.experiments.config import digest

RECORD = "record.json"


@dataclass(frozen=True)
class Cell:
    """One arm x setting x seed x stage. ``inputs`` is everything its result depends on, as JSON values."""

    stage: str  # train | sample | measure
    name: str  # for people
    inputs: dict[str, Any]

    @property
    def key(self) -> str:
        """Unique to its inputs."""
        return f"{self.stage}/{self.name}-{digest(self.inputs)}"


class Busy(Exception):
    """Another process works on the cell."""


class Ledger:
    """Cells below ``root``."""

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)

    def folder(self, cell: Cell) -> Path:
        """Where the cell keeps its files."""
        return self.root / cell.key

    def record(self, cell: Cell) -> dict[str, Any] | None:
        """The record of a finished cell."""
        file = self.folder(cell) / RECORD
        return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None

    def run(self, cell: Cell, work: Callable[[Path], dict[str, Any]]) -> dict[str, Any]:
        """The cell's record; ``work(folder)`` makes the result unless there is one. Raises Busy when another process is at it."""
        import fcntl

        if (done := self.record(cell)) is not None:
            return done
        folder = self.folder(cell)
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / ".lock").open("w") as lock:  # the system frees it when the process ends, however it ends
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise Busy(cell.key) from None
            if (done := self.record(cell)) is not None:
                return done
            began = time.perf_counter()
            result = work(folder)
            record = {"cell": cell.key, "inputs": cell.inputs, "seconds": round(time.perf_counter() - began, 1), **result}
            with atomic_file(folder / RECORD) as temporary:
                temporary.write_text(json.dumps(record, indent=1, sort_keys=True), encoding="utf-8")
            return record
