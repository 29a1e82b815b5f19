"""Numbers made by the reference implementations of the models (tests/golden/README.md)."""

from __future__ import annotations

import json
from pathlib import Path

from safetensors import safe_open
from torch import Tensor

FOLDER = Path(__file__).parent / "golden"


def group(name: str, prefix: str) -> dict[str, Tensor]:
    """Tensors of a golden file below ``prefix``, without it."""
    with safe_open(FOLDER / f"{name}.safetensors", "pt") as file:
        return {key[len(prefix) :]: file.get_tensor(key) for key in file.keys() if key.startswith(prefix)}  # noqa: SIM118


def config(name: str) -> dict:
    """The configuration that the numbers were made with."""
    return json.loads((FOLDER / f"{name}.config.json").read_text())
