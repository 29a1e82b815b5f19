"""Which clips are trained on: a folder with captions beside them or a table, filtered by columns of it or of a score file."""

from __future__ import annotations

import hashlib
import operator
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from phys_pipeline.errors import ConfigError, DataError
from phys_pipeline.tables import read_table
from training.config import TrainConfig

STILL_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff")
SUFFIXES = (
    *STILL_SUFFIXES, ".mp4", ".webm", ".mkv", ".mov", ".avi", ".m4v", ".mpg", ".mpeg", ".ts", ".ogv", ".wmv", ".flv",
    ".gif", ".apng", ".webp", ".avif",
)  # fmt: skip
TABLES = (".csv", ".jsonl", ".parquet")
STILL = "a still picture; pictures train only with frames=1 or a bucket of one frame"
_MOST_NAMED = 50  # in a line of text
PATH_COLUMNS = ("video", "file", "path", "file_name")
CAPTION_COLUMNS = ("caption", "text")
_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt,
}  # fmt: skip
_CONDITION = re.compile(r"\s*(>=|<=|!=|==|=|>|<)?\s*(.*?)\s*", re.DOTALL)


@dataclass(frozen=True)
class Clip:
    """A clip on disk with its caption; `name` is the path relative to the data folder, or as the table gives it."""

    path: Path
    name: str
    caption: str
    digest: str  # sha256 of the file's bytes


@dataclass(frozen=True)
class Skipped:
    """A clip that is not trained on, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class Entry:
    """A clip as its source lists it: the file may be missing, the caption empty; `columns` are what filters look at."""

    path: Path
    name: str
    caption: str
    columns: Mapping[str, Any] = field(default_factory=dict)
    fault: str = ""  # why the caption, or the folder, can't be read


def find_clips(config: TrainConfig) -> tuple[list[Clip], list[Skipped]]:
    """The clips of `config.data` that pass the filters, with their captions, and the others with their reasons.

    Raises DataError as `select_entries`.
    """
    entries, skipped = select_entries(config)
    clips, unreadable = join_digests(entries, {path: read_digest(path) for path in {entry.path for entry in entries}})
    return clips, skipped + unreadable


def select_entries(config: TrainConfig) -> tuple[list[Entry], list[Skipped]]:
    """The entries of `config.data` whose files are there and can be clips, and the others with their reasons; no file is read.

    Raises DataError when the source is missing, when a filter names an unknown column, or when clips lack a caption unless
    `missing_captions: skip`.
    """
    entries, skipped = filter_entries(list_entries(config), config)
    usable: list[Entry] = []
    uncaptioned: list[Entry] = []
    seen: set[tuple[Path, str]] = set()
    pictures = takes_pictures(config)
    for entry in entries:
        if not _is_text(entry.name):
            shown = entry.name.encode("utf-8", "backslashreplace").decode()
            skipped.append(Skipped(shown, "its name is not UTF-8; rename it"))
        elif entry.path.is_dir() and entry.fault:
            skipped.append(Skipped(entry.name, entry.fault))
        elif not entry.path.is_file():
            skipped.append(Skipped(entry.name, _absent(entry.path)))
        elif entry.path.suffix.lower() in STILL_SUFFIXES and not pictures:  # thumbnails need no caption
            skipped.append(Skipped(entry.name, STILL))
        elif not entry.caption:
            uncaptioned.append(entry)
        elif (entry.path, entry.caption) in seen:
            skipped.append(Skipped(entry.name, "listed before with the same caption"))
        else:
            seen.add((entry.path, entry.caption))
            usable.append(entry)
    what = f"fill its {'/'.join(CAPTION_COLUMNS)}" if is_table(config.data) else "write {}"
    advice = [entry.fault or what.format(Path(entry.name).with_suffix(".txt")) for entry in uncaptioned]
    if uncaptioned and config.missing_captions == "error":
        files = [f"{entry.name} ({what})" for entry, what in zip(uncaptioned, advice, strict=True)]
        raise DataError(
            f"{len(uncaptioned)} clip(s) in {config.data} lack a caption: {_at_most(files, ', ')}; one line that says what is "
            "seen and how it moves, or set missing_captions=skip"
        )
    skipped += [Skipped(entry.name, f"no caption; {what}") for entry, what in zip(uncaptioned, advice, strict=True)]
    return usable, skipped


def join_digests(entries: Iterable[Entry], digests: Mapping[Path, str | OSError]) -> tuple[list[Clip], list[Skipped]]:
    """Entries with what `read_digest` gave for their paths: clips, and those that can't be read."""
    clips, skipped = [], []
    for entry in entries:
        digest = digests[entry.path]
        if isinstance(digest, str):
            clips.append(Clip(entry.path, entry.name, entry.caption, digest))
        else:
            skipped.append(Skipped(entry.name, f"can't be read ({digest.strerror or digest})"))
    return clips, skipped


def _absent(path: Path) -> str:
    if path.is_symlink():
        return f"a symbolic link to nothing: {path}"
    return f"not a regular file: {path}" if path.exists() else f"no such file: {path}; set video_root"


def list_entries(config: TrainConfig) -> list[Entry]:
    """Everything that `config.data` names, with the columns of `config.data_scores` joined by the clip's name."""
    entries = _table_entries(config) if is_table(config.data) else _folder_entries(config)
    if config.data_scores is None:
        return entries
    scores = {str(_first(row, PATH_COLUMNS)): row for row in read_table(config.data_scores)}
    found = [scores.get(entry.name) or scores.get(str(entry.path)) for entry in entries]
    if scores and not any(found):
        raise DataError(f"{config.data_scores} scores no clip of {config.data}: make it with `phys-pipeline data score`")
    blank = dict.fromkeys(next(iter(scores.values()), {}), None)
    return [replace(entry, columns={**entry.columns, **(row or blank)}) for entry, row in zip(entries, found, strict=True)]


def is_table(source: str | Path) -> bool:
    """True for a table of clips, False for a folder."""
    return Path(source).suffix.lower() in TABLES and not Path(source).is_dir()


def takes_pictures(config: TrainConfig) -> bool:
    """True when a still picture can be a sample."""
    return config.frames == 1 or (isinstance(config.buckets, list) and any(bucket[0] == 1 for bucket in config.buckets))


def _folder_entries(config: TrainConfig) -> list[Entry]:
    """All sub-folders, linked ones too, sorted by name; the caption of `walk.mp4` is the text of `walk.txt`."""
    root = Path(config.data)
    if not root.is_dir():
        raise DataError(f"{root}: no such folder of clips; set data=FOLDER, or a table FILE.csv, FILE.jsonl or FILE.parquet")
    found: list[Entry] = []
    locked: list[OSError] = []
    visited: set[tuple[int, int]] = set()  # device and number of folders: links may form a loop
    for folder, below, names in os.walk(root, followlinks=True, onerror=locked.append):
        status = os.stat(folder)
        if (status.st_dev, status.st_ino) in visited:
            below.clear()
            continue
        visited.add((status.st_dev, status.st_ino))
        for name in names:
            path = Path(folder, name)
            if not name.startswith(".") and path.suffix.lower() in SUFFIXES:
                caption, fault = read_caption(path.with_suffix(".txt"))
                found.append(Entry(path, path.relative_to(root).as_posix(), caption, fault=fault))
    for error in locked:
        path = Path(error.filename)
        found.append(Entry(path, path.relative_to(root).as_posix(), "", fault=f"a folder that can't be read ({error.strerror})"))
    return sorted(found, key=lambda entry: entry.path)


def _table_entries(config: TrainConfig) -> list[Entry]:
    file = Path(config.data)
    rows = read_table(file)
    root = file.parent if config.video_root is None else Path(config.video_root)
    entries, absolute = [], []
    for number, row in enumerate(rows, 1):
        name = _first(row, PATH_COLUMNS)
        if name is None:
            raise DataError(f"{file}, row {number}: no {', '.join(PATH_COLUMNS)} among its columns {', '.join(map(repr, row))}")
        if os.path.isabs(str(name)):
            absolute.append(str(Path(str(name)).parent))
        caption = " ".join(str(_first(row, CAPTION_COLUMNS) or "").split())
        entries.append(Entry(root / str(name), str(name), caption, row))
    if not absolute:
        return entries
    shared = os.path.commonpath(absolute)  # names get published with an adapter: no one's folders
    return [
        replace(entry, name=entry.path.relative_to(shared).as_posix()) if os.path.isabs(entry.name) else entry
        for entry in entries
    ]


def _first(row: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    """The first non-empty value among columns of these names, in any case; None without one."""
    return next((row[column] for column in _named(tuple(row), names) if row[column] not in (None, "")), None)


@lru_cache(maxsize=64)
def _named(columns: tuple[str, ...], names: tuple[str, ...]) -> list[str]:
    """The columns that are spelled like `names`, in the order of these; the rows of a table share them."""
    lower = {str(column).strip().lower(): column for column in columns}
    return [lower[name] for name in names if name in lower]


def filter_entries(entries: list[Entry], config: TrainConfig) -> tuple[list[Entry], list[Skipped]]:
    """Split by `config.data_filters`: every condition of every named column must hold. Raises DataError on unknown columns."""
    known = list(dict.fromkeys(str(column) for entry in entries for column in entry.columns))
    for column in config.data_filters:
        if entries and column not in known:
            columns = f"its columns are {', '.join(map(repr, known))}" if known else "a folder has none; set data_scores=FILE"
            raise DataError(f"data_filters: {config.data} has no column {column!r}; {columns}")
    conditions = [
        (column, text)
        for column, wanted in config.data_filters.items()
        for text in (wanted if isinstance(wanted, list) else [wanted])
    ]
    kept, skipped = [], []
    for entry in entries:
        reason = next((r for column, text in conditions if (r := _fails(column, entry.columns.get(column), text))), None)
        if reason is None:
            kept.append(entry)
        else:
            skipped.append(Skipped(entry.name, reason))
    return kept, skipped


def _fails(column: str, value: Any, condition: Any) -> str | None:
    """Why `value` does not meet a condition such as ">=5", "<0.6", "!=static", "static|zoom_in" or 5; None if it does."""
    if value is None or value == "":
        return f"no value for {column!r}"
    sign, right = _CONDITION.fullmatch(_text(condition)).groups()  # type: ignore[union-attr]
    if sign in _COMPARISONS:
        limit, number = _number(right), _number(value)
        if limit is None:
            raise ConfigError(f"data_filters: {column!r} compares with {right!r}, which is not a number")
        if number is None:
            return f"{column} is {_text(value)!r}, not a number"
        passes = _COMPARISONS[sign](number, limit)
    else:
        passes = any(_equal(value, option) for option in right.split("|")) is not (sign == "!=")
    if passes:
        return None
    number = _number(value)
    shown = _text(value) if number is None else f"{number:.6g}"
    return f"{column} is {shown}, not {_text(condition)}"


def _equal(value: Any, option: str) -> bool:
    left, right = _number(value), _number(option)
    if left is not None and right is not None:
        return left == right
    return _text(value).strip().lower() == option.strip().lower()


def _number(value: Any) -> float | None:
    try:
        return None if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        return None


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _is_text(name: str) -> bool:
    """False for a file name that is not UTF-8, which Python spells with lone surrogates."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def read_caption(path: Path) -> tuple[str, str]:
    """The caption in a text file as one line, "" when there is no file, and why it can't be read, "" if it can."""
    try:
        return " ".join(path.read_text(encoding="utf-8-sig").split()), ""
    except FileNotFoundError:
        return "", ""
    except UnicodeDecodeError:
        return "", f"{path.name} is not UTF-8 text; save it as UTF-8"
    except OSError as error:
        return "", f"{path.name} can't be read ({error.strerror})"


def file_digest(path: str | os.PathLike[str]) -> str:
    """sha256 of a file's bytes, in hexadecimal."""
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        for block in iter(lambda: stream.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def read_digest(path: Path) -> str | OSError:
    """The digest of a file, or why it can't be read."""
    try:
        return file_digest(path)
    except OSError as error:
        return error


def reason_table(skipped: Iterable[Skipped]) -> str:
    """One line: `a.mp4: too short ...; b.mp4: unreadable ...`, at most 50 of them and the number of the others."""
    return _at_most([f"{s.name}: {s.reason}" for s in skipped], "; ")


def _at_most(texts: list[str], between: str) -> str:
    more = [f"and {len(texts) - _MOST_NAMED} more"] if len(texts) > _MOST_NAMED else []
    return between.join(texts[:_MOST_NAMED] + more)
