"""Tables on disk, one row per clip: CSV, JSON lines and Parquet, chosen by the file's suffix. Imports no torch."""

from __future__ import annotations

import csv
import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from phys_pipeline.atomic import atomic_file
from phys_pipeline.errors import ConfigError, DataError

SUFFIXES = (".csv", ".jsonl", ".parquet")
Row = dict[str, Any]


def read_table(path: str | Path) -> list[Row]:
    """Every row as a mapping from column to value: text from CSV, JSON values otherwise.

    Raises DataError, naming the line, for what can't be read, and ConfigError for a suffix that no reader knows.
    """
    file = Path(path)
    check_suffix(file)
    if not file.is_file():
        raise DataError(f"{file}: no such table of clips")
    try:
        if file.suffix.lower() == ".csv":
            return _read_csv(file)
        if file.suffix.lower() == ".jsonl":
            return _read_jsonl(file)
    except UnicodeDecodeError:
        raise DataError(f"{file}: not UTF-8 text; save it as UTF-8") from None
    _, parquet = _pyarrow()
    try:
        return parquet.read_table(file).to_pylist()
    except (OSError, ValueError) as error:  # pyarrow's errors derive from these
        raise DataError(f"{file}: not a readable Parquet file ({error})") from None


def write_table(path: str | Path, rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
    """Write `columns` of `rows`, whole or not at all; None is an empty cell of CSV and null elsewhere."""
    file = Path(path)
    check_suffix(file)
    with atomic_file(file) as temporary:
        if file.suffix.lower() == ".parquet":
            arrow, parquet = _pyarrow()
            parquet.write_table(arrow.table({name: [row.get(name) for row in rows] for name in columns}), temporary)
        elif file.suffix.lower() == ".jsonl":
            lines = (json.dumps({name: row.get(name) for name in columns}, ensure_ascii=False) for row in rows)
            temporary.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        else:
            with temporary.open("w", encoding="utf-8", newline="") as stream:
                writer = csv.writer(stream)
                writer.writerow(columns)
                writer.writerows([_cell(row.get(name)) for name in columns] for row in rows)


def check_suffix(path: str | Path) -> None:
    """ConfigError unless the suffix is one that is read and written here; loads pyarrow for .parquet, so it fails early."""
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise ConfigError(f"{path}: a table ends with {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}")
    if suffix == ".parquet":
        _pyarrow()


def typed(value: Any) -> Any:
    """A cell of CSV as what it spells: a number, true or false, None when it is empty; any other value as it is."""
    if not isinstance(value, str):
        return value
    if value in ("", "true", "false"):
        return {"": None, "true": True, "false": False}[value]
    for kind in (int, float):
        try:
            number = kind(value)
        except ValueError:
            continue
        if math.isfinite(number):
            return number
    return value


def _cell(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else value


def _read_csv(file: Path) -> list[Row]:
    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))  # long captions
    with file.open(encoding="utf-8-sig", newline="") as stream:
        reader = csv.DictReader(stream)
        rows = []
        try:
            for row in reader:
                if None in row:
                    raise DataError(f"{file}, line {reader.line_num}: more cells than columns; quote captions that hold commas")
                rows.append({name: value or "" for name, value in row.items()})
        except csv.Error as error:
            raise DataError(f"{file}, line {reader.line_num}: not CSV ({error})") from None
    return rows


def _read_jsonl(file: Path) -> list[Row]:
    rows = []
    with file.open(encoding="utf-8-sig") as stream:
        for number, line in enumerate(stream, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except json.JSONDecodeError as error:
                raise DataError(f"{file}, line {number}: not JSON ({error.msg}); one object a line") from None
            if not isinstance(row, dict):
                raise DataError(f"{file}, line {number}: expected an object such as {{'video': 'a.mp4', 'caption': 'a dog'}}")
            rows.append(row)
    return rows


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet as parquet
    except ImportError:
        raise ConfigError("Parquet needs pyarrow: pip install pyarrow (the extra `data`), or use .jsonl or .csv") from None
    return pyarrow, parquet
