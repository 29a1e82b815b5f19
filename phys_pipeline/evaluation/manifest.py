"""Which videos are evaluated: a manifest table, or one folder of videos for each column.

manifest    .jsonl or .csv with the columns video and model, and where known id, prompt, seed, fps, reference and the labels
            (phys_pipeline.evaluation.sample.LABELS); paths are relative to the table
NAME=FOLDER every video of a folder is a sample of column NAME; its id is the file's name without its ending, and
            "ID_seed3.mp4" is seed 3 of ID
prompts     .jsonl or .csv with id (or the file names' first part), prompt and labels, joined by id
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from phys_pipeline.errors import DataError
from phys_pipeline.evaluation.prompts.prompt_set import load_prompts
from phys_pipeline.evaluation.sample import LABELS, VideoSample
from phys_pipeline.tables import read_table

VIDEO_SUFFIXES = (".mp4", ".webm", ".mkv", ".mov", ".avi", ".m4v", ".gif", ".webp")
SHIPPED = "motion"
_SEED = re.compile(r"(?P<id>.+?)[-_.]seed(?P<seed>\d+)", re.IGNORECASE)
_FIELDS = ("video", "model", "id", "prompt", "seed", "fps", "reference", *LABELS)


def read_samples(sources: Sequence[str], prompts: str | Path | None = None) -> list[VideoSample]:
    """Samples of manifests, of ``NAME=FOLDER`` and of single videos (column "video"), in that order.

    Raises DataError for a source that isn't there, holds no video, or has a row that can't be used, naming the line.
    """
    known = None if prompts is None else read_prompts(str(prompts))
    samples = [sample for source in sources for sample in _samples_of(source)]
    return samples if known is None else [_joined(sample, known, str(prompts)) for sample in samples]


def read_prompts(source: str) -> dict[str, dict[str, Any]]:
    """Prompt and labels by id. Raises DataError for a table or set that can't be read."""
    if source == SHIPPED or Path(source).suffix.lower() in (".json", ".txt"):
        found = load_prompts(None if source == SHIPPED else source)
        return {p.id: {"prompt": p.text, **(p.label.sample_labels() if p.label else {})} for p in found}
    return {row["id"]: row for row in map(_with_id, read_table(source))}


def _samples_of(source: str) -> list[VideoSample]:
    name, separator, folder = source.partition("=")
    if separator and not Path(source).exists():
        return _folder(name, Path(folder))
    path = Path(source)
    if path.is_dir():
        return _folder(path.name, path)
    if not path.is_file():
        raise DataError(f"{source} is neither a manifest, a video nor NAME=FOLDER of one column")
    if path.suffix.lower() in (".jsonl", ".csv"):
        return [_sample(row, path, number) for number, row in enumerate(read_table(path), 1)]
    return [VideoSample(*_id_of(path)[:1], "video", seed=_id_of(path)[1], path=path)]


def _folder(name: str, folder: Path) -> list[VideoSample]:
    if not name:
        raise DataError(f"={folder}: give the column a name, for example baseline={folder}")
    if not folder.is_dir():
        raise DataError(f"{folder} is no folder of videos")
    files = sorted(path for path in folder.iterdir() if path.suffix.lower() in VIDEO_SUFFIXES and not path.name.startswith("."))
    if not files:
        raise DataError(f"{folder} holds no video ({', '.join(VIDEO_SUFFIXES)})")
    samples = []
    for path in files:
        identity, seed = _id_of(path)
        samples.append(VideoSample(identity, name, seed=seed, path=path))
    return samples


def _id_of(path: Path) -> tuple[str, int | None]:
    match = _SEED.fullmatch(path.stem)
    return (match["id"], int(match["seed"])) if match else (path.stem, None)


def _sample(row: Mapping[str, Any], table: Path, number: int) -> VideoSample:
    """One row of a manifest."""
    cells = {key: value for key, value in row.items() if value not in (None, "")}
    if unknown := set(cells) - {*_FIELDS, "meta"}:
        raise DataError(f"{table}, row {number}: unknown column {sorted(unknown)[0]!r}; use {', '.join(_FIELDS)} or meta")
    if missing := [key for key in ("video", "model") if key not in cells]:
        raise DataError(f"{table}, row {number}: has no {missing[0]}")
    path = table.parent / str(cells["video"])
    identity, seed = _id_of(path)
    try:
        return VideoSample(
            str(cells.get("id", identity)), str(cells["model"]), str(cells.get("prompt", "")),
            int(cells["seed"]) if "seed" in cells else seed, path, fps=float(cells["fps"]) if "fps" in cells else None,
            reference=table.parent / str(cells["reference"]) if "reference" in cells else None,
            labels={key: str(cells[key]) for key in LABELS if key in cells}, meta=cells.get("meta", {}),
        )  # fmt: skip
    except (ValueError, DataError) as error:
        raise DataError(f"{table}, row {number}: {error}") from None


def _joined(sample: VideoSample, known: Mapping[str, Mapping[str, Any]], table: str) -> VideoSample:
    """A sample with prompt and labels of the prompt table; what the sample says itself stays."""
    row = known.get(sample.id)
    if row is None:
        raise DataError(f"{table} has no prompt for {sample.name}: add a row with id {sample.id}")
    labels = {key: str(row[key]) for key in LABELS if row.get(key) not in (None, "")}
    return replace(sample, prompt=sample.prompt or str(row.get("prompt", "")), labels={**labels, **sample.labels})


def _with_id(row: Mapping[str, Any]) -> dict[str, Any]:
    if row.get("id") in (None, ""):
        raise DataError("a table of prompts needs an id in every row")
    return {**row, "id": str(row["id"])}
