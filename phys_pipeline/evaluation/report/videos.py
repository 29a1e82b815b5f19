"""Where a page finds the clips that it shows: inside itself up to a size, else beside it."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import quote

from phys_pipeline.errors import DataError
from phys_pipeline.evaluation.rows import Row
from phys_pipeline.evaluation.statistics import Pair

EMBED_LIMIT = 16_000_000  # bytes of all embedded files together
_TYPES = {
    ".mp4": "video/mp4", ".m4v": "video/mp4", ".mov": "video/mp4", ".webm": "video/webm",
    ".gif": "image/gif", ".webp": "image/webp", ".png": "image/png",
}  # fmt: skip
Sources = dict[str, dict[Pair, str]]  # {column: {(prompt, seed): URL}}


def sources(rows: Iterable[Row], videos: Mapping[str, Path], folder: Path, limit: int = EMBED_LIMIT) -> Sources:
    """URL of each clip of ``videos`` (by sample name) for a page in ``folder``.

    Prompts are embedded whole, all columns or none, in the order of the rows, until ``limit`` is reached; the others are linked
    relative to ``folder``. Files that browsers do not play are linked as they are.

    Raises:
        DataError: a file can't be read.
    """
    clips: dict[Pair, dict[str, Path]] = {}
    for row in rows:
        if row.sample in videos:
            clips.setdefault(row.pair, {})[row.model] = Path(videos[row.sample])
    found: Sources = {}
    left = limit
    for pair, files in clips.items():
        try:
            size = sum(file.stat().st_size for file in files.values())
            embed = size <= left and all(file.suffix.lower() in _TYPES for file in files.values())
            left -= size if embed else 0
            for column, file in files.items():
                found.setdefault(column, {})[pair] = _embedded(file) if embed else _linked(file, folder)
        except OSError as error:
            raise DataError(f"{error.filename} can't be read for the page: {error.strerror}") from None
    return found


def _embedded(file: Path) -> str:
    return f"data:{_TYPES[file.suffix.lower()]};base64,{base64.b64encode(file.read_bytes()).decode()}"


def _linked(file: Path, folder: Path) -> str:
    try:
        return quote(Path(os.path.relpath(file, folder)).as_posix())
    except ValueError:  # another drive
        return file.resolve().as_uri()
