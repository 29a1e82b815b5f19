"""What a metric is: its description, its result, and the two ways to compute it (whole clip, or pair of frames by pair)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

if TYPE_CHECKING:
    from phys_pipeline.evaluation.clip import DecodedClip, FramePair

Direction = Literal["up", "down", "neutral"]
Protocols = Literal["fixed", "evalcrafter"]
Status = Literal["ok", "skipped", "failed", "standin"]

PROTOCOLS: tuple[Protocols, ...] = ("fixed", "evalcrafter")
_ROUNDING = 1e-6  # how far a value may leave its range


@dataclass(frozen=True)
class Weights:
    """A file set that a metric needs: Hub repository and revision (or what to supply), size in bytes, licence.

    ``files`` are the patterns to download of the repository; empty is all of it.
    """

    repository: str
    revision: str
    bytes: int
    licence: str
    files: tuple[str, ...] = ()


@dataclass(frozen=True)
class MetricInfo:
    """What the reader of a table has to know of a metric.

    Args:
        key: name in rows and on the command line; ``label`` the row's title in tables; ``unit`` of the value.
        direction: "up" if more is better, "neutral" if neither.
        groups: of "noweights", "paper", "motion", "quality", "text", "physics".
        low, high: what a value can be; None is no limit. A value outside is a failure, not a result.
        min_frames: shorter clips are skipped.
        packages: distributions to install; ``weights`` what else must be there.
        standin_for: says that without the real backend the value is a stand-in (for example DIS flow for RAFT).
        version: grows when values change, so that old rows are computed again.
        about: one sentence: definition and source.
    """

    key: str
    label: str
    unit: str
    direction: Direction
    groups: tuple[str, ...]
    about: str
    decimals: int = 2
    low: float | None = None
    high: float | None = None
    min_frames: int = 2
    packages: tuple[str, ...] = ()
    weights: tuple[Weights, ...] = ()
    standin_for: str | None = None
    version: int = 1

    def contains(self, value: float) -> bool:
        """Whether a value lies between ``low`` and ``high``, but for the rounding of single precision."""
        above = self.low is None or value >= self.low - _ROUNDING
        return above and (self.high is None or value <= self.high + _ROUNDING)


@dataclass(frozen=True)
class MetricResult:
    """One metric on one clip. ``value`` is a finite number or None; NaN is never a value.

    ``reason`` says why there is none; ``details`` are JSON values; ``per_frame`` has one number per frame or pair, None where
    there is none; ``backend`` is what computed it (package and version, or weights and revision).
    """

    value: float | None
    status: Status = "ok"
    reason: str = ""
    per_frame: Sequence[float | None] | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    backend: str = ""

    def __post_init__(self) -> None:
        if (self.value is not None) != (self.status in ("ok", "standin")):
            raise ValueError(f"status {self.status} with value {self.value}")
        if self.value is not None and not math.isfinite(self.value):
            raise ValueError(f"a metric's value must be finite, got {self.value}")
        if self.value is None and not self.reason:
            raise ValueError(f"status {self.status} needs a reason")


def skipped(reason: str) -> MetricResult:
    """No value, for a reason that is nobody's fault: no label, too short, nothing moves, weights missing."""
    return MetricResult(None, "skipped", reason)


def failed(reason: str) -> MetricResult:
    """No value, because something went wrong."""
    return MetricResult(None, "failed", reason)


@dataclass(frozen=True)
class Availability:
    """Whether a metric can run here; if not, ``reason`` with the exact command that helps; if so, what will be downloaded."""

    ok: bool
    reason: str = ""


@dataclass(frozen=True)
class Settings:
    """What all metrics of a run share. ``flow`` is "auto" (RAFT where its weights are, else DIS), "raft" or "dis"."""

    protocol: Protocols = "fixed"
    device: str = "cpu"
    seed: int = 0
    flow: str = "auto"
    standins: bool = True  # whether a stand-in may take the place of a metric whose weights are missing
    offline: bool = False  # use local files only
    weights_dir: str | None = None  # where weights lie that no Hub has
    options: Mapping[str, Any] = field(default_factory=dict)  # of single metrics, for example {"sd_score.references": "folder"}


class Metric(Protocol):
    """Computes one or more keys of a whole clip. Made as ``Class(settings)``; ``setup`` loads weights, ``close`` frees them."""

    infos: ClassVar[tuple[MetricInfo, ...]]

    def __init__(self, settings: Settings) -> None: ...

    def available(self) -> Availability: ...

    def setup(self) -> None: ...

    def compute(self, clip: DecodedClip) -> Mapping[str, MetricResult]:
        """A result for every key of ``infos``. May raise MediaError, ModelError; the evaluator turns that into "failed"."""
        ...

    def close(self) -> None: ...


class LightMetric:
    """What a :class:`Metric` that loads nothing inherits: it can always run, and there is nothing to set up or to free."""

    def __init__(self, settings: Settings) -> None: ...

    def available(self) -> Availability:
        return Availability(True)

    def setup(self) -> None: ...

    def close(self) -> None: ...


class PairMetric(Protocol):
    """Computes its keys from neighbouring frames and their flow, in one pass that all such metrics share."""

    infos: ClassVar[tuple[MetricInfo, ...]]

    def __init__(self, settings: Settings) -> None: ...

    def available(self) -> Availability: ...

    def start(self, clip: DecodedClip) -> PairAccumulator: ...


class PairAccumulator(Protocol):
    """The state of a :class:`PairMetric` on one clip: gets its pairs in order, then gives the results."""

    def add(self, pair: FramePair) -> None: ...

    def results(self) -> Mapping[str, MetricResult]: ...
