"""Results per clip: one row per sample and metric. Every number of a report is made of these and of nothing else."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Row:
    """One metric on one sample, with all that is needed to trace and to repeat it.

    ``width``, ``height``, ``frames`` and ``fps`` are the clip's (0 and None where it could not be decoded).
    """

    sample: str  # VideoSample.name
    id: str
    model: str
    seed: int | None
    metric: str
    value: float | None
    status: str
    reason: str = ""
    backend: str = ""
    protocol: str = "fixed"
    version: int = 1
    digest: str = ""  # SHA-256 of the video
    run_seed: int = 0
    prompt: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    width: int = 0
    height: int = 0
    frames: int = 0
    fps: float | None = None
    per_frame: list[float | None] | None = None
    details: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def key(self) -> tuple[str, str]:
        """What a row is about: sample and metric."""
        return self.sample, self.metric

    @property
    def pair(self) -> tuple[str, int | None]:
        """What pairs two columns: prompt and seed."""
        return self.id, self.seed
