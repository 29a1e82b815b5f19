"""The nested spelling of the adapter's settings: `lora: null`, or `lora: {rank: 16, alpha: 8, targets: REGEX}`."""

from __future__ import annotations

from typing import Any

from phys_pipeline.errors import ConfigError

LORA = {"rank": "rank", "alpha": "alpha", "targets": "lora_targets"}  # nested name -> field of TrainConfig


def flat_lora(values: dict[str, Any]) -> dict[str, Any]:
    """`values` with `lora` written as the fields, `lora: null` as `rank: null`. Raises ConfigError where two spellings differ."""
    if "lora" not in values:
        return values
    rest = {key: value for key, value in values.items() if key != "lora"}
    nested = {"rank": None} if values["lora"] is None else values["lora"]
    if not isinstance(nested, dict) or not nested or set(nested) - set(LORA):
        raise ConfigError(f"lora={nested!r} should be null (train every weight) or a mapping of {', '.join(LORA)}")
    for name, value in nested.items():
        key = LORA[name]
        if rest.setdefault(key, value) != value:
            raise ConfigError(f"lora.{name}={value} and {key}={rest[key]} contradict each other: keep one")
    return rest
