"""Folders of results with ids that nobody can guess, so that a page that was closed can open its results again."""

from __future__ import annotations

import json
import re
import secrets
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from phys_pipeline.atomic import atomic_file
from phys_pipeline.errors import DataError

_ID = re.compile(r"[0-9a-f]{32}")
_FILE = "run.json"
KEPT_SECONDS = 24 * 3600.0
KEPT_RUNS = 200


class Runs:
    """The runs below ``root``, a folder of the app's own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)

    def new(self) -> Run:
        """An empty run; old ones are deleted first."""
        self._prune()
        folder = self.root / secrets.token_hex(16)
        folder.mkdir(mode=0o700)
        return Run(folder)

    def open(self, identity: object) -> Run:
        """An existing run. Raises DataError for anything that is no id of one."""
        if not isinstance(identity, str) or not _ID.fullmatch(identity) or not (self.root / identity / _FILE).is_file():
            raise DataError("these results are gone: results are kept for a day, make them again")
        return Run(self.root / identity)

    def _prune(self) -> None:
        folders = sorted((f for f in self.root.iterdir() if _ID.fullmatch(f.name)), key=lambda f: f.stat().st_mtime)
        limit = time.time() - KEPT_SECONDS
        old = [folder for folder in folders if folder.stat().st_mtime < limit]
        for folder in {*old, *folders[: max(0, len(folders) - KEPT_RUNS + 1)]}:
            shutil.rmtree(folder, ignore_errors=True)


class Run:
    """One folder of results: files, and ``run.json`` that says what they are."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def id(self) -> str:
        return self.folder.name

    def path(self, name: str) -> Path:
        """A file of this run, by a name of ours."""
        assert "/" not in name and not name.startswith("."), name
        return self.folder / name

    def write(self, content: Mapping[str, Any]) -> None:
        """Say what the run holds; the run can be opened from then on."""
        self.write_json(_FILE, {**content, "id": self.id})

    def read(self) -> dict[str, Any]:
        return dict(json.loads(self.path(_FILE).read_text(encoding="utf-8")))

    def write_json(self, name: str, content: Mapping[str, Any]) -> Path:
        """A JSON file of the run."""
        with atomic_file(self.path(name)) as temporary:
            temporary.write_text(json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
        return self.path(name)
