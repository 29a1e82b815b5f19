"""Prompt sets: the shipped one and a user's own, with digests that reports and splits refer to."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any

from phys_pipeline.errors import DataError
from phys_pipeline.evaluation.prompts.label import DIRECTIONS, MOVERS, Label
from phys_pipeline.tables import SUFFIXES, Row, read_table

SCHEMA, VERSION = "phys-pipeline/prompts", 1


@dataclass(frozen=True)
class Prompt:
    """One prompt. ``label`` and ``mover`` ("object" or "camera": what moves) are None in sets that nobody has labelled."""

    id: str
    text: str
    label: Label | None = None
    mover: str | None = None

    @cached_property
    def sha(self) -> str:
        """SHA-256 of the text without outer white space: what split files and caches call the prompt."""
        return hashlib.sha256(self.text.strip().encode()).hexdigest()


@dataclass(frozen=True)
class PromptSet:
    """Prompts in their order.

    Raises:
        DataError: no prompt, an id or a text twice, an empty one, a direction that the mover can't show.
    """

    name: str
    prompts: tuple[Prompt, ...]

    def __post_init__(self) -> None:
        if not self.prompts:
            raise DataError(f"prompt set {self.name} is empty")
        for what, values in (("id", [p.id for p in self.prompts]), ("prompt", [p.text.strip().lower() for p in self.prompts])):
            twice = [value for value, count in Counter(values).items() if count > 1]
            if twice:
                raise DataError(f"prompt set {self.name} has the {what} {twice[0]!r} more than once")
            if "" in values:
                raise DataError(f"prompt set {self.name} has an empty {what}")
        for prompt in self.prompts:
            direction = prompt.label.direction if prompt.label else None
            if prompt.mover is not None and prompt.mover not in MOVERS:
                raise DataError(f"prompt {prompt.id}: mover {prompt.mover!r} is not one of {', '.join(MOVERS)}")
            if direction and prompt.mover and prompt.mover not in DIRECTIONS[direction][1]:
                raise DataError(f"prompt {prompt.id}: an {prompt.mover} does not show {direction}")

    def __len__(self) -> int:
        return len(self.prompts)

    def __iter__(self) -> Iterator[Prompt]:
        return iter(self.prompts)

    @cached_property
    def by_id(self) -> dict[str, Prompt]:
        return {prompt.id: prompt for prompt in self.prompts}

    @cached_property
    def sha(self) -> str:
        """SHA-256 over ids, texts and labels: two reports with one value used the same prompts."""
        content = [[p.id, p.text, p.mover, p.label.sample_labels() if p.label else None] for p in self.prompts]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def load_prompts(path: Path | str | None = None) -> PromptSet:
    """A prompt set; without a path the shipped one.

    ``.json`` has the shipped set's layout (``Prompt`` per object; ``motion`` and the other labels are optional); ``.txt`` has one
    prompt a line, numbered "0000", "0001", ... as EvalCrafter numbers its files. ``.csv``, ``.jsonl`` and ``.parquet``, as
    `phys-pipeline prompts export` writes them, have a column ``prompt`` and may have ``id`` (else numbered) and the labels.

    Raises:
        DataError: the file can't be read or is not a prompt set.
    """
    if path is None:
        text = resources.files(__package__).joinpath("motion.json").read_text(encoding="utf-8")
        return _parse_json(text, "motion")
    file = Path(path)
    if file.suffix in SUFFIXES:
        return _parse_table(read_table(file), file)
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{file} can't be read as text: {getattr(error, 'strerror', None) or error}") from None
    if file.suffix == ".json":
        return _parse_json(text, file.stem)
    if file.suffix == ".txt":
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return PromptSet(file.stem, tuple(Prompt(f"{number:04d}", line) for number, line in enumerate(lines)))
    raise DataError(f"{file}: use a prompt set in .json, .txt with one prompt a line, or a table ({', '.join(SUFFIXES)})")


def _parse_table(rows: list[Row], file: Path) -> PromptSet:
    entries = []
    for number, row in enumerate(rows):
        if not isinstance(row.get("prompt"), str):
            raise DataError(f"{file}, row {number + 1}: a table of prompts needs the column prompt")
        given = {key: value for key, value in row.items() if value not in (None, "")}
        entries.append({**given, "prompt": row["prompt"], "id": str(given.get("id", f"{number:04d}"))})
    return PromptSet(file.stem, tuple(_parse_prompt(entry, file.stem) for entry in entries))


def _parse_json(text: str, name: str) -> PromptSet:
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        raise DataError(f"prompt set {name} is not JSON: {error}") from None
    if not isinstance(content, dict) or content.get("schema") != SCHEMA or not isinstance(content.get("prompts"), list):
        raise DataError(f'prompt set {name} needs "schema": "{SCHEMA}" and a list "prompts"')
    if content.get("version") != VERSION:
        raise DataError(f"prompt set {name} has version {content.get('version')}; this program reads version {VERSION}")
    return PromptSet(str(content.get("name", name)), tuple(_parse_prompt(entry, name) for entry in content["prompts"]))


def _parse_prompt(entry: Any, name: str) -> Prompt:
    if not isinstance(entry, dict) or not all(isinstance(entry.get(key), str) for key in ("id", "prompt")):
        raise DataError(f'prompt set {name}: every prompt needs the texts "id" and "prompt"')
    try:
        label = Label.from_dict(entry) if "motion" in entry else None
    except DataError as error:
        raise DataError(f"prompt {entry['id']}: {error}") from None
    return Prompt(entry["id"], entry["prompt"], label, entry.get("mover"))
