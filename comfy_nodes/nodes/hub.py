"""Motion adapters from the Hugging Face Hub: the only node of this pack that fetches adapters."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as StillRunning
from pathlib import Path
from typing import Any

import comfy.model_management
import comfy.utils
import folder_paths
from comfy_api.latest import io

from phys_pipeline.adapters.comfyui_loras import fetch_into
from phys_pipeline.adapters.hub import arrived
from phys_pipeline.errors import AdapterError
from phys_pipeline.hub import Hub

from .adapters import adapter_of
from .running import say
from .schema import MOTION_ADAPTER, field, result, schema


class AdapterFromHub(io.ComfyNode):
    @classmethod
    def define_schema(cls) -> io.Schema:
        return schema(
            "AdapterFromHub",
            category="PhysMotion/loaders",
            search_aliases=["huggingface", "download lora", "hub"],
            inputs=[
                field(io.String, "repo_id", default="", placeholder="owner/name"),
                field(io.String, "filename", default=""),
                field(io.String, "revision", default="main"),
                field(io.Boolean, "offline_only", default=False),
            ],
            outputs=[result(MOTION_ADAPTER, "adapter"), result(io.String, "lora_name")],
            hidden=[io.Hidden.unique_id],
        )

    @classmethod
    def execute(cls, repo_id: str, filename: str, revision: str, offline_only: bool) -> io.NodeOutput:
        folders = folder_paths.get_folder_paths("loras")
        if not folders:
            raise AdapterError("ComfyUI has no folder for LoRAs: add one to extra_model_paths.yaml")
        loras, repo_id, revision = Path(folders[0]), repo_id.strip(), revision.strip() or "main"
        progress, hub, thread = _Arriving(cls, repo_id), Hub(), ThreadPoolExecutor(max_workers=1)
        given = {"hub": hub, "starts": progress.starts}
        try:
            path = _waited(thread.submit(fetch_into, loras, repo_id, filename.strip(), revision, offline_only, **given), progress)
        finally:
            hub.cancel()  # a download that goes on after an interruption
            thread.shutdown(wait=False)
        adapter: dict[str, Any] = {**adapter_of(path), "repo_id": repo_id, "revision": revision}
        return io.NodeOutput(adapter, str(path.relative_to(loras)))


class _Arriving:
    """A download's progress, on the node's bar and in words; called again and again while it goes on."""

    def __init__(self, cls: type[io.ComfyNode], repo_id: str) -> None:
        self._cls, self._repo_id, self._before, self._size = cls, repo_id, 0, 0
        self._bar: Any = None

    def starts(self, size: int) -> None:
        """Called by the thread that downloads, which may not touch the bar."""
        self._before, self._size = arrived(self._repo_id), size

    def __call__(self) -> None:
        if not self._size:
            say(self._cls, f"looking for {self._repo_id}")
            return
        here = min(max(0, arrived(self._repo_id) - self._before), self._size)
        self._bar = self._bar or comfy.utils.ProgressBar(self._size)
        self._bar.update_absolute(here)
        say(self._cls, f"{self._repo_id}: {here / 1e6:.1f} of {self._size / 1e6:.1f} MB")


def _waited(coming: Future[Path], show: Callable[[], None]) -> Path:
    """The result; until it is there ``show`` is called, and an interruption raised."""
    while True:
        comfy.model_management.throw_exception_if_processing_interrupted()
        try:
            return coming.result(timeout=0.2)
        except StillRunning:
            if coming.done():  # its own time-out
                raise
            show()
