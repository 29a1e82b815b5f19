"""Publish an adapter: one atomic commit, looked at again, tagged, and only then shown. A rerun goes on where it stopped.

Nothing in the run's folder is changed but the receipt, ``published.json``.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from phys_pipeline.adapters.contents import Contents, collect
from phys_pipeline.adapters.formats import WEIGHTS_FILE
from phys_pipeline.adapters.hub import matches
from phys_pipeline.adapters.readers import open_adapter
from phys_pipeline.adapters.writers import check_same
from phys_pipeline.atomic import atomic_file
from phys_pipeline.errors import AdapterError, HubError
from phys_pipeline.hub import Hub, transfer_seconds
from phys_pipeline.hub.trouble import TRANSIENT
from phys_pipeline.hub.worker import ATTEMPTS, MOST_WAIT

RECEIPT = "published.json"
_SCHEMA = "phys-pipeline/published"


@dataclass(frozen=True)
class Published:
    """Where an adapter is now. ``new`` is False if it had been there before."""

    repo_id: str
    commit: str
    tag: str | None
    private: bool
    new: bool

    def to_dict(self) -> dict[str, Any]:
        return {"commit": self.commit, "tag": self.tag, "private": self.private}


def plan(folder: str | Path, repo_id: str, *, tag: str | None = None, base_model: str | None = None) -> Contents:
    """What would be published, after all checks that need no network. AdapterError if something shouldn't be."""
    root = Path(folder)
    noted = read_receipt(root).get(repo_id, {})
    if tag is None and noted.get("tag"):  # the card of an unchanged adapter goes on to name its tag
        tagged = collect(root, repo_id, noted["tag"], base_model)
        if tagged.checksums() == noted.get("files"):
            return tagged
    return collect(root, repo_id, tag, base_model)


def publish(
    folder: str | Path,
    repo_id: str,
    *,
    public: bool | None = None,
    tag: str | None = None,
    base_model: str | None = None,
    seconds: float | None = None,
    hub: Hub | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Published:
    """Publish a run's folder as OWNER/NAME and prove that what arrived is what was trained.

    A new repository is private. ``public=True`` shows it after the proof, False insists that it is private, None leaves it.
    ``tag`` names the commit. ``seconds`` bounds each upload and download, by default by their size. The token is the one of
    ``hf auth login`` or HF_TOKEN. Raises AdapterError before anything is sent, and HubError when the Hub fails: a rerun then
    goes on from what is there.
    """
    contents = plan(folder, repo_id, tag=tag, base_model=base_model)
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        raise HubError("HF_HUB_OFFLINE=1 forbids to publish: unset it", "offline")
    for note in contents.notes:
        say(note)
    with hub or Hub() as hub:
        try:
            return _Publication(hub, contents, seconds, say).run(public, tag)
        except HubError as error:
            raise HubError(f"{error} ({contents.folder} is untouched)", error.kind, error.wait) from error


def read_receipt(folder: Path) -> dict[str, Any]:
    """{repository: {"commit", "tag", "private", "files"}} of earlier publications from this folder; {} where there is none."""
    try:
        content = json.loads((folder / RECEIPT).read_text(encoding="utf-8"))
        return {name: noted for name, noted in content["repositories"].items() if isinstance(noted, dict)}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


class _Publication:
    """One run of the steps: look, upload, prove, tag, show, note."""

    def __init__(self, hub: Hub, contents: Contents, seconds: float | None, say: Callable[[str], None]) -> None:
        self.hub, self.contents, self.say = hub, contents, say
        self.repo_id = contents.repo_id
        self.seconds = transfer_seconds(contents.size) if seconds is None else seconds

    def run(self, public: bool | None, tag: str | None) -> Published:
        account = self.hub.call("whoami")
        about = self._repository(account["name"], public)
        tagged = self._check_tag(tag)
        noted = read_receipt(self.contents.folder).get(self.repo_id, {})
        commit = about["commit"] if tagged is None else tagged
        new = tagged is None and bool(self.contents.missing(about["files"]))
        if new:
            commit = self._upload(about)
        if not (noted.get("commit") == commit and noted.get("files") == self.contents.checksums()):
            self._prove(commit)
        if tag is not None and tagged is None:
            self._tag(tag, commit)
        private = about["private"]
        if public and private:
            self.hub.call("show", repo_id=self.repo_id)
            private = self._info()["private"]
            if private:
                raise HubError(f"{self.repo_id} is published and stays private, whatever was asked: make it public on "
                               f"https://huggingface.co/{self.repo_id}/settings", "other")  # fmt: skip
        known = noted.get("tag") if noted.get("commit") == commit else None
        result = Published(self.repo_id, commit, tag or known, private, new)
        self._note(result)
        return result

    def _info(self, revision: str | None = None) -> dict[str, Any]:
        found: dict[str, Any] = self.hub.call("info", repo_id=self.repo_id, revision=revision)
        return found

    def _repository(self, account: str, public: bool | None) -> dict[str, Any]:
        """The repository's state, after it was made where there was none."""
        try:
            about = self._info()
        except HubError as error:
            if error.kind != "missing":
                raise
            try:
                self.hub.call("create", repo_id=self.repo_id)
            except HubError as refused:
                if refused.kind in ("forbidden", "login", "missing"):
                    raise HubError(
                        f"the account {account} may not make {self.repo_id} with this token: use your own name "
                        "before the slash, or `hf auth login` with a token that may write",
                        "forbidden",
                    ) from refused
                raise
            about = self._info()
            if not about["private"]:
                raise HubError(f"{self.repo_id} was made public although private was asked, and is still empty: delete it on "
                               f"https://huggingface.co/{self.repo_id}/settings, or add --public", "other") from None  # fmt: skip
            self.say(f"made the private repository {self.repo_id}")
        if public is False and not about["private"]:
            raise HubError(f"{self.repo_id} is public and --private was asked: choose another name, or make it private on "
                           f"https://huggingface.co/{self.repo_id}/settings", "other")  # fmt: skip
        return about

    def _check_tag(self, tag: str | None) -> str | None:
        """The commit of a tag that exists and holds this adapter; HubError if it holds something else."""
        found = None if tag is None else self.hub.call("tags", repo_id=self.repo_id).get(tag)
        if found is not None and self.contents.missing(self._info(found)["files"]):
            raise HubError(f"the tag {tag} of {self.repo_id} names another version: choose another with --revision", "conflict")
        return found

    def _upload(self, before: Mapping[str, Any]) -> str:
        """Commit everything at once; after any error look whether it landed before trying again or giving up."""
        parent = before["commit"]
        files = {
            path: {"text": f.text} if f.text is not None else {"file": str(f.source)} for path, f in self.contents.files.items()
        }
        self.say(f"uploading {len(files)} files, {self.contents.size / 1e6:.1f} MB")
        for attempt in range(1, ATTEMPTS + 1):
            for file in self.contents.files.values():
                file.check_unchanged()
            try:
                commit: str = self.hub.call(
                    "commit", seconds=self.seconds, attempts=1, repo_id=self.repo_id, parent=parent, files=files,
                    title="Add the adapter, its card and its evaluation",
                )  # fmt: skip
                return commit
            except HubError as error:
                wait = error.wait or 2.0**attempt
                now = self._look(error)
                if not self.contents.missing(now["files"]):
                    self.say("the Hub's answer was lost, but the commit is there")
                    return str(now["commit"])
                if error.kind not in (*TRANSIENT, "stale") or wait > MOST_WAIT or attempt == ATTEMPTS:
                    raise
                if now["commit"] != parent:
                    self.say(f"{self.repo_id} was changed by someone else in between; both changes are in its history")
                    parent = now["commit"]
                if error.kind == "timeout":
                    self.say("the upload stalled; trying once more without Xet")
                    self.hub.leave_xet()
                else:
                    time.sleep(wait)
        raise AssertionError("unreachable")

    def _look(self, error: HubError) -> dict[str, Any]:
        try:
            return self._info()
        except HubError as unknown:
            raise HubError(
                f"{error}; whether it arrived is not known, since the Hub can't be asked either", unknown.kind
            ) from error

    def _prove(self, commit: str) -> None:
        """Compare every checksum at the commit, then get the weights into an empty cache and read them."""
        damaged = self.contents.missing(self._info(commit)["files"])
        if damaged:
            raise HubError(f"{damaged[0]} of {self.repo_id} is not what was sent: it isn't tagged or shown, run the same command "
                           "again", "damaged")  # fmt: skip
        original = open_adapter(self.contents.folder / WEIGHTS_FILE).read()
        with tempfile.TemporaryDirectory(prefix="phys-pipeline-") as cache:
            for file in self.contents.weights:
                entry = {"size": file.size, "sha256": file.sha256, "oid": file.oid}
                for again in (False, True):
                    got = self.hub.call(
                        "download", seconds=self.seconds, repo_id=self.repo_id, revision=commit, names=[file.path], cache=cache,
                        again=again,
                    )  # fmt: skip
                    if matches(Path(got[file.path]), entry):
                        break
                else:
                    raise HubError(f"{file.path} comes back from {self.repo_id} damaged: it isn't tagged or shown, run the same "
                                   "command again", "damaged")  # fmt: skip
                try:
                    check_same(Path(got[file.path]), original)
                except AdapterError as error:
                    raise HubError(
                        f"{file.path} can't be read after its return from {self.repo_id} ({error})", "damaged"
                    ) from error

    def _tag(self, tag: str, commit: str) -> None:
        try:
            self.hub.call("tag", repo_id=self.repo_id, name=tag, revision=commit)
        except HubError as error:
            if self.hub.call("tags", repo_id=self.repo_id).get(tag) != commit:  # its answer may have been lost
                raise HubError(f"the adapter is published as commit {commit[:8]}, but not tagged: {error}", error.kind) from error

    def _note(self, result: Published) -> None:
        folder = self.contents.folder
        content = {**read_receipt(folder), self.repo_id: {**result.to_dict(), "files": self.contents.checksums()}}
        text = json.dumps({"schema": _SCHEMA, "version": 1, "repositories": content}, indent=2, sort_keys=True) + "\n"
        if not (folder / RECEIPT).is_file() or (folder / RECEIPT).read_text(encoding="utf-8") != text:
            with atomic_file(folder / RECEIPT) as temporary:
                temporary.write_text(text, encoding="utf-8")
