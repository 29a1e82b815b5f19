"""Results per clip: one row per sample and metric. Every number of a report is made of these and of nothing else."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from phys_pipeline.errors import DataError

log = logging.getLogger(__name__)

FILES = "rows*.jsonl"
UNAVAILABLE, STANDIN_LEFT_OUT = "unavailable", "standin_left_out"  # in ``details``: why a skipped row could have a value


@dataclass(frozen=True)
class Row:
    """One metric on one sample, with all that is needed to trace and to repeat it.

    ``width``, ``height``, ``frames`` and ``fps`` are the clip's (0 and None where it could not be decoded). ``settings`` is a
    digest of what the value depends on beside the clip (:meth:`phys_pipeline.evaluation.evaluator.Evaluator.fingerprint`).
    """

    sample: str  # VideoSample.name
    id: str
    model: str
    seed: int | None
    metric: str
    value: float | None
    status: str
    reason: str = ""
    backend: str = ""
    protocol: str = "fixed"
    version: int = 1
    digest: str = ""  # SHA-256 of the video
    settings: str = ""
    run_seed: int = 0
    prompt: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    width: int = 0
    height: int = 0
    frames: int = 0
    fps: float | None = None
    per_frame: list[float | None] | None = None
    details: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    written: float = 0.0  # seconds since 1970: of two rows about the same, the later one counts

    @property
    def key(self) -> tuple[str, str]:
        """What a row is about: sample and metric."""
        return self.sample, self.metric

    @property
    def pair(self) -> tuple[str, int | None]:
        """What pairs two columns: prompt and seed."""
        return self.id, self.seed

    @property
    def is_missing(self) -> bool:
        """Whether the metric failed on the clip, or lacks what it needs here. A clip without a label or motion misses nothing."""
        return self.status == "failed" or bool(self.details.get(UNAVAILABLE) or self.details.get(STANDIN_LEFT_OUT))


_FIELDS = {f.name for f in dataclasses.fields(Row)}


class RowFile:
    """A file of rows that is only ever appended to; a line that a killed run cut off is removed when it is opened again.

    Raises DataError when it can't be written, naming the reason (a full disk leaves the rows written before).
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.is_file():
                _drop_cut_line(path)
            self._stream = path.open("a", encoding="utf-8")
        except OSError as error:
            raise DataError(f"{path} can't be written: {error.strerror}") from None

    def append(self, rows: Iterable[Row]) -> None:
        """Write the rows of one clip at once."""
        text = "".join(json.dumps(asdict(row), ensure_ascii=False, allow_nan=False) + "\n" for row in rows)
        try:
            self._stream.write(text)
            self._stream.flush()
        except OSError as error:
            raise DataError(f"{self.path} can't be written: {error.strerror}; what was measured before is kept") from None

    def close(self) -> None:
        self._stream.close()


def read_rows(folder: str | os.PathLike[str]) -> list[Row]:
    """The latest row of each sample and metric in a folder's ``rows*.jsonl``, sorted by sample and metric.

    Lines that a killed run cut off are left out. Raises DataError for lines that are no rows.
    """
    latest: dict[tuple[str, str], Row] = {}
    for file in sorted(Path(folder).glob(FILES)):
        for number, line in enumerate(file.read_bytes().splitlines(keepends=True), 1):
            if not line.endswith(b"\n"):
                log.warning("%s, line %d was cut off when a run ended; it is left out", file, number)
                continue
            try:
                content = json.loads(line)
                row = Row(**{name: value for name, value in content.items() if name in _FIELDS})
            except (ValueError, TypeError, AttributeError):
                raise DataError(f"{file}, line {number} is no row of an evaluation: delete the line or the file") from None
            if row.key not in latest or row.written >= latest[row.key].written:
                latest[row.key] = row
    return [latest[key] for key in sorted(latest)]


def _drop_cut_line(path: Path) -> None:
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        if size == 0:
            return
        file.seek(size - 1)
        if file.read(1) == b"\n":
            return
        file.seek(0)
        whole = file.read().rfind(b"\n") + 1
    os.truncate(path, whole)
