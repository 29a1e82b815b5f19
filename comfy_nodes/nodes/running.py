"""While a node runs: progress, interruption, and text and pictures on the node."""

from __future__ import annotations

from typing import Any

import comfy.model_management
import comfy.utils
import numpy as np
import torch
from comfy_api.latest import io, ui
from server import PromptServer


class Steps:
    """Calls of it count as steps on the node's progress bar; each raises if the user has interrupted."""

    def __init__(self, total: int) -> None:
        self._bar = comfy.utils.ProgressBar(max(1, total))

    def __call__(self) -> None:
        comfy.model_management.throw_exception_if_processing_interrupted()
        self._bar.update(1)


def say(cls: type[io.ComfyNode], text: str) -> None:
    """Show a text on the node, at once."""
    server, node = PromptServer.instance, cls.hidden.unique_id if cls.hidden is not None else None
    if server is not None and node is not None:
        server.send_progress_text(text, node)


def shown(cls: type[io.ComfyNode], text: str, picture: np.ndarray | None = None) -> dict[str, Any]:
    """What the node shows: a text, and a picture ``uint8 (H, W, 3)`` if there is one."""
    say(cls, text)
    content: dict[str, Any] = {"text": (text,)}
    if picture is not None:
        content |= ui.PreviewImage(as_image(picture), cls=cls).as_dict()
    return content


def as_image(picture: np.ndarray) -> torch.Tensor:
    """An IMAGE of one picture ``uint8 (H, W, 3)``."""
    image = torch.from_numpy(picture).to(torch.float32)[None] / 255.0
    return image.to(comfy.model_management.intermediate_device())
