"""Scores of many measures on many clips and their copies, computed in parallel and kept in a file.

A score is filed under digests of the clip's pixels, of the code that makes the copies, and of the code and configuration of the
measure. What is on file is not computed again; a change of a measure, a clip or a corruption makes just its own scores stale.
Comments, docstrings and layout don't enter the digests of code.
"""

from __future__ import annotations

import ast
import hashlib
import json
import math
import multiprocessing
import os
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Protocol

import numpy as np
import torch

from benchmarks.pairs import CLEAN, CONTROL, Clip, copies, is_visible
from phys_pipeline.spectral import SpectralConfig, SpectralMotionLoss

ROOT = Path(__file__).resolve().parents[1]
Score = float | None
COMPONENTS = ("translation", "rotation", "scaling")
_BATCH = 4  # clips that the loss sees at once
_PAIR_CODE = ("benchmarks/pairs.py", "phys_pipeline/media/corruptions.py", "phys_pipeline/media/warping.py")
_ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": "4000000000", "MALLOC_TRIM_THRESHOLD_": "8000000000"}  # halves the loss's time on Linux


class Measures(Protocol):
    """Measures that are computed together."""

    def versions(self) -> dict[str, str]:
        """Name of each measure and the digest of what it is made of."""

    def scores(self, clips: Sequence[np.ndarray], wanted: Collection[str]) -> dict[str, list[Score]]:
        """For each wanted name one score per clip, uint8 (T, H, W, 3); the higher, the worse; None: can't be computed."""


@dataclass(frozen=True)
class SpectralMeasures:
    """The composite (named ``label``) and, with ``components``, its three slices ("LABEL: translation" ...)."""

    label: str
    config: SpectralConfig
    components: bool = True

    @property
    def names(self) -> tuple[str, ...]:
        slices = COMPONENTS if self.components else ()
        return (self.label, *(f"{self.label}: {part}" for part in slices))

    def versions(self) -> dict[str, str]:
        version = _digest(json.dumps([_loss_code(), asdict(self.config)]))
        return dict.fromkeys(self.names, version)

    @torch.no_grad()
    def scores(self, clips: Sequence[np.ndarray], wanted: Collection[str]) -> dict[str, list[Score]]:
        loss = SpectralMotionLoss(self.config)
        found: dict[str, list[Score]] = {name: [] for name in self.names}
        for begin in range(0, len(clips), _BATCH):
            pixels = torch.from_numpy(np.stack(clips[begin : begin + _BATCH])).permute(0, 4, 1, 2, 3).float() / 255
            output = loss(pixels, "none")  # (B, 3, T, H, W)
            values = (output.loss, output.translation, output.rotation, output.scaling)
            for scores, value in zip(found.values(), values, strict=False):  # without components only the first
                scores.extend(value.tolist())
        return {name: found[name] for name in wanted}


@dataclass(frozen=True)
class Row:
    """All scores of one measure on one clip. ``copies`` holds the visible copies, ``unseen`` names the others."""

    source: str
    clip: str
    start: int
    content: str
    pairs: str
    measure: str
    version: str
    clean: Score
    control: Score
    copies: dict[str, Score]
    unseen: list[str]

    @property
    def key(self) -> tuple[str, ...]:
        return self.content, self.pairs, self.measure, self.version


def score_clips(clips: Sequence[Clip], measures: Sequence[Measures], store: Path, processes: int = 2) -> list[Row]:
    """Rows of all measures on all clips, clip by clip; what ``store`` (JSON lines) lacks is computed and added to it.

    With ``processes`` 0 in this process, otherwise in so many others, each with one thread.
    """
    version = _digest(json.dumps([code_digest(ROOT / path) for path in _PAIR_CODE]))
    versions = [group.versions() for group in measures]
    known = {row.key: row for row in read_rows(store)}
    tasks = []
    for clip in clips:
        missing = [
            (group, [name for name in names if (clip.content, version, name, names[name]) not in known], names)
            for group, names in zip(measures, versions, strict=True)
        ]
        missing = [task for task in missing if task[1]]
        if missing:
            tasks.append((clip, version, missing))
    tasks.sort(key=lambda task: -task[0].pixels.size)  # long ones first, so that the workers end together
    store.parent.mkdir(parents=True, exist_ok=True)
    with store.open("a", encoding="utf-8") as handle:
        for rows in _with_progress(_run(tasks, processes), len(tasks)):
            for row in rows:
                known[row.key] = row
                handle.write(json.dumps(asdict(row), allow_nan=False) + "\n")
            handle.flush()
    return [known[clip.content, version, name, names[name]] for clip in clips for names in versions for name in names]


def read_rows(store: Path) -> list[Row]:
    """Rows on file; a line that an interruption cut short is dropped from it."""
    if not store.exists():
        return []
    lines = store.read_bytes().splitlines(keepends=True)
    if lines and not lines[-1].endswith(b"\n"):
        with store.open("rb+") as handle:
            handle.truncate(sum(len(line) for line in lines[:-1]))
        lines = lines[:-1]
    return [Row(**json.loads(line)) for line in lines]


_Task = tuple[Clip, str, list[tuple[Measures, list[str], dict[str, str]]]]


def _run(tasks: list[_Task], processes: int) -> Iterator[list[Row]]:
    if processes < 1 or len(tasks) < 2:
        yield from map(_work, tasks)
        return
    for name, value in _ALLOCATOR.items():
        os.environ.setdefault(name, value)  # read when a process starts
    os.environ["OMP_NUM_THREADS"] = "1"
    with multiprocessing.get_context("spawn").Pool(processes, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        yield from pool.imap_unordered(_work, tasks)


def _work(task: _Task) -> list[Row]:
    """All missing scores of one clip."""
    clip, version, missing = task
    names, pixels, unseen = [CLEAN], [clip.pixels], []
    for name, copy in copies(clip):
        if name == CONTROL or is_visible(clip.pixels, copy):
            names.append(name)
            pixels.append(copy)
        else:
            unseen.append(name)
    rows = []
    for group, wanted, versions in missing:
        for measure, scores in group.scores(pixels, wanted).items():
            finite = [None if score is None or not math.isfinite(score) else score for score in scores]
            found = dict(zip(names, finite, strict=True))
            clean, control = found.pop(CLEAN), found.pop(CONTROL)
            place = (clip.source, clip.name, clip.start, clip.content, version)
            rows.append(Row(*place, measure, versions[measure], clean, control, found, unseen))
    return rows


def _with_progress(results: Iterable[list[Row]], total: int) -> Iterator[list[Row]]:
    """Pass on, and print about twenty lines of progress to stderr."""
    begun = time.monotonic()
    for count, rows in enumerate(results, start=1):
        yield rows
        if count == total or count % max(1, total // 20) == 0:
            spent = time.monotonic() - begun
            left = spent * (total - count) / count
            print(f"{count}/{total} clips, {spent:.0f} s, at most {left:.0f} s left", file=sys.stderr, flush=True)


def parse_overrides(texts: Sequence[str]) -> dict[str, object]:
    """``["whiten=0.5", "polar=\"complex\""]`` as keyword arguments; a value that is no JSON is taken as a string."""
    changes: dict[str, object] = {}
    for text in texts:
        field, _, value = text.partition("=")
        try:
            changes[field] = json.loads(value)
        except json.JSONDecodeError:
            changes[field] = value
    return changes


@cache
def _loss_code() -> list[str]:
    """Digests of the modules that make the loss: composite.py and what it imports from its package, directly or not."""
    folder = ROOT / "phys_pipeline" / "spectral"
    found, waiting = {"composite"}, ["composite"]
    while waiting:
        for node in ast.walk(ast.parse((folder / f"{waiting.pop()}.py").read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.level == 1 and node.module and node.module not in found:
                found.add(node.module)
                waiting.append(node.module)
    return [code_digest(folder / f"{name}.py") for name in sorted(found)]


def code_digest(path: Path) -> str:
    """Digest of a module's code without comments, docstrings and layout."""
    return _digest(ast.dump(_without_docstrings(ast.parse(path.read_text(encoding="utf-8")))))


def function_digest(path: Path, name: str) -> str:
    """Digest of a function and of everything in its module that it refers to, directly or not."""
    module = _without_docstrings(ast.parse(path.read_text(encoding="utf-8")))
    definitions: dict[str, ast.stmt] = {}
    for statement in module.body:
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            definitions[statement.name] = statement
        elif isinstance(statement, ast.Assign | ast.AnnAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            definitions.update({target.id: statement for target in targets if isinstance(target, ast.Name)})
    needed, waiting = {name: definitions[name]}, [definitions[name]]
    while waiting:
        for node in ast.walk(waiting.pop()):
            if isinstance(node, ast.Name) and node.id in definitions and node.id not in needed:
                needed[node.id] = definitions[node.id]
                waiting.append(definitions[node.id])
    return _digest("\n".join(ast.dump(needed[key]) for key in sorted(needed)))


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:]
    return tree


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
