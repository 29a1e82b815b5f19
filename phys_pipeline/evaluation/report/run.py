"""What a report says of the run that made it."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from phys_pipeline import __version__
from phys_pipeline.errors import ConfigError

_PACKAGES = ("torch", "torchvision", "numpy", "av", "opencv-python-headless", "transformers", "diffusers")
REQUIRED = ("date", "versions", "device", "protocol", "seed", "command")


def describe_run(
    command: str, *, protocol: str = "fixed", device: str = "cpu", seed: int = 0, prompt_set: str = "", split: str = ""
) -> dict[str, Any]:
    """The ``run`` of :func:`write_report`: now, with the versions of the packages that are installed here.

    ``prompt_set`` and ``split`` name the prompts and the file that splits them into strata.
    """
    versions = {"phys-pipeline": __version__, "python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "versions": versions,
        "device": device,
        "protocol": protocol,
        "seed": seed,
        "command": command,
        "prompts": {"set": prompt_set, "split": split},
    }


def check_run(run: Mapping[str, Any]) -> None:
    """Raise ConfigError when something is missing that a reader needs."""
    missing = [key for key in REQUIRED if key not in run]
    if missing:
        raise ConfigError(f"the run does not say its {', '.join(missing)}; make it with describe_run")
