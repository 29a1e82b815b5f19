"""Scores from CLIP's embeddings of the frames: consecutive frames, frames and first frame, frames and prompt.

EvalCrafter (1275bda) feeds CLIP with squashed frames in 0..255 without CLIP's mean and standard deviation; protocol "evalcrafter"
repeats that, except that its CLIP-Score rounds the scaled frames to whole grey levels. "fixed" prepares frames as CLIP was
trained. A frozen clip reaches 100 in the first two.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from phys_pipeline.evaluation.clip import DecodedClip
from phys_pipeline.evaluation.metric import Availability, MetricInfo, MetricResult, Settings, skipped
from phys_pipeline.evaluation.metrics.clip_encoder import CLIP, CLIP_WEIGHTS, ClipEncoder, clip_encoder, frame_embeddings

STEP = 0.125  # seconds; the fixed time step at which clips of different rates are comparable


class ClipScores:
    """``clip_temporal``, ``clip_first_frame`` (EvalCrafter's "face consistency"; no faces are looked for) and ``clip_score``."""

    infos: ClassVar[tuple[MetricInfo, ...]] = (
        MetricInfo(
            "clip_temporal", "CLIP Temporal Score", "cosine x 100", "up", ("paper",),
            "Mean cosine of consecutive frames' CLIP embeddings; a frozen clip scores 100, and a higher rate raises it.",
            low=-100, high=100, weights=(CLIP_WEIGHTS,),
        ),
        MetricInfo(
            "clip_first_frame", "CLIP First-Frame Consistency", "cosine x 100", "up", ("paper",),
            "Mean cosine of every later frame's CLIP embedding with the first one's; EvalCrafter calls it face consistency.",
            low=-100, high=100, weights=(CLIP_WEIGHTS,),
        ),
        MetricInfo(
            "clip_score", "CLIP Score", "cosine x 100", "up", ("text",),
            "Mean cosine of the frames' CLIP embeddings with the prompt's.",
            low=-100, high=100, min_frames=1, weights=(CLIP_WEIGHTS,),
        ),
    )  # fmt: skip

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._encoder: ClipEncoder | None = None

    def available(self) -> Availability:
        return CLIP.available(self.settings)

    def setup(self) -> None:
        self._encoder = clip_encoder(self.settings)

    def close(self) -> None:
        self._encoder = None

    def compute(self, clip: DecodedClip) -> Mapping[str, MetricResult]:
        assert self._encoder is not None, "setup() comes first"
        frames = frame_embeddings(clip, self._encoder, self.settings.protocol)
        results = {"clip_score": _clip_score(frames, clip.sample.prompt, self._encoder)}
        for key in ("clip_temporal", "clip_first_frame"):
            results[key] = skipped("one frame has no successor")
        if len(frames) > 1:
            results["clip_temporal"] = _clip_temporal(frames, clip.fps, self._encoder.name)
            first = _cosines(frames[1:], frames[:1])
            results["clip_first_frame"] = MetricResult(
                100 * float(first.mean()), per_frame=[None, *(100 * first).tolist()], backend=self._encoder.name
            )
        return results


def _cosines(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Row-wise cosines of unit vectors, rounding kept inside [-1, 1]."""
    return np.clip(np.sum(first * second, axis=-1), -1.0, 1.0)


def _clip_score(frames: np.ndarray, prompt: str, encoder: ClipEncoder) -> MetricResult:
    if not prompt:
        return skipped("the sample has no prompt")
    values = 100 * _cosines(frames, encoder.texts([prompt]))
    details = {"prompt_cut": encoder.is_cut(prompt)}
    return MetricResult(float(values.mean()), per_frame=values.tolist(), details=details, backend=encoder.name)


def _clip_temporal(frames: np.ndarray, fps: float | None, backend: str) -> MetricResult:
    values = _cosines(frames[:-1], frames[1:])
    details: dict[str, Any] = {"difference_per_mille": _per_mille(values), "step_s": None, "step_difference_per_mille": None}
    if fps is not None and fps * STEP >= 1 and len(frames) - 1 >= fps * STEP:
        times = np.arange(0, len(frames) - 1 + 1e-9, fps * STEP)
        kept = frames[np.rint(times).astype(int)]
        at_step = _cosines(kept[:-1], kept[1:])
        details |= {"step_s": STEP, "step_cosine": 100 * float(at_step.mean()), "step_difference_per_mille": _per_mille(at_step)}
    return MetricResult(100 * float(values.mean()), per_frame=(100 * values).tolist(), details=details, backend=backend)


def _per_mille(cosines: np.ndarray) -> float:
    """Mean of 1 - cosine in units of 0.001, where the saturated cosine still shows differences."""
    return 1000 * float(1 - cosines.mean())
