"""Adapters from the Hub: one named file of one commit, safetensors only, its checksum compared; from the cache if it is there."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from phys_pipeline.adapters.files import MOST_BYTES, shown
from phys_pipeline.adapters.formats import WEIGHTS_FILE
from phys_pipeline.atomic import atomic_file
from phys_pipeline.errors import AdapterError, HubError
from phys_pipeline.hub import Hub, HubSource, check_file_name, parse_source, transfer_seconds
from phys_pipeline.hub.names import is_commit, leads_out

logger = logging.getLogger(__name__)

_UNREACHABLE = ("network", "server", "rate", "timeout", "offline")


@dataclass(frozen=True)
class FetchedAdapter:
    """An adapter file in the Hub's cache whose checksum was compared."""

    source: HubSource
    commit: str
    file: Path
    sha256: str


def fetch_adapter(
    text: str,
    *,
    weight_name: str | None = None,
    seconds: float | None = None,
    hub: Hub | None = None,
    starts: Callable[[int], None] | None = None,
) -> FetchedAdapter:
    """Get OWNER/NAME or OWNER/NAME@REVISION into the cache.

    ``weight_name`` is the file to take; default the name that diffusers gives, or the repository's only safetensors file at the
    top. With HF_HUB_OFFLINE=1, or for a commit that is cached, the Hub isn't asked; if it can't be reached, a cached copy is
    used with a warning. Raises HubError, or AdapterError where what is there is no adapter file. ``seconds`` bounds the
    download, by default by its size; ``starts`` is called with the size in bytes before it.
    """
    source = parse_source(text)
    if weight_name is not None:
        _check_weight_name(weight_name)
    cached = _cached(source, weight_name)
    if cached is not None and (source.pinned or _is_offline()):
        return cached
    if _is_offline():
        raise HubError(f"{source} is not in the cache and HF_HUB_OFFLINE=1 forbids to ask the Hub: unset it once, or give a "
                       "local file", "offline")  # fmt: skip
    with hub or Hub() as hub:
        try:
            return _download(hub, source, weight_name, seconds, starts)
        except HubError as error:
            if cached is None or error.kind not in _UNREACHABLE:
                raise
            logger.warning("%s; used the cached copy of commit %s, which may not be the newest", error, cached.commit[:8])
            return cached


def copy_adapter(fetched: FetchedAdapter, folder: Path) -> Path:
    """Copy the weights into a folder, such as ComfyUI's models/loras. AdapterError where another file has that name."""
    copy = folder / fetched.file.name
    if copy.exists() and (not copy.is_file() or sha256(copy) != fetched.sha256):
        raise AdapterError(f"{copy} exists and is another file: choose another folder")
    with atomic_file(copy) as temporary:
        shutil.copyfile(fetched.file, temporary)
        if sha256(temporary) != fetched.sha256:
            raise AdapterError(
                f"{fetched.file} changed while it was being copied, or the disk is failing: run the same command again"
            )
    return copy


def arrived(repo_id: str) -> int:
    """Bytes of a repository in the cache, those of a download that still goes on included."""
    return sum(file.stat().st_size for file in (_repository(repo_id) / "blobs").glob("*"))


def matches(file: Path, entry: Mapping[str, Any]) -> bool:
    """Whether a file has the checksum that the Hub lists: SHA-256 for large files, git's blob id for small ones."""
    if file.stat().st_size != entry["size"]:
        return False
    return sha256(file) == entry["sha256"] if entry["sha256"] else _git_oid(file) == entry["oid"]


def _download(
    hub: Hub, source: HubSource, weight_name: str | None, seconds: float | None, starts: Callable[[int], None] | None
) -> FetchedAdapter:
    about = hub.call("info", repo_id=source.repo_id, revision=source.revision)
    commit, files = about["commit"], about["files"]
    _check_listing(source, commit, files)
    name = weight_name or _only_weights(source, files)
    if name not in files:
        raise HubError(f"{source} has no file {shown(name)}: it has {_some(files)}", "entry")
    size = files[name]["size"]
    if not 0 < size <= MOST_BYTES:
        raise HubError(f"{shown(name)} of {source} has {size / 1e9:.1f} GB, no size of an adapter: give a LoRA file", "size")
    if starts is not None:
        starts(size)
    file = _checked(hub, source.repo_id, commit, name, files[name], seconds)
    if not source.pinned:
        _remember(source, commit)
    return FetchedAdapter(source, commit, file, sha256(file))


def _checked(hub: Hub, repo_id: str, commit: str, name: str, entry: Mapping[str, Any], seconds: float | None) -> Path:
    """A file of a commit, in the cache. Damaged ones are got again once, and never stay in the cache."""
    limit = transfer_seconds(entry["size"]) if seconds is None else seconds
    free = shutil.disk_usage(next(parent for parent in (_cache(), *_cache().parents) if parent.exists())).free
    there = _repository(repo_id) / "snapshots" / commit / name
    if there.is_file() and matches(there, entry):
        return there
    if free < entry["size"]:
        raise HubError(f"{shown(name)} of {repo_id} needs {entry['size'] / 1e6:.0f} MB and the disk has {free / 1e6:.0f}: make "
                       "room, or set HF_HOME to a folder on another disk", "disk")  # fmt: skip
    for again in (there.is_file(), True):
        got = hub.call(
            "download", seconds=limit, repo_id=repo_id, revision=commit, names=[name], cache=str(_cache()), again=again
        )
        file = Path(got[name])
        if file.is_file() and matches(file, entry):
            return file
        _forget(file)
    raise HubError(f"{shown(name)} of {repo_id} arrives damaged, its checksum is wrong: run the same command again, or tell the "
                   "repository's owner", "damaged")  # fmt: skip


def _cached(source: HubSource, weight_name: str | None) -> FetchedAdapter | None:
    """A copy in the cache, whose checksum is the name of its blob."""
    ref = _repository(source.repo_id) / "refs" / source.revision
    commit = source.revision if source.pinned else ref.read_text(encoding="utf-8").strip() if ref.is_file() else ""
    if not is_commit(commit):
        return None
    snapshot = _repository(source.repo_id) / "snapshots" / commit
    file = snapshot / (weight_name or WEIGHTS_FILE)
    if weight_name is None and not file.is_file():
        found = sorted(snapshot.glob("*.safetensors"))
        file = found[0] if len(found) == 1 else file
    if not file.is_file():
        return None
    named, digest = Path(os.readlink(file)).name if file.is_symlink() else "", sha256(file)
    if re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", named) and named not in (digest, _git_oid(file)):
        _forget(file)
        logger.warning("the cached copy of %s was damaged and has been removed", source)
        return None
    return FetchedAdapter(source, commit, file, digest)


def _check_listing(source: HubSource, commit: str, files: Mapping[str, Any]) -> None:
    if not is_commit(str(commit)):
        raise HubError(f"the Hub names no commit for {source}: it may be down, try again in some minutes", "server")
    hostile = next((name for name in files if leads_out(name)), None)
    if hostile is not None:
        raise HubError(f"{source} lists a file {shown(hostile)} that would leave its folder: it is not to be trusted", "hostile")


def _only_weights(source: HubSource, files: Mapping[str, Any]) -> str:
    if WEIGHTS_FILE in files:
        return WEIGHTS_FILE
    found = [name for name in sorted(files) if name.endswith(".safetensors") and "/" not in name]
    if len(found) == 1:
        return check_file_name(found[0])
    pickles = [name for name in files if name.endswith((".bin", ".pt", ".pth", ".ckpt"))]
    if not found and pickles:
        raise HubError(f"{source} has its weights as a pickle only ({shown(pickles[0])}), which could run code: ask its owner "
                       "for safetensors", "pickle")  # fmt: skip
    what = f"has {len(found)} safetensors files" if found else "has no safetensors file at the top"
    raise HubError(f"{source} {what}; it has {_some(files)}: name one with `phys-pipeline fetch {source} --file NAME -o FOLDER`",
                   "entry")  # fmt: skip


def _check_weight_name(name: str) -> None:
    check_file_name(name)
    if not name.endswith(".safetensors"):
        raise HubError(f"{shown(name)} is no safetensors file: other kinds could run code and are not fetched", "pickle")


def _some(files: Mapping[str, Any]) -> str:
    names = [shown(name) for name in sorted(files) if not name.startswith(".")]
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "") if names else "no files"


def _is_offline() -> bool:
    from huggingface_hub import constants

    return bool(constants.HF_HUB_OFFLINE)


def _cache() -> Path:
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


def _repository(repo_id: str) -> Path:
    """A repository's folder in the cache, as the client lays it out."""
    return _cache() / f"models--{repo_id.replace('/', '--')}"


def _remember(source: HubSource, commit: str) -> None:
    """Note which commit a branch or tag was, where the client looks without a network."""
    ref = _repository(source.repo_id) / "refs" / source.revision
    if not ref.is_file() or ref.read_text(encoding="utf-8") != commit:
        with atomic_file(ref) as temporary:
            temporary.write_text(commit, encoding="utf-8")


def _forget(file: Path) -> None:
    """Remove a file and the blob it points to from the cache."""
    blob = file.parent / os.readlink(file) if file.is_symlink() else file
    for path in (Path(os.path.realpath(file)), blob, file):
        path.unlink(missing_ok=True)


def sha256(file: Path) -> str:
    return _digest(file, hashlib.sha256())


def _git_oid(file: Path) -> str:
    return _digest(file, hashlib.sha1(b"blob %d\0" % file.stat().st_size))


def _digest(file: Path, digest: Any) -> str:
    with file.open("rb") as opened:
        while piece := opened.read(1 << 20):
            digest.update(piece)
    return str(digest.hexdigest())
