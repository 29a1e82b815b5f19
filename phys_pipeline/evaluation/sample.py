"""What is evaluated: one video with its prompt, the column of the report it belongs to, and its labels."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from phys_pipeline.errors import DataError
from phys_pipeline.media import Video, read_video

LABELS = {  # name -> the values it may have; None: any text
    "amplitude": ("large", "slow"),
    "stratum": ("simple", "complex"),
    "motion": ("translation", "rotation", "scaling", "mixed", "other"),
    "direction": None,  # of phys_pipeline.evaluation.metrics.direction, for example "left", "clockwise", "zoom_in"
    "action": None,  # the action's name in words
}


@dataclass(frozen=True, eq=False)
class VideoSample:
    """One video of one column.

    Args:
        id: which prompt it shows; samples of two columns are paired by (id, seed).
        model: the column's key, for example "baseline".
        path: the file; or ``frames`` uint8 (T, H, W, 3).
        fps: frames per second; None takes the file's, and without a file means unknown.
        reference: a real take of the same scene, for metrics that compare.
        labels: of ``LABELS``; all optional.

    Raises:
        DataError: an unknown label or value, an empty id or column, neither or both of ``path`` and ``frames``.
    """

    id: str
    model: str
    prompt: str = ""
    seed: int | None = None
    path: Path | None = None
    frames: np.ndarray | None = None  # uint8 (T, H, W, 3)
    fps: float | None = None
    reference: Path | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    meta: Mapping[str, Any] = field(default_factory=dict)
    control: str = field(default="", init=False)  # set by phys_pipeline.evaluation.controls.ControlSample alone

    def __post_init__(self) -> None:
        if not self.id or not self.model:
            raise DataError("a sample needs an id and the key of its column")
        if (self.path is None) == (self.frames is None):
            raise DataError(f"sample {self.name}: give either a file or frames")
        for label, value in self.labels.items():
            if label not in LABELS:
                raise DataError(f"sample {self.name}: unknown label {label!r}; use one of {', '.join(LABELS)}")
            allowed = LABELS[label]
            if allowed is not None and value not in allowed:
                raise DataError(f"sample {self.name}: {label}={value!r} is not one of {', '.join(allowed)}")

    @property
    def name(self) -> str:
        """For people and for rows: column/id, and the seed where there is one."""
        return f"{self.model}/{self.id}" + ("" if self.seed is None else f"#{self.seed}")

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the file's bytes, or of frames and rate. Raises DataError when the file can't be read."""
        digest = hashlib.sha256()
        if self.path is not None:
            try:
                with self.path.open("rb") as file:
                    while block := file.read(1 << 20):
                        digest.update(block)
            except OSError as error:
                raise DataError(f"{self.path} can't be read: {error.strerror}") from None
            return digest.hexdigest()
        assert self.frames is not None
        digest.update(f"{self.frames.shape} {self.fps}".encode() + np.ascontiguousarray(self.frames).tobytes())
        return digest.hexdigest()

    def decode(self) -> Video:
        """The video. Raises MediaError when it can't be decoded."""
        if self.path is not None:
            return read_video(self.path)
        assert self.frames is not None
        return Video.from_frames(self.frames, self.fps or 1.0, self.name)
