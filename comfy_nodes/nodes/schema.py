"""Schemas that every supported ComfyUI accepts: keywords that the installed one doesn't know are left out.

Names, descriptions and tooltips are those of ``locales/en/nodeDefs.json``, so that they are written down once.
"""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

from comfy_api.latest import io

MOTION_ADAPTER = io.Custom("MOTION_ADAPTER")  # dict: path, format, sha256, base_model
MOTION_SCORE = io.Custom("MOTION_SCORE")  # dict: a motion report as phys_pipeline makes it, and start_frame
T2V_PIPELINE = io.Custom("T2V_PIPELINE")  # a PipelineHandle

_TEXTS = json.loads((Path(__file__).parents[1] / "locales" / "en" / "nodeDefs.json").read_text(encoding="utf-8"))


def schema(name: str, *, inputs: list[Any], outputs: list[Any], **keywords: Any) -> io.Schema:
    """The schema of the node ``PhysMotion_NAME``. ``inputs`` and ``outputs`` are made by :func:`field` and :func:`result`."""
    texts = _TEXTS[f"PhysMotion_{name}"]
    for place in inputs:
        place.tooltip = texts["inputs"][place.id]["tooltip"]
    for number, place in enumerate(outputs):
        place.tooltip = texts["outputs"][str(number)]["tooltip"]
    about = {"display_name": texts["display_name"], "description": texts["description"]}
    given = {"node_id": f"PhysMotion_{name}", **about, "inputs": inputs, "outputs": outputs, **keywords}
    return io.Schema(**_accepted(io.Schema, given))


def field(kind: Any, name: str, **keywords: Any) -> Any:
    """An input of a type such as ``io.Image``."""
    return kind.Input(name, **_accepted(kind.Input, keywords))


def result(kind: Any, name: str, **keywords: Any) -> Any:
    """An output."""
    return kind.Output(f"{name}_output", **_accepted(kind.Output, {"display_name": name, **keywords}))


def _accepted(call: Any, keywords: dict[str, Any]) -> dict[str, Any]:
    """An unknown keyword would keep the whole pack from loading."""
    known = inspect.signature(call).parameters
    return {name: value for name, value in keywords.items() if name in known}
