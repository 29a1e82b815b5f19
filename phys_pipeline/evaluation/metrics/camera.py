"""Motion that no camera makes: what is left of the optical flow when one similarity of the whole frame is taken off.

A still picture that is panned, turned or zoomed has much flow and a high plausibility, but nothing in it moves. Parallax and a
moving object that fills most of the frame are not told from their opposites: compare clips of the same prompts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from phys_pipeline.evaluation.clip import DecodedClip, FramePair
from phys_pipeline.evaluation.flow import FlowMetric, squared_length
from phys_pipeline.evaluation.metric import MetricInfo, MetricResult
from phys_pipeline.evaluation.metrics.similarity import similarity_flow, whole_frame_track


class ObjectFlow(FlowMetric):
    """The flow beyond the camera's."""

    infos: ClassVar[tuple[MetricInfo, ...]] = (
        MetricInfo(
            "object_flow", "Object flow", "px/frame", "neutral", ("noweights", "motion"),
            "Mean length of the flow, in pixels of the clip, after the best similarity of the whole frame is taken off.",
            low=0.0, packages=("opencv-python-headless",),
        ),
    )  # fmt: skip

    def start(self, clip: DecodedClip) -> _ObjectFlowState:
        return _ObjectFlowState(clip)


class _ObjectFlowState:
    def __init__(self, clip: DecodedClip) -> None:
        self._track = whole_frame_track(clip)
        self._backend = clip.estimator.name if clip.estimator else ""
        self._speeds: list[float] = []

    def add(self, pair: FramePair) -> None:
        self._track.add(pair)
        fit, flow = self._track.fits[pair.index], pair.forward
        left = flow if fit is None else flow - similarity_flow(fit.motion, *flow.shape[:2])
        self._speeds.append(float(np.sqrt(squared_length(left)).mean()) * pair.scale)

    def results(self) -> Mapping[str, MetricResult]:
        value = float(np.mean(self._speeds))
        return {"object_flow": MetricResult(value, per_frame=self._speeds, backend=self._backend)}
