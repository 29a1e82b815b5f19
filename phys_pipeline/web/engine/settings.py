"""What the person who starts the app decides, and the limits that follow from it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

LOOPBACK = ("127.0.0.1", "localhost", "::1")
TINY = "tiny"


@dataclass(frozen=True)
class AppSettings:
    """Settings of one running app.

    Args:
        root: the app's own temporary folder; nothing outside of it is written but training output, and nothing else is served.
        local: whether visitors may name folders of this machine and Hub ids, host studies and train. True on a loopback address.
        models: base models to offer, beside the embedded one.
        max_upload_mb: of one uploaded file.
        max_seconds, max_frames: of one video; what is longer is cut, and the page says so.
        largest_side: pixels of a video's longer side; what is larger is reduced while it is read.
        study: a folder that `phys-pipeline study build` made, for the study tab; ``study_key`` its key.
        host_key: what the study's host types to see the results.
    """

    root: Path
    local: bool = True
    models: tuple[str, ...] = ()
    max_upload_mb: int = 200
    max_seconds: float = 60.0
    max_frames: int = 1800
    largest_side: int = 854
    study: Path | None = None
    study_key: Path | None = None
    host_key: str = ""


def is_local(host: str | None, shared: bool) -> bool:
    """Whether only this machine can reach an app that listens at ``host``; a Space and a share link can't be local."""
    return not shared and "SPACE_ID" not in os.environ and host in (None, *LOOPBACK)
