"""Columns whose clips are not alike in size, rate or length, on which most temporal metrics depend, or are the same files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations

from phys_pipeline.evaluation.rows import Row
from phys_pipeline.evaluation.statistics import Pair

Shape = tuple[int, int, int, float | None]  # width, height, frames, frames per second


def shapes(rows: Iterable[Row]) -> dict[str, dict[Pair, Shape]]:
    """Size, length and rate of each decoded clip: ``{column: {(prompt, seed): shape}}``."""
    found: dict[str, dict[Pair, Shape]] = {}
    for row in rows:
        if row.width:
            rate = None if row.fps is None else round(row.fps, 2)
            found.setdefault(row.model, {})[row.pair] = (row.width, row.height, row.frames, rate)
    return found


def mismatches(rows: Sequence[Row], columns: Sequence[str]) -> list[str]:
    """One line for each two columns whose clips differ: of the same prompts, or of all where they share none."""
    known = shapes(rows)
    lines = []
    for first, second in combinations([key for key in columns if key in known], 2):
        shared = [pair for pair in known[first] if pair in known[second]]
        different = [pair for pair in shared if known[first][pair] != known[second][pair]]
        if different:
            pair = different[0]
            lines.append(
                f"{first} and {second} differ in {len(different)} of {len(shared)} clips, for example {pair[0]}: "
                f"{_text(known[first][pair])} and {_text(known[second][pair])}"
            )
        elif not shared and set(known[first].values()) != set(known[second].values()):
            text = f"{_all(known[first])}; {_all(known[second])}"
            lines.append(f"{first} and {second} share no prompt, and their clips differ: {text}")
    return lines


def identical(rows: Sequence[Row], columns: Sequence[str]) -> list[str]:
    """One line for each two columns that show the same video (by its SHA-256) for the same prompt and seed."""
    digests: dict[str, dict[Pair, str]] = {key: {} for key in columns}
    for row in rows:
        if row.digest and row.model in digests:
            digests[row.model][row.pair] = row.digest
    lines = []
    for first, second in combinations(columns, 2):
        same = [pair for pair, digest in digests[first].items() if digests[second].get(pair) == digest]
        if same:
            lines.append(f"{first} and {second} show the same video for {len(same)} prompts, for example {same[0][0]}")
    return lines


def _all(found: dict[Pair, Shape]) -> str:
    different = sorted(set(found.values()), key=str)
    return ", ".join(_text(shape) for shape in different[:3]) + (" and more" if len(different) > 3 else "")


def _text(shape: Shape) -> str:
    width, height, frames, fps = shape
    return f"{width}x{height}, {frames} frames, {'unknown rate' if fps is None else f'{fps:g} fps'}"
