"""Every metric by its key. Metrics are classes named here as text, so that listing them loads nothing else."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from functools import cache
from importlib import import_module
from typing import Any

from phys_pipeline.errors import ConfigError
from phys_pipeline.evaluation.metric import MetricInfo

_PACKAGE = "phys_pipeline.evaluation.metrics"
CLASSES: tuple[str, ...] = (
    "plausibility:Plausibility",
    "spectral:Spectral",
    "spectral:SpectralPaper",
    "similarity:SimilaritySuite",
    "camera:ObjectFlow",
    "warping:Warping",
    "flicker:Flicker",
    "breaks:Breaks",
    "detail:Detail",
    "masks:Masks",
    "direction:DirectionAccuracy",
    "frame_quality:FrameQuality",
    "dover:Dover",
    "sd_score:SdScore",
    "clip_scores:ClipScores",
    "aggregates:TemporalConsistency",
    "video_mae:ActionRecognition",
    "aggregates:TextVideoAlignment",
    "blip_bleu:BlipBleu",
    "blip_bleu:BlipBaseBleu",
)
GROUPS = ("noweights", "paper", "motion", "quality", "text", "physics")


@cache
def metric_class(name: str) -> Any:
    """The class of an entry of ``CLASSES``: "module:Class" of this package's metrics, or of a package by its full name."""
    module, attribute = name.split(":")
    return getattr(import_module(module if "." in module else f"{_PACKAGE}.{module}"), attribute)


@cache
def infos() -> dict[str, MetricInfo]:
    """Every metric's description, in the order of ``CLASSES``."""
    found: dict[str, MetricInfo] = {}
    for name in CLASSES:
        for info in metric_class(name).infos:
            if info.key in found:
                raise ValueError(f"two metrics are called {info.key}")
            found[info.key] = info
    return found


def select(names: Iterable[str]) -> tuple[str, ...]:
    """Keys of the metrics and groups named, in registry order. Raises ConfigError for a name that is neither."""
    wanted: set[str] = set()
    known = infos()
    for name in names:
        if name in known:
            wanted.add(name)
        elif name == "all":
            wanted |= set(known)
        elif name in GROUPS:
            wanted |= {key for key, info in known.items() if name in info.groups}
        else:
            near = difflib.get_close_matches(name, [*known, *GROUPS], n=1)
            hint = f"; did you mean {near[0]}?" if near else f"; groups are all, {', '.join(GROUPS)}"
            raise ConfigError(f"there is no metric or group {name!r}{hint}")
    if not wanted:
        raise ConfigError("no metric was asked for: name one, or a group such as noweights")
    return tuple(key for key in known if key in wanted)


def classes_of(keys: Iterable[str]) -> tuple[str, ...]:
    """Entries of ``CLASSES`` that compute any of the keys."""
    wanted = set(keys)
    return tuple(name for name in CLASSES if any(info.key in wanted for info in metric_class(name).infos))
