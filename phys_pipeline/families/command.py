"""``phys-pipeline families``: the base models there are, and in what they differ."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Any

from phys_pipeline.families import family_names, get_family

_COLUMNS = ("family", "predicts", "billions", "time", "space", "shift", "guidance", "fps", "frames")


def main(arguments: Sequence[str]) -> int:
    """Print the table, or its rows as JSON."""
    parser = argparse.ArgumentParser(
        prog="phys-pipeline families",
        description="List the model families: what each predicts, parameters of the transformer in billions, pixel frames and "
        "pixels per latent, default timestep shift and guidance, frame rate, numbers of frames, sizes, licence of the weights, "
        "memory to generate, and a model.",
    )
    parser.add_argument("families", nargs="*", metavar="FAMILY", help="only these (default: all)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(arguments)
    rows = [facts(name) for name in options.families or family_names()]
    print(
        json.dumps({"schema": "phys-pipeline/families", "version": 1, "families": rows}, indent=2)
        if options.json
        else table(rows)
    )
    return 0


def facts(name: str) -> dict[str, Any]:
    """What the table says of a family. ConfigError for an unknown name."""
    spec = get_family(name).spec
    return {
        "family": spec.name, "predicts": spec.prediction, "billions": spec.parameters, "time": spec.time_stride,
        "space": spec.space_stride, "shift": spec.default_shift, "guidance": spec.default_guidance, "fps": spec.native_fps,
        "frames": spec.frame_rule, "sizes": spec.sizes, "licence": spec.licence, "memory": spec.memory, "model": spec.hub_id,
    }  # fmt: skip


def table(rows: list[dict[str, Any]]) -> str:
    """A line of numbers for each family, and below it what takes words."""
    lines = [_COLUMNS, *([_cell(row[name]) for name in _COLUMNS] for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(_COLUMNS))]
    text = [_line(_COLUMNS, widths)]
    for row in rows:
        text.append(_line([_cell(row[name]) for name in _COLUMNS], widths))
        text += [f"    {name:8} {row[name]}" for name in ("sizes", "licence", "memory", "model")]
    return "\n".join(text)


def _cell(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    words = {0, 1, len(cells) - 1}  # these stand left, numbers right
    return "  ".join(
        c.ljust(w) if i in words else c.rjust(w) for i, (c, w) in enumerate(zip(cells, widths, strict=True))
    ).rstrip()
