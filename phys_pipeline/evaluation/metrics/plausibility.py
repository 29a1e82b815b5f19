"""One number for how plausible a clip's motion is, from the metrics that need no weights.

    plausibility = exp(-sum of weight x badness)

Badness: the calibrated spectral composite, the jerk of the fitted similarity, flicker of brightness, cuts, and the share of pairs
in which nothing moves. The weights were chosen on the tuning part of the real clips in docs/results/evaluation_metrics.md, by how
often a clip ranks above its corrupted copy; round numbers on a flat optimum. Compare clips of the same content.

Freezing can't win: a clip in which nothing moves has no plausibility. One that moves too little for optical flow counts as half
random (a jerk of 1) and as still, and can reach exp(-0.3) = 0.74 at most. Slowed and blurred copies often rank above their clip
all the same: read it beside a report's guards.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

from phys_pipeline.evaluation.clip import DecodedClip, FramePair
from phys_pipeline.evaluation.flow import FlowMetric
from phys_pipeline.evaluation.metric import MetricInfo, MetricResult, skipped
from phys_pipeline.evaluation.metrics.breaks import clip_cuts
from phys_pipeline.evaluation.metrics.flicker import clip_brightness_flicker
from phys_pipeline.evaluation.metrics.similarity import STILL, jerk, motions, similarity_track
from phys_pipeline.evaluation.metrics.spectral import motion_report
from phys_pipeline.evaluation.metrics.warping import NO_RATE

WEIGHTS: dict[str, float] = {"spectral": 1.0, "jerk": 0.2, "flicker": 0.2, "cuts": 0.3, "stillness": 0.1}
_UNKNOWN_JERK = 1.0  # random motion has about 1.4, even motion 0
_LEAST_DYNAMIC = 0.005  # spectral dynamic degree under which a clip without moving pixels is still


def badness(
    spectral: float, dynamic_degree: float, jerk: float | None, flicker: float, cuts: float, active_share: float
) -> dict[str, float] | None:
    """The parts before weighting, each 0 at best; None where nothing moves.

    Args:
        spectral, dynamic_degree: spectral_loss and spectral_dynamic_degree.
        jerk: sim2_jerk; None where no pixel moves.
        flicker: brightness_flicker in %; counts by its logarithm.
        cuts: their number; more than two count as two.
        active_share: in %.
    """
    if jerk is None and dynamic_degree < _LEAST_DYNAMIC:
        return None
    return {
        "spectral": spectral,
        "jerk": _UNKNOWN_JERK if jerk is None else jerk,
        "flicker": math.log1p(flicker),
        "cuts": min(cuts, 2.0),
        "stillness": 1 - active_share / 100,
    }


def plausibility(parts: Mapping[str, float]) -> float:
    """In (0, 1], from :func:`badness`."""
    return math.exp(-sum(WEIGHTS[name] * parts[name] for name in WEIGHTS))


class Plausibility(FlowMetric):
    """The combined number."""

    infos: ClassVar[tuple[MetricInfo, ...]] = (
        MetricInfo(
            "plausibility", "Plausibility", "0-1", "up", ("noweights", "motion", "physics"),
            "exp(-weighted sum of spectral loss, SIM(2) jerk, brightness flicker, cuts, still pairs); none if nothing moves.",
            3, 0.0, 1.0, min_frames=3, packages=("opencv-python-headless",),
        ),
    )  # fmt: skip

    def start(self, clip: DecodedClip) -> _PlausibilityState:
        return _PlausibilityState(clip)


class _PlausibilityState:
    def __init__(self, clip: DecodedClip) -> None:
        self._clip = clip
        self._track = similarity_track(clip)

    def add(self, pair: FramePair) -> None:
        self._track.add(pair)

    def results(self) -> Mapping[str, MetricResult]:
        return {"plausibility": self._result()}

    def _result(self) -> MetricResult:
        clip, fits = self._clip, self._track.fits
        if clip.fps is None:
            return skipped(NO_RATE)
        report = motion_report(clip)
        active = 100 * sum(fit is not None for fit in fits) / len(fits)
        parts = badness(
            report.loss["composite"], report.dynamic_degree, jerk(motions(fits)), clip_brightness_flicker(clip)[0],
            len(clip_cuts(clip)), active,
        )  # fmt: skip
        if parts is None:
            return skipped(STILL)
        lost = {name: WEIGHTS[name] * value for name, value in parts.items()}
        backend = clip.estimator.name if clip.estimator else ""
        return MetricResult(plausibility(parts), details={"lost_by": lost}, backend=backend)
