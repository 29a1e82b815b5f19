"""Motion adapters from the Hugging Face Hub: the only node of this pack that fetches adapters."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as StillRunning
from pathlib import Path
from typing import Any

import comfy.model_management
import folder_paths
from comfy_api.latest import io

from phys_pipeline.adapters.comfyui_loras import fetch_into
from phys_pipeline.adapters.hub import arrived
from phys_pipeline.errors import AdapterError

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
            outputs=[
                result(MOTION_ADAPTER, "adapter"),
                result(io.String, "lora_name"),
            ],
            hidden=[io.Hidden.unique_id],
        )

    @classmethod
    def execute(cls, repo_id: str, filename: str, revision: str, offline_only: bool) -> io.NodeOutput:
        folders = folder_paths.get_folder_paths("loras")
        if not folders:
            raise AdapterError("ComfyUI has no folder for LoRAs: add one to extra_model_paths.yaml")
        loras, repo_id, revision = Path(folders[0]), repo_id.strip(), revision.strip() or "main"
        thread = ThreadPoolExecutor(max_workers=1)
        try:
            fetching = thread.submit(fetch_into, loras, repo_id, filename.strip(), revision, offline_only)
            path = _waited(fetching, lambda: say(cls, f"{repo_id}: {arrived(repo_id) / 1e6:.1f} MB are here"))
        finally:
            thread.shutdown(wait=False, cancel_futures=True)
        adapter: dict[str, Any] = {**adapter_of(path), "repo_id": repo_id, "revision": revision}
        return io.NodeOutput(adapter, str(path.relative_to(loras)))


def _waited(coming: Future[Path], show: Callable[[], None]) -> Path:
    """The result; until it is there ``show`` is called, and an interruption raised. A download then ends by itself."""
    while True:
        comfy.model_management.throw_exception_if_processing_interrupted()
        try:
            return coming.result(timeout=0.2)
        except StillRunning:
            if coming.done():  # its own time-out
                raise
            show()
