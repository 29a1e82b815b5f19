"""Measure many clips with many metrics: resumable, in several processes, one bad clip never stops the others.

Metrics without weights share one pass: a clip is decoded once and its pairs of frames are walked once. Every model has a
pass of its own, which the metrics that use it share, so that only one is in memory at a time. Rows are written clip by clip.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from phys_pipeline.errors import DataError
from phys_pipeline.evaluation.flow import flow_name
from phys_pipeline.evaluation.measuring import ClipWorker, digest_of, make_row
from phys_pipeline.evaluation.metric import Availability, MetricInfo, Settings, Weights, failed, skipped
from phys_pipeline.evaluation.registry import classes_of, infos, metric_class
from phys_pipeline.evaluation.rows import UNAVAILABLE, Row, RowFile, read_rows
from phys_pipeline.evaluation.sample import VideoSample
from phys_pipeline.workers import Died, in_processes

_PATIENCE = 900.0  # seconds without a new row after which another process counts as dead
_POLL = 1.0


@dataclass(frozen=True)
class Shard:
    """This process's part of the samples, where several are launched: number ``rank`` of ``world``."""

    rank: int = 0
    world: int = 1


class Evaluator:
    """Measures samples with the metrics of ``keys`` (:func:`phys_pipeline.evaluation.registry.select`).

    Args:
        folder: rows go to ``rows.jsonl`` here (one file for each of several launched processes); what is there is not done again.
    """

    def __init__(self, keys: Sequence[str], settings: Settings, folder: str | Path) -> None:
        self.keys, self.settings, self.folder = tuple(keys), settings, Path(folder)
        self.infos: dict[str, MetricInfo] = {key: infos()[key] for key in self.keys}
        self.classes = classes_of(self.keys)
        self.available: dict[str, Availability] = {name: metric_class(name)(settings).available() for name in self.classes}
        self._fingerprints: dict[str, str] = {}
        self._owner = {info.key: name for name in self.classes for info in metric_class(name).infos}

    def passes(self) -> list[tuple[str, ...]]:
        """Classes that are computed together: all without weights, then those whose first weights are the same."""
        together: dict[Weights | None, list[str]] = {}
        for name in self.classes:
            if self.available[name].ok and not _is_aggregate(name):
                first = next((weights for info in metric_class(name).infos for weights in info.weights), None)
                together.setdefault(first, []).append(name)
        return [tuple(together[weights]) for weights in sorted(together, key=lambda weights: weights is not None)]

    def fingerprint(self, name: str) -> str:
        """Digest of what a class's values depend on beside the clip and its version; as they are when it is first asked for."""
        if name not in self._fingerprints:
            self._fingerprints[name] = self._fingerprint(name)
        return self._fingerprints[name]

    def _fingerprint(self, name: str) -> str:
        depends: dict[str, Any] = {
            "protocol": self.settings.protocol, "seed": self.settings.seed, "standins": self.settings.standins,
            "options": {key: (str(value), _state(str(value))) for key, value in self.settings.options.items()},
        }  # fmt: skip
        if hasattr(metric_class(name), "start"):
            depends["flow"] = flow_name(self.settings)
        return hashlib.sha256(json.dumps(depends, sort_keys=True, default=str).encode()).hexdigest()[:12]

    def run(
        self,
        samples: Iterable[VideoSample],
        *,
        workers: int = 1,
        shard: Shard | None = None,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> list[Row]:
        """The rows of all samples, sorted by sample and metric. Clips and metrics that have rows already are not done again.

        With several launched processes each measures its part; the first one waits for the others and returns all rows, the
        others return their own. Raises DataError without samples, for two samples of one name, and when another process stops.
        """
        shard = shard or Shard()
        samples = list(samples)
        if not samples:
            raise DataError("there is no video to evaluate")
        if doubles := [name for name, count in Counter(sample.name for sample in samples).items() if count > 1]:
            raise DataError(f"{len(doubles)} samples share a name, for example {doubles[0]}: give each its own id or seed")
        own = samples[shard.rank :: shard.world]
        file = RowFile(self.folder / ("rows.jsonl" if shard.world == 1 else f"rows-{shard.rank}.jsonl"))
        try:
            known = self._done(own)
            jobs = [(classes, sample) for classes in self.passes() for sample in own if self._missing(classes, sample, known)]
            refused = [row for sample in own for row in self._unavailable(sample) if (row.key not in known)]
            file.append(refused)
            for count, rows in enumerate(self._measured(jobs, workers), 1):
                file.append(rows)
                progress(count, len(jobs))
            file.append(self._combined(own))
        finally:
            file.close()
        if shard.rank == 0 and shard.world > 1:
            return self._wait(samples)
        return self._current(samples if shard.world == 1 else own)

    def _measured(self, jobs: Sequence[tuple[tuple[str, ...], VideoSample]], workers: int) -> Iterator[list[Row]]:
        """Rows of each job, one pass after the other, so that a pass's models are loaded once per process."""
        for classes in self.passes():
            mine = [sample for wanted, sample in jobs if wanted == classes]
            if not mine:
                continue
            make = partial(ClipWorker, classes, self.keys, self.settings, {n: self.fingerprint(n) for n in classes})
            if workers <= 1:
                worker = make()
                yield from map(worker, mine)
                worker.close()
                continue
            for sample, rows in in_processes(mine, workers, make):
                yield self._dead(classes, sample, rows) if isinstance(rows, Died) else rows

    def _dead(self, classes: tuple[str, ...], sample: VideoSample, died: Died) -> list[Row]:
        result = failed(str(died))
        return [
            make_row(sample, self.infos[key], result, self.settings, self.fingerprint(name))
            for key, name in self._owner.items()
            if name in classes and key in self.infos
        ]

    def _unavailable(self, sample: VideoSample) -> list[Row]:
        """Rows that say why a metric can't run here."""
        return [
            make_row(
                sample, self.infos[key], skipped(self.available[name].reason), self.settings, self.fingerprint(name), missing=True
            )
            for key, name in self._owner.items()
            if key in self.infos and not self.available[name].ok
        ]

    def _combined(self, samples: Sequence[VideoSample]) -> list[Row]:
        """Rows of the aggregates that are new or have changed, from the rows of their parts."""
        by_sample: dict[str, dict[str, Row]] = {}
        for row in self._current(samples):
            by_sample.setdefault(row.sample, {})[row.metric] = row
        found = []
        for name in [name for name in self.classes if _is_aggregate(name) and self.available[name].ok]:
            metric = metric_class(name)(self.settings)
            for sample in samples:
                parts = by_sample.get(sample.name, {})
                for key, result in metric.combine(parts).items():
                    before = parts.get(key)
                    if key in self.infos and (before is None or (before.value, before.status) != (result.value, result.status)):
                        found.append(make_row(sample, self.infos[key], result, self.settings, self.fingerprint(name)))
        return found

    def _current(self, samples: Sequence[VideoSample]) -> list[Row]:
        """Rows on disk of these samples as they are now, for these settings and versions."""
        digests = {sample.name: digest_of(sample) for sample in samples}
        rows = []
        for row in read_rows(self.folder):
            info = self.infos.get(row.metric)
            if info is None or digests.get(row.sample) != row.digest:
                continue
            if row.version == info.version and row.settings == self.fingerprint(self._owner[row.metric]):
                rows.append(row)
        return rows

    def _done(self, samples: Sequence[VideoSample]) -> set[tuple[str, str]]:
        """What need not be measured again: values, and refusals whose reason holds still. Failures are tried again."""
        done = set()
        for row in self._current(samples):
            usable = self.available[self._owner[row.metric]].ok
            if row.status in ("ok", "standin") or (row.status == "skipped" and row.details.get(UNAVAILABLE, False) != usable):
                done.add(row.key)
        return done

    def _missing(self, classes: tuple[str, ...], sample: VideoSample, done: set[tuple[str, str]]) -> bool:
        return any((sample.name, key) not in done for key in self.keys if self._owner[key] in classes)

    def _wait(self, samples: Sequence[VideoSample]) -> list[Row]:
        """All rows, once the other processes have written theirs."""
        wanted = {(sample.name, key) for sample in samples for key in self.keys}
        last, since = -1, time.monotonic()
        while True:
            rows = self._current(samples)
            missing = wanted - {row.key for row in rows}
            if not missing:
                return rows
            if len(rows) != last:
                last, since = len(rows), time.monotonic()
            elif time.monotonic() - since > _PATIENCE:
                raise DataError(f"{len(missing)} results of other processes did not come; run again to go on where they stopped")
            time.sleep(_POLL)


def _state(value: str) -> tuple[int, ...]:
    """What tells whether the file or folder that an option names is another than before: number, bytes and latest change."""
    path = Path(value)
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else []
    found = [file.stat() for file in files]
    return (len(found), sum(s.st_size for s in found), max((s.st_mtime_ns for s in found), default=0))


def _is_aggregate(name: str) -> bool:
    return hasattr(metric_class(name), "combine")
