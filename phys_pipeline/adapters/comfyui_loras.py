"""Adapters from the Hub in ComfyUI's folder for LoRAs."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from phys_pipeline.adapters.hub import copy_adapter, fetch_adapter
from phys_pipeline.atomic import atomic_file
from phys_pipeline.errors import AdapterError
from phys_pipeline.hub import Hub

FOLDER = "physmotion"
_REPO = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_COMMIT = re.compile(r"[0-9a-f]{40}")


def fetch_into(
    loras: Path,
    repo_id: str,
    filename: str = "",
    revision: str = "main",
    offline: bool = False,
    *,
    hub: Hub | None = None,
    starts: Callable[[int], None] | None = None,
) -> Path:
    """The file ``physmotion/OWNER__NAME/COMMIT/FILE`` below ``loras``, fetched if need be.

    ``filename`` is a safetensors file of the repository; empty: the adapter's own. A file of a commit that is there already is
    taken without network, and with ``offline`` so is the last one of a branch. ``starts`` is called with the size in bytes
    before a download. Raises HubError, or AdapterError for a
    name that is none and for what isn't there with ``offline``.
    """
    if not _REPO.fullmatch(repo_id):
        raise AdapterError(f"{repo_id!r} is no repository of the Hub: write owner/name")
    folder = loras / FOLDER / repo_id.replace("/", "__")
    if filename and (not filename.endswith(".safetensors") or ".." in filename.split("/") or filename.startswith(("/", "\\"))):
        raise AdapterError(f"{filename!r} is no safetensors file within the repository: other files are not taken")
    if _COMMIT.fullmatch(revision) or offline:
        there = _there(folder, filename, revision)
        if there is not None:
            return there
    if offline:
        raise AdapterError(f"{repo_id} at {revision} is not in {folder}: switch offline_only off once, or put the file there")
    fetched = fetch_adapter(f"{repo_id}@{revision}", weight_name=filename or None, hub=hub, starts=starts)
    target = folder / fetched.commit[:8]
    target.mkdir(parents=True, exist_ok=True)
    copied = copy_adapter(fetched, target)
    with atomic_file(folder / _note(revision)) as temporary:
        temporary.write_text(fetched.commit[:8], encoding="ascii")
    return copied


def _there(folder: Path, filename: str, revision: str) -> Path | None:
    """A file fetched before; None if there is none, or several and no name."""
    note = folder / _note(revision)
    short = revision[:8] if _COMMIT.fullmatch(revision) else note.read_text(encoding="ascii") if note.is_file() else ""
    if not re.fullmatch(r"[0-9a-f]{8}", short):
        return None
    found = sorted((folder / short).glob("*.safetensors"))
    if filename:
        found = [file for file in found if file.name == Path(filename).name]
    return found[0] if len(found) == 1 else None


def _note(revision: str) -> str:
    return f"{re.sub(r'[^0-9A-Za-z.-]', '_', revision)}.revision"
