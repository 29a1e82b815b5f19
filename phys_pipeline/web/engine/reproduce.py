"""The command line that makes a run of the page again."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from phys_pipeline.web.engine.settings import TINY

_OPTIONS = {
    "num_inference_steps": "--steps",
    "num_frames": "--frames",
    "height": "--height",
    "width": "--width",
    "fps": "--fps",
    "guidance_scale": "--guidance",
    "true_cfg_scale": "--true-cfg",
}


def generate_command(
    prompt: str,
    *,
    model: str,
    adapter: str,
    weight: float,
    seed: int,
    settings: Mapping[str, Any],
    precision: str = "fp32",
    family: str | None = None,
) -> str:
    """``phys-pipeline generate ...`` with every setting written out; ``adapter`` as a command line names it, "" for none."""
    words = ["phys-pipeline", "generate", prompt]
    if model != TINY:
        words += ["--model", model]
    if family is not None:
        words += ["--family", family]
    if adapter:
        words += ["--adapter", adapter, "--baseline"]
        if weight != 1:
            words += ["--weight", f"{weight:g}"]
    words += ["--seed", str(seed)]
    for name, option in _OPTIONS.items():
        if settings.get(name) is not None:
            words += [option, f"{settings[name]:g}"]
    if precision != "fp32":
        words += ["--precision", precision]
    words += ["-o", "pair.mp4", "--scores", "pair.json", "--raw", "videos"]
    return shlex.join(words)


def score_command(name: str) -> str:
    """``phys-pipeline score`` of a file by the visitor's own name for it."""
    return shlex.join(["phys-pipeline", "score", "--json", "--", name])


def compare_command(first: str, second: str) -> str:
    """``phys-pipeline compare`` of two files."""
    return shlex.join(["phys-pipeline", "compare", "-o", "comparison.mp4", "--scores", "scores.json", "--", first, second])
