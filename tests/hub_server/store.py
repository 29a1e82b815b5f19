"""What the Hub holds: accounts, repositories, commits and content-addressed files. Knows nothing of HTTP but status codes."""

from __future__ import annotations

import hashlib
import json
import re
import threading
import time
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from hub_server.xet import XetFiles

LFS_SUFFIXES = (".safetensors", ".bin", ".mp4", ".gif", ".png", ".webp")
LFS_BYTES = 10 << 20
ATTRIBUTES = b"".join(b"*%s filter=lfs diff=lfs merge=lfs -text\n" % suffix.encode() for suffix in LFS_SUFFIXES)


class Refused(Exception):
    """An answer that is an error, as the Hub words it."""

    def __init__(self, status: int, message: str, code: str | None = None, **headers: str) -> None:
        super().__init__(message)
        self.status, self.message, self.code = status, message, code
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


@dataclass(frozen=True)
class Account:
    """Whose token it is, and whether it may write. Organisations are namespaces that it may also use."""

    name: str
    role: str = "write"
    organisations: tuple[str, ...] = ()

    def owns(self, namespace: str) -> bool:
        return namespace == self.name or namespace in self.organisations


@dataclass(frozen=True)
class Entry:
    """A file in a commit. ``oid`` is its git blob id (of the pointer, for a large file), ``sha256`` that of a large file."""

    oid: str
    size: int
    sha256: str | None = None

    @property
    def etag(self) -> str:
        return self.sha256 or self.oid


@dataclass(frozen=True)
class Commit:
    parent: str | None
    tree: dict[str, Entry]
    title: str
    message: str
    author: str
    date: str


@dataclass
class Repo:
    id: str
    type: str
    private: bool
    gated: str | bool = False
    allowed: set[str] = field(default_factory=set)  # who may read a gated one
    disabled: bool = False
    refs: dict[str, str] = field(default_factory=dict)  # refs/heads/main, refs/tags/v1, refs/pr/1
    commits: dict[str, Commit] = field(default_factory=dict)
    discussions: dict[int, dict[str, Any]] = field(default_factory=dict)
    created: str = field(default_factory=lambda: now())

    @property
    def owner(self) -> str:
        return self.id.split("/")[0]

    @property
    def head(self) -> Commit:
        return self.commits[self.refs["refs/heads/main"]]

    def ref(self, revision: str) -> str | None:
        """The full name of a branch, tag or pull request."""
        names = (revision, f"refs/heads/{revision}", f"refs/tags/{revision}")
        return next((name for name in names if name in self.refs), None)

    def sha(self, revision: str) -> str:
        if revision in self.commits:
            return revision
        if name := self.ref(revision):
            return self.refs[name]
        raise Refused(404, f"Invalid rev id: {revision}", "RevisionNotFound")

    def history(self, revision: str) -> list[tuple[str, Commit]]:
        found, sha = [], self.sha(revision)
        while sha is not None:
            found.append((sha, self.commits[sha]))
            sha = self.commits[sha].parent
        return found


class Store:
    """Everything, in memory but for large files, which lie in ``root``."""

    def __init__(self, root: Path, xet: bool = True) -> None:
        self.large = root / "lfs"
        self.large.mkdir(parents=True)
        self.xet = XetFiles(root / "xet") if xet else None
        self.accounts: dict[str, Account] = {}
        self.repos: dict[tuple[str, str], Repo] = {}
        self.moved: dict[tuple[str, str], str] = {}
        self.blobs: dict[str, bytes] = {}
        self.lock = threading.RLock()

    # access
    def account(self, authorization: str | None) -> Account | None:
        if authorization is None:
            return None
        token = authorization.removeprefix("Bearer ")
        if token not in self.accounts:
            raise Refused(401, "Invalid credentials in Authorization header")
        return self.accounts[token]

    def repo(self, kind: str, name: str, who: Account | None, *, write: bool = False, content: bool = False) -> Repo:
        """A repository that ``who`` may see, write to, or read the files of."""
        repo = self.repos.get((kind, name))
        owned = repo is not None and who is not None and who.owns(repo.owner)
        if repo is None or (repo.private and not owned):
            raise Refused(404 if who else 401, "Repository not found", "RepoNotFound")
        if repo.disabled:
            raise Refused(403, "Access to this resource is disabled.")
        if write and not (owned and who and who.role == "write"):
            raise Refused(403, "Forbidden: you must use a write token to upload to a repository.")
        if content and repo.gated and not owned and not (who and who.name in repo.allowed):
            message = f"Access to model {name} is restricted and you are not in the authorized list."
            raise Refused(403 if who else 401, message, "GatedRepo")
        return repo

    # repositories
    def create(self, kind: str, name: str, who: Account | None, private: bool) -> tuple[Repo, bool]:
        """The repository and whether it is new."""
        namespace = name.split("/")[0]
        if who is None:
            raise Refused(401, "Invalid username or password.")
        if who.role != "write" or not who.owns(namespace):
            raise Refused(403, f'You don\'t have the rights to create a {kind} under the namespace "{namespace}"')
        with self.lock:
            if (kind, name) in self.repos:
                return self.repos[kind, name], False
            repo = self.repos[kind, name] = Repo(name, kind, private)
            self.commit(repo, "refs/heads/main", {".gitattributes": self.small(ATTRIBUTES)}, "initial commit", "", namespace)
            return repo, True

    def move(self, kind: str, old: str, new: str, who: Account | None) -> None:
        repo = self.repo(kind, old, who, write=True)
        self.repos[kind, new] = self.repos.pop((kind, old))
        repo.id = new
        self.moved[kind, old] = new

    def commit(self, repo: Repo, ref: str, tree: dict[str, Entry], title: str, message: str, author: str) -> str:
        with self.lock:
            parent = repo.refs.get(ref)
            content = [parent, sorted((path, entry.etag) for path, entry in tree.items()), title, message, time.time_ns()]
            sha = hashlib.sha1(json.dumps(content).encode()).hexdigest()
            repo.commits[sha] = Commit(parent, tree, title, message, author, now())
            repo.refs[ref] = sha
            return sha

    # files
    def small(self, data: bytes) -> Entry:
        oid = git_oid(data)
        self.blobs[oid] = data
        return Entry(oid, len(data))

    def large_entry(self, sha256: str, size: int) -> Entry:
        if not self.has(sha256):
            raise Refused(400, f"LFS pointer pointed to a file that does not exist: {sha256}")
        return Entry(git_oid(pointer(sha256, size)), size, sha256)

    def has(self, sha256: str) -> bool:
        return self.large_file(sha256).exists() or (self.xet is not None and self.xet.find(sha256) is not None)

    def large_file(self, sha256: str) -> Path:
        if not re.fullmatch(r"[0-9a-f]{64}", sha256):
            raise Refused(400, "an object id is 64 hexadecimal digits")
        return self.large / sha256

    def read(self, entry: Entry) -> bytes:
        if entry.sha256 is None:
            return self.blobs[entry.oid]
        file = self.large_file(entry.sha256)
        if not file.exists():
            assert self.xet is not None
            self.xet.restore(entry.sha256, file)
        return file.read_bytes()

    def corrupt(self, repo: Repo, path: str, place: int = -1) -> None:
        """Flip a bit of a file where it is stored; its checksum in the commits stays. For Xet, turn Xet off first."""
        entry = repo.head.tree[path]
        data = bytearray(self.read(entry))
        data[place] ^= 1
        if entry.sha256 is None:
            self.blobs[entry.oid] = bytes(data)
        else:
            self.large_file(entry.sha256).write_bytes(data)


def is_large(path: str, size: int) -> bool:
    return path.endswith(LFS_SUFFIXES) or size > LFS_BYTES


def git_oid(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def pointer(sha256: str, size: int) -> bytes:
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {size}\n".encode()


def now() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.000Z")
