"""The no-weights metrics of the evaluation as measures of the discrimination benchmark, and on control clips."""

from __future__ import annotations

import inspect
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.pairs import FRAMES, Clip
from benchmarks.peers import RememberedFlow
from benchmarks.scores import ROOT, Row, Score, SpectralMeasures, code_digest
from phys_pipeline.evaluation import MetricInfo, Settings, VideoSample
from phys_pipeline.evaluation.clip import DecodedClip
from phys_pipeline.evaluation.controls import CONTROLS
from phys_pipeline.evaluation.metrics.breaks import Breaks
from phys_pipeline.evaluation.metrics.direction import DirectionAccuracy
from phys_pipeline.evaluation.metrics.flicker import Flicker
from phys_pipeline.evaluation.metrics.plausibility import Plausibility, badness, plausibility
from phys_pipeline.evaluation.metrics.similarity import SimilaritySuite
from phys_pipeline.evaluation.metrics.spectral import Spectral, SpectralPaper
from phys_pipeline.evaluation.metrics.warping import Warping
from phys_pipeline.media.synthetic import MOTIONS, make_clip, textured_clip
from phys_pipeline.spectral import SpectralConfig, SpectralMotionLoss
from phys_pipeline.spectral.report import ANALYSIS_FPS

WALKERS, OTHERS = (SimilaritySuite, Warping), (Flicker, Breaks)
METRICS = (*WALKERS, *OTHERS)
PARTS = ("spectral_loss", "spectral_dynamic_degree", "sim2_jerk", "brightness_flicker", "cuts", "active_share")  # of plausibility
UNUSED = ("motion_accuracy",)  # needs a label
_CAMERAS = {  # label -> what the picture does: parameter, and its sign in x and y
    "pan_left": ("velocity", 1, 0), "pan_right": ("velocity", -1, 0),
    "tilt_up": ("velocity", 0, 1), "tilt_down": ("velocity", 0, -1),
    "roll_clockwise": ("rotation", -1, 0), "roll_counterclockwise": ("rotation", 1, 0),
    "camera_zoom_in": ("zoom", 1, 0), "camera_zoom_out": ("zoom", -1, 0), "camera_static": ("velocity", 0, 0),
}  # fmt: skip
_SIDE, _DIRECTION_FPS = 64, 8.0
_SHARED_CODE = ("phys_pipeline/evaluation/flow.py", "phys_pipeline/evaluation/clip.py", "phys_pipeline/media/cuts.py")
TERMS = ("spectral_pace", "spectral_coherence", "spectral_dynamic_degree")
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


def measure(clip: DecodedClip, walkers: Sequence[Any] = WALKERS, others: Sequence[Any] = OTHERS) -> dict[str, float | None]:
    """Values by key of metrics that look at pairs of frames and of others; None where there is none."""
    settings = Settings()
    states = [metric(settings).start(clip) for metric in walkers]
    for pair in clip.pairs():
        for state in states:
            state.add(pair)
    results = {key: result for state in states for key, result in state.results().items()}
    for metric in others:
        results |= metric(settings).compute(clip)
    return {key: result.value for key, result in results.items()}


@dataclass(frozen=True)
class TermMeasures:
    """What the calibrated preset gives besides the composite and its slices."""

    def versions(self) -> dict[str, str]:
        loss = SpectralMeasures("calibrated", SpectralConfig.calibrated()).versions()["calibrated"]
        return dict.fromkeys(TERMS, f"{loss} {json.dumps(asdict(SpectralConfig.calibrated()))}")

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


def suite_infos() -> dict[str, MetricInfo]:
    """The metrics of the benchmark, plausibility first."""
    suite = (Plausibility, Spectral, SpectralPaper, *METRICS)
    return {info.key: info for metric in suite for info in metric.infos if info.key not in UNUSED}


def directed_infos() -> dict[str, MetricInfo]:
    """Those that say which value is better."""
    return {key: info for key, info in suite_infos().items() if info.direction != "neutral"}


def plausibility_rows(rows: Iterable[Row]) -> list[Row]:
    """Rows of plausibility from the rows of the metrics that it is made of."""
    clips: dict[str, dict[str, Row]] = {}
    for row in rows:
        clips.setdefault(row.content, {})[row.measure] = row
    found = []
    for parts in clips.values():
        first = parts["spectral_loss"]
        copies = {name: _plausibility({key: parts[key].copies[name] for key in PARTS}) for name in first.copies}
        clean = _plausibility({key: parts[key].clean for key in PARTS})
        control = _plausibility({key: parts[key].control for key in PARTS})
        found.append(replace(first, measure="plausibility", version="", clean=clean, control=control, copies=copies))
    return found


def _plausibility(scores: Mapping[str, Score]) -> Score:
    """Worseness of the plausibility from those of its parts."""
    values = {key: worseness(suite_infos()[key], score) for key, score in scores.items()}  # twice is the value again
    parts = badness(*(values[key] for key in PARTS))  # type: ignore[arg-type]
    return None if parts is None else -plausibility(parts)


def control_outcomes(clips: Sequence[Clip]) -> dict[tuple[str, str], list[bool | None]]:
    """For each metric with a direction and each control: whether the control is preferred, clip by clip; None without a value."""
    found: dict[tuple[str, str], list[bool | None]] = {}
    for clip in clips:
        flow = RememberedFlow()

        def scores(frames: np.ndarray, flow: RememberedFlow = flow) -> dict[str, Score]:
            sample = VideoSample("clip", "benchmark", frames=frames, fps=ANALYSIS_FPS)
            values = measure(
                DecodedClip(sample, sample.decode(), flow), (*WALKERS, Plausibility), (*OTHERS, Spectral, SpectralPaper)
            )
            return {key: worseness(info, values[key]) for key, info in directed_infos().items()}

        own, rng = scores(clip.pixels), np.random.default_rng(int(clip.content, 16))
        for name, control in CONTROLS.items():
            for key, score in scores(control(clip.pixels, rng)).items():
                mine = own[key]
                found.setdefault((key, name), []).append(None if score is None or mine is None else score < mine)
    return found


def known_directions(count: int, seed: int) -> dict[str, list[str | None]]:
    """What direction_accuracy finds instead (None: the right one) on ``count`` rendered clips of each direction."""
    found: dict[str, list[str | None]] = {}
    for index in range(count):
        for motion in MOTIONS:
            clip = make_clip(seed + index, motion=motion)
            found.setdefault(motion, []).append(_direction_found(clip.video, prompt=clip.caption))
        rng = np.random.default_rng([seed + index, 17])
        speed = {"velocity": rng.uniform(0.5, 3), "rotation": rng.uniform(0.02, 0.1), "zoom": rng.uniform(0.01, 0.04)}
        for label, (kind, x, y) in _CAMERAS.items():
            amount = (x * speed[kind], y * speed[kind]) if kind == "velocity" else x * speed[kind]
            video = textured_clip(FRAMES, _SIDE, _SIDE, **{kind: amount}, seed=seed + index).video
            found.setdefault(f"camera: {label}", []).append(_direction_found(video, labels={"direction": label}))
    return found


def _direction_found(video: torch.Tensor, **sample: Any) -> str | None:
    frames = (video.permute(1, 2, 3, 0).numpy() * 255).round().astype(np.uint8)  # (T, H, W, 3)
    made = VideoSample("clip", "benchmark", frames=frames, fps=_DIRECTION_FPS, **sample)
    clip = DecodedClip(made, made.decode(), RememberedFlow())
    state = DirectionAccuracy(Settings()).start(clip)
    for pair in clip.pairs():
        state.add(pair)
    details = state.results()["direction_accuracy"].details
    return None if details["found"] == details["picture"] else str(details["found"])
