"""Names of repositories, revisions and files on the Hub, checked before anything is asked or written."""

from __future__ import annotations

import re
from dataclasses import dataclass

from phys_pipeline.errors import HubError

_PART = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9])?"
_REPOSITORY = re.compile(rf"{_PART}/{_PART}")
_REVISION = re.compile(r"[A-Za-z0-9][\w./-]{0,200}")
_FILE_PART = re.compile(r"[A-Za-z0-9_][\w .()+=,-]{0,200}")
_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".ckpt")


@dataclass(frozen=True)
class HubSource:
    """A repository and a branch, tag or commit of it."""

    repo_id: str
    revision: str = "main"

    @property
    def pinned(self) -> bool:
        """Whether the revision is a commit, which never changes."""
        return is_commit(self.revision)

    def __str__(self) -> str:
        return self.repo_id if self.revision == "main" else f"{self.repo_id}@{self.revision}"


def is_hub_source(text: str) -> bool:
    """Whether ``text`` may be OWNER/NAME or OWNER/NAME@REVISION; the name of a weights file is none."""
    repo_id, _, _ = text.partition("@")
    return is_repo_id(repo_id) and not repo_id.lower().endswith(_WEIGHTS)


def parse_source(text: str) -> HubSource:
    """OWNER/NAME or OWNER/NAME@REVISION; HubError if it is neither."""
    repo_id, at, revision = text.partition("@")
    if not is_hub_source(text) or (at and (not _REVISION.fullmatch(revision) or ".." in revision)):
        raise HubError(f"{text!r} is no repository of the Hub: write OWNER/NAME or OWNER/NAME@REVISION", "name")
    return HubSource(repo_id, revision or "main")


def is_repo_id(text: str) -> bool:
    """Whether ``text`` is OWNER/NAME as the Hub allows it."""
    return _REPOSITORY.fullmatch(text) is not None and "--" not in text and ".." not in text


def check_repo_id(text: str) -> str:
    """A repository to publish to; HubError unless it is OWNER/NAME."""
    if not is_repo_id(text):
        raise HubError(f"{text!r} is no name for a repository: write OWNER/NAME with letters, digits, '-', '_' and '.'", "name")
    return text


def check_tag(text: str) -> str:
    """A tag to make; HubError unless it is a plain name that can't be taken for a commit."""
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]{0,60}", text) or ".." in text or is_commit(text) or text == "main":
        raise HubError(f"{text!r} is no name for a tag: use one such as v1.0", "name")
    return text


def check_file_name(name: str) -> str:
    """A file's path inside a repository, as it may be used here; HubError for one that could leave its folder or hide."""
    parts = name.split("/")
    if len(name) > 300 or len(parts) > 8 or not all(_FILE_PART.fullmatch(part) and ".." not in part for part in parts):
        shown = name.encode("unicode_escape").decode()[:80]
        raise HubError(
            f"the file name {shown!r} could lead out of its folder: it is not used, tell the repository's owner", "name"
        )
    return name


def leads_out(name: str) -> bool:
    """Whether a listed name would lie outside of its folder on some system: no honest repository has one."""
    parts = re.split(r"[/\\]", name)
    return ".." in parts or "" in parts or bool(re.match(r"[A-Za-z]:", name)) or any(ord(letter) < 32 for letter in name)


def is_commit(revision: str) -> bool:
    return re.fullmatch(r"[0-9a-f]{40}", revision) is not None
