"""Numbers and texts that came from a browser or an API call: checked before anything is done with them."""

from __future__ import annotations

import math
from typing import Any

from phys_pipeline.errors import ConfigError

LONGEST_PROMPT = 1000  # characters


def whole(value: Any, name: str, low: int, high: int) -> int:
    """A whole number in [low, high]. Raises ConfigError for anything else: NaN, texts, fractions."""
    number_ = number(value, name, low, high)
    if number_ != int(number_):
        raise ConfigError(f"{name} is {number_:g}: use a whole number")
    return int(number_)


def number(value: Any, name: str, low: float, high: float) -> float:
    """A finite number in [low, high]. Raises ConfigError for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ConfigError(f"{name} must be a number from {low:g} to {high:g}")
    if not low <= value <= high:
        raise ConfigError(f"{name} is {value:g}: use a number from {low:g} to {high:g}")
    return float(value)


def text(value: Any, name: str, longest: int = LONGEST_PROMPT) -> str:
    """A text on one line, without control characters. Raises ConfigError when it is empty or too long."""
    if not isinstance(value, str) or not value.strip():
        raise ConfigError(f"the {name} is empty")
    cleaned = " ".join("".join(c if c.isprintable() else " " for c in value).split())
    if len(cleaned) > longest:
        raise ConfigError(f"the {name} has {len(cleaned)} characters: use at most {longest}")
    if not cleaned:
        raise ConfigError(f"the {name} is empty")
    return cleaned
