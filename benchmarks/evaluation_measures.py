"""The no-weights metrics of the evaluation as measures of the discrimination benchmark, and on control clips."""

from __future__ import annotations

import inspect
import json
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

from benchmarks.peers import RememberedFlow
from benchmarks.scores import ROOT, Score, SpectralMeasures, code_digest
from phys_pipeline.evaluation import MetricInfo, Settings, VideoSample
from phys_pipeline.evaluation.clip import DecodedClip
from phys_pipeline.evaluation.metrics.breaks import Breaks
from phys_pipeline.evaluation.metrics.flicker import Flicker
from phys_pipeline.evaluation.metrics.similarity import SimilaritySuite
from phys_pipeline.evaluation.metrics.warping import Warping
from phys_pipeline.spectral import SpectralConfig, SpectralMotionLoss
from phys_pipeline.spectral.report import ANALYSIS_FPS

METRICS = (SimilaritySuite, Warping, Flicker, Breaks)
UNUSED = ("motion_accuracy",)  # needs a label
_SHARED_CODE = ("phys_pipeline/evaluation/flow.py", "phys_pipeline/evaluation/clip.py", "phys_pipeline/media/cuts.py")
_BATCH = 4  # clips that the loss sees at once


def worseness(info: MetricInfo, value: float | None) -> Score:
    """A value so that higher is worse; neutral metrics as if more were worse."""
    return None if value is None else -value if info.direction == "up" else value


@dataclass(frozen=True)
class EvaluationMeasures:
    """Metrics of ``METRICS``, at the rate at which the pairs' clips play; flows are shared by the copies of a clip."""

    @property
    def infos(self) -> dict[str, MetricInfo]:
        return {info.key: info for metric in METRICS for info in metric.infos if info.key not in UNUSED}

    def versions(self) -> dict[str, str]:
        """Digests of the module of each metric and of what all of them use."""
        shared = [code_digest(ROOT / path) for path in _SHARED_CODE]
        found = {}
        for metric in METRICS:
            own = code_digest(Path(inspect.getfile(metric)))
            version = " ".join([own, *shared, RememberedFlow().name])
            found.update({info.key: version for info in metric.infos if info.key not in UNUSED})
        return found

    def scores(self, clips: Sequence[np.ndarray], wanted: Collection[str]) -> dict[str, list[Score]]:
        flow = RememberedFlow()
        found: dict[str, list[Score]] = {name: [] for name in wanted}
        for frames in clips:
            sample = VideoSample("clip", "benchmark", frames=frames, fps=ANALYSIS_FPS)
            values = measure(DecodedClip(sample, sample.decode(), flow))
            for name in wanted:
                found[name].append(worseness(self.infos[name], values[name]))
        return found


def measure(clip: DecodedClip) -> dict[str, float | None]:
    """Values of ``METRICS`` by key; None where there is none."""
    settings = Settings()
    states = [metric(settings).start(clip) for metric in (SimilaritySuite, Warping)]
    for pair in clip.pairs():
        for state in states:
            state.add(pair)
    results = {key: result for state in states for key, result in state.results().items()}
    for metric in (Flicker, Breaks):
        results |= metric(settings).compute(clip)
    return {key: result.value for key, result in results.items()}


@dataclass(frozen=True)
class TermMeasures:
    """The two terms of the calibrated composite besides its slices."""

    def versions(self) -> dict[str, str]:
        loss = SpectralMeasures("calibrated", SpectralConfig.calibrated()).versions()["calibrated"]
        return dict.fromkeys(("spectral_pace", "spectral_coherence"), f"{loss} {json.dumps(asdict(SpectralConfig.calibrated()))}")

    @torch.no_grad()
    def scores(self, clips: Sequence[np.ndarray], wanted: Collection[str]) -> dict[str, list[Score]]:
        loss = SpectralMotionLoss(SpectralConfig.calibrated())
        found: dict[str, list[Score]] = {name: [] for name in wanted}
        for begin in range(0, len(clips), _BATCH):
            pixels = torch.from_numpy(np.stack(clips[begin : begin + _BATCH])).permute(0, 4, 1, 2, 3).float() / 255
            windows = loss(pixels, "none").windows  # (B, 3, T, H, W) each
            for name in wanted:
                found[name].extend(windows[name.removeprefix("spectral_")].mean(dim=1).tolist())
        return found
