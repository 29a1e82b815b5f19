"""The spectral losses of a clip, as `phys-pipeline score` gives them; one motion report per preset and clip."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from phys_pipeline.evaluation.clip import DecodedClip
from phys_pipeline.evaluation.metric import Direction, LightMetric, MetricInfo, MetricResult, skipped
from phys_pipeline.evaluation.metrics.warping import NO_RATE
from phys_pipeline.media import Video

if TYPE_CHECKING:
    from phys_pipeline.scoring import Preset
    from phys_pipeline.spectral import MotionReport


def at_rate_of_sample(clip: DecodedClip) -> Video:
    """The clip's video; where the sample gives another frame rate than the file, at that rate."""
    if clip.fps is None or clip.fps == clip.video.fps:
        return clip.video
    return Video.from_frames(clip.frames, clip.fps, clip.video.source)


def motion_report(clip: DecodedClip, preset: Preset = "calibrated") -> MotionReport:
    """The report of a clip with a known frame rate, made once. Raises MediaError for under 3 frames or 8 pixels."""
    from phys_pipeline.scoring import score_video

    return clip.shared(f"motion report {preset}", lambda: score_video(at_rate_of_sample(clip), preset=preset))


def _info(key: str, label: str, about: str, direction: Direction = "down", high: float | None = None) -> MetricInfo:
    return MetricInfo(key, label, "loss", direction, ("noweights", "motion", "physics"), about, 3, 0.0, high, min_frames=3)


class Spectral(LightMetric):
    """Composite, slices and terms of the calibrated preset."""

    infos: ClassVar[tuple[MetricInfo, ...]] = (
        _info("spectral_loss", "Spectral loss", "Calibrated composite: 0 is a still clip, coherent motion has little."),
        _info("spectral_translation", "Spectral translation", "Slice of the loss: distance from a rigid translation."),
        _info("spectral_rotation", "Spectral rotation", "Slice of the loss: distance from a rotation.", high=1.0),
        _info("spectral_scaling", "Spectral scaling", "Slice of the loss: distance from a zoom.", high=1.0),
        _info("spectral_pace", "Spectral pace", "Term of the loss: uneven speed."),
        _info("spectral_coherence", "Spectral coherence", "Term of the loss: change that no earlier frame predicts."),
        _info(
            "spectral_dynamic_degree", "Spectral dynamic degree", "How much the clip changes over time.", direction="neutral",
        ),
    )  # fmt: skip

    def compute(self, clip: DecodedClip) -> Mapping[str, MetricResult]:
        if clip.fps is None:
            return {info.key: skipped(NO_RATE) for info in self.infos}
        report = motion_report(clip)
        timeline = [
            {"start_s": w.start_s, "end_s": w.end_s, "composite": w.composite, "dynamic_degree": w.dynamic_degree}
            for w in report.timeline
        ]
        details = {"dominant": report.dominant, "confidence": report.confidence, "timeline": timeline}
        parts = ("translation", "rotation", "scaling", "pace", "coherence")
        return {
            "spectral_loss": MetricResult(report.loss["composite"], details=details, backend="calibrated"),
            **{f"spectral_{part}": MetricResult(report.loss[part], backend="calibrated") for part in parts},
            "spectral_dynamic_degree": MetricResult(report.dynamic_degree, backend="calibrated"),
        }


class SpectralPaper(LightMetric):
    """Composite of the paper's own form."""

    infos: ClassVar[tuple[MetricInfo, ...]] = (
        _info("spectral_paper", "Spectral loss, paper's form", "Composite as printed in the paper, which prefers broken motion."),
    )

    def compute(self, clip: DecodedClip) -> Mapping[str, MetricResult]:
        if clip.fps is None:
            return {"spectral_paper": skipped(NO_RATE)}
        return {"spectral_paper": MetricResult(motion_report(clip, "paper").loss["composite"], backend="paper")}
