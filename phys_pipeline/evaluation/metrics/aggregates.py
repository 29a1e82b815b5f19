"""EvalCrafter's regression aggregates (1275bda): sums of other metrics fitted to people's opinions of its own videos.

They exist for the layout of tables that print them. The weights are dominated by single terms (0.0001 of CLIP-Temporal is 0.15
points; a frozen clip reaches the first one's maximum), so nothing here is a measure of quality.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Protocol

from phys_pipeline.evaluation.metric import Availability, MetricInfo, MetricResult, Settings, skipped

_BACKEND = "regression of EvalCrafter 1275bda"
_SCALE = 5.0
_TEMPORAL_WEIGHTS = {"clip_temporal": 2.92492244, "warping_error": 0.45475678, "clip_first_frame": 0.17561504}
_TEMPORAL_INTERCEPT = -3.42274050899774
_ALIGNMENT_WEIGHTS = {  # EvalCrafter's names of its result files
    "clip_score": -0.0701577, "blip_bleu": 0.02561424, "sd_score": 0.05566109, "detection_score": 0.0173974,
    "color_score": -0.020954, "count_score": 0.03069167, "ocr_score": 0.00372351, "celebrity_id_score": 0.22686202,
}  # fmt: skip
_ALIGNMENT_INTERCEPT = -0.30683181901390977  # not multiplied by 5, unlike the other aggregates' intercepts
_ERRORS = ("warping_error", "ocr_score", "celebrity_id_score")  # enter as 1 - value
ALIGNMENT_PARTS = tuple(_ALIGNMENT_WEIGHTS)
IMPORTED = "evalcrafter_"  # prefix of the keys of values read from EvalCrafter's own result files


class Part(Protocol):
    """What an aggregate needs to know of another metric's result: a row or a result."""

    @property
    def value(self) -> float | None: ...

    @property
    def status(self) -> str: ...


def temporal_consistency(clip_temporal: float, warping_error: float, clip_first_frame: float) -> float:
    """``500 (2.925 CT + 0.455 (1 - WE) + 0.176 FC - 3.423)``; cosines, and the warping error as EvalCrafter scales it."""
    values = {"clip_temporal": clip_temporal, "warping_error": warping_error, "clip_first_frame": clip_first_frame}
    return 100 * _SCALE * (_weighted(values, _TEMPORAL_WEIGHTS) + _TEMPORAL_INTERCEPT)


def text_video_alignment(values: Mapping[str, float]) -> float:
    """``100 (5 sum(w v) - 0.307)`` of EvalCrafter's eight averages, as its result files print them (fractions, not per cent)."""
    return 100 * (_SCALE * _weighted(values, _ALIGNMENT_WEIGHTS) + _ALIGNMENT_INTERCEPT)


class TemporalConsistency:
    """``temporal_consistency``, in protocol "evalcrafter" only, from three values of one clip."""

    infos: ClassVar[tuple[MetricInfo, ...]] = (
        MetricInfo(
            "temporal_consistency", "Temporal Consistency", "regression x 100", "up", ("paper",),
            "EvalCrafter's regression on CLIP-Temporal, warping error and first-frame cosine; a frozen clip reaches the maximum.",
        ),
    )  # fmt: skip

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def available(self) -> Availability:
        if self.settings.protocol == "evalcrafter":
            return Availability(True)
        return Availability(False, f"only with --protocol evalcrafter; else see its parts: {', '.join(_TEMPORAL_WEIGHTS)}")

    def combine(self, results: Mapping[str, Part]) -> Mapping[str, MetricResult]:
        """From results or rows of ``clip_temporal``, ``clip_first_frame`` (x 100) and ``warping_error`` of one clip."""
        parts = _values(results, {key: key for key in _TEMPORAL_WEIGHTS})
        if isinstance(parts, str):
            return {"temporal_consistency": skipped(parts)}
        value = temporal_consistency(parts["clip_temporal"] / 100, parts["warping_error"], parts["clip_first_frame"] / 100)
        return {"temporal_consistency": MetricResult(value, details={"parts": parts}, backend=_BACKEND)}


class TextVideoAlignment:
    """``text_video_alignment``, from EvalCrafter's own eight values (:mod:`phys_pipeline.evaluation.importers`).

    Its parts cover different videos, so the aggregate belongs to a column (:func:`text_video_alignment`); single clips have one
    only where all eight were imported.
    """

    infos: ClassVar[tuple[MetricInfo, ...]] = (
        MetricInfo(
            "text_video_alignment", "Text-Video Alignment", "regression x 100", "up", ("paper",),
            "EvalCrafter's regression on eight sub-metrics, most of which only its own code computes.",
            min_frames=1,
        ),
    )  # fmt: skip

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def available(self) -> Availability:
        return Availability(
            False,
            "n/a: five of its eight parts come only from EvalCrafter's own code and labels; read its result files with "
            "phys_pipeline.evaluation.importers.evalcrafter_averages and combine them with text_video_alignment()",
        )

    def combine(self, results: Mapping[str, Part]) -> Mapping[str, MetricResult]:
        """From rows with the keys ``evalcrafter_clip_score`` and so on."""
        parts = _values(results, {name: IMPORTED + name for name in ALIGNMENT_PARTS})
        if isinstance(parts, str):
            return {"text_video_alignment": skipped(f"{parts}; import all eight values from EvalCrafter's result files")}
        value = text_video_alignment(parts)
        return {"text_video_alignment": MetricResult(value, details={"parts": parts}, backend=_BACKEND)}


def _weighted(values: Mapping[str, float], weights: Mapping[str, float]) -> float:
    return sum(weight * (1 - values[name] if name in _ERRORS else values[name]) for name, weight in weights.items())


def _values(results: Mapping[str, Part], keys: Mapping[str, str]) -> dict[str, float] | str:
    """The parts' values by name, or why there is no aggregate. A stand-in is no part: the weights were fitted to the real one."""
    values = {}
    for name, key in keys.items():
        part = results.get(key)
        if part is None or part.value is None:
            return f"there is no value of {key}"
        if part.status != "ok":
            return f"{key} is a stand-in"
        values[name] = part.value
    return values
