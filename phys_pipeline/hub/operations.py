"""What is asked of the Hub, one function for each question. Arguments and results are plain JSON, for another process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from phys_pipeline.errors import HubError
from phys_pipeline.hub.trouble import explain


def perform(operation: str, arguments: Mapping[str, Any]) -> Any:
    """Run one of the functions below. Raises HubError."""
    try:
        return OPERATIONS[operation](**arguments)
    except HubError:
        raise
    except Exception as error:  # huggingface_hub, its HTTP library and hf_xet have no common base
        raise explain(error, arguments.get("repo_id", "the Hub"), arguments.get("revision")) from error


def whoami() -> dict[str, Any]:
    """The account of the token in use: {"name", "organisations"}. One that may only read is refused by the Hub when it writes."""
    from huggingface_hub import HfApi

    found = HfApi().whoami(cache=True)  # the Hub counts these strictly
    return {"name": found["name"], "organisations": [org["name"] for org in found.get("orgs", ())]}


def info(repo_id: str, revision: str | None = None) -> dict[str, Any]:
    """A model repository at a revision: {"commit", "private", "files": {path: {"size", "oid", "sha256"}}}."""
    from huggingface_hub import HfApi

    found = HfApi().model_info(repo_id, revision=revision, files_metadata=True)
    files = {
        item.rfilename: {"size": item.size, "oid": item.blob_id, "sha256": item.lfs.sha256 if item.lfs else None}
        for item in found.siblings or ()
    }
    return {"commit": found.sha, "private": bool(found.private), "files": files}


def create(repo_id: str) -> None:
    """Make a private model repository; nothing happens if there is one."""
    from huggingface_hub import HfApi

    HfApi().create_repo(repo_id, private=True, exist_ok=True)


def commit(repo_id: str, parent: str, title: str, files: Mapping[str, Mapping[str, str]]) -> str:
    """One atomic commit upon ``parent``: {path: {"file": local path} or {"text": content}}; returns its id."""
    from huggingface_hub import CommitOperationAdd, HfApi

    operations = [
        CommitOperationAdd(path, given["text"].encode() if "text" in given else given["file"]) for path, given in files.items()
    ]
    return HfApi().create_commit(repo_id, operations, commit_message=title, parent_commit=parent).oid


def tags(repo_id: str) -> dict[str, str]:
    """{tag: commit}."""
    from huggingface_hub import HfApi

    return {tag.name: tag.target_commit for tag in HfApi().list_repo_refs(repo_id).tags}


def tag(repo_id: str, name: str, revision: str) -> None:
    """Name a commit."""
    from huggingface_hub import HfApi

    HfApi().create_tag(repo_id, tag=name, revision=revision)


def show(repo_id: str) -> None:
    """Make a repository public."""
    from huggingface_hub import HfApi

    HfApi().update_repo_settings(repo_id, private=False)


def download(repo_id: str, revision: str, names: list[str], cache: str | None = None, again: bool = False) -> dict[str, str]:
    """Files of a commit in the cache: {name: local path}. ``again`` replaces what is there."""
    from huggingface_hub import hf_hub_download

    return {name: hf_hub_download(repo_id, name, revision=revision, cache_dir=cache, force_download=again) for name in names}


OPERATIONS: dict[str, Callable[..., Any]] = {
    function.__name__: function for function in (whoami, info, create, commit, tags, tag, show, download)
}
