"""Columns whose clips differ in size, rate or length: most temporal metrics change with each of them."""

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


def _all(found: dict[Pair, Shape]) -> str:
    different = sorted(set(found.values()), key=str)
    return ", ".join(_text(shape) for shape in different[:3]) + (" and more" if len(different) > 3 else "")


def _text(shape: Shape) -> str:
    width, height, frames, fps = shape
    return f"{width}x{height}, {frames} frames, {'unknown rate' if fps is None else f'{fps:g} fps'}"
