"""How much detail the picture has, at the size at which motion is measured: blur makes every change in time smaller."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from phys_pipeline.evaluation.clip import DecodedClip
from phys_pipeline.evaluation.flow import working_size
from phys_pipeline.evaluation.metric import LightMetric, MetricInfo, MetricResult
from phys_pipeline.media.scaling import scaled_while_reading


def spatial_energy(frame: np.ndarray) -> float:
    """Mean squared difference of neighbouring pixels, in [0, 1] squared, down plus across. frame: uint8 (H, W, 3)."""
    pixels = frame.astype(np.float32) / 255
    return sum(float(np.square(np.diff(pixels, axis=axis)).mean()) for axis in (0, 1) if frame.shape[axis] > 1)


class Detail(LightMetric):
    """Energy of the differences between neighbouring pixels."""

    infos: ClassVar[tuple[MetricInfo, ...]] = (
        MetricInfo(
            "detail", "Detail", "energy x 1000", "neutral", ("noweights", "quality"),
            "1000 times the mean squared difference of neighbouring pixels in [0, 1], at 256 pixels of the shorter side.",
            3, 0.0, min_frames=1,
        ),
    )  # fmt: skip

    def compute(self, clip: DecodedClip) -> Mapping[str, MetricResult]:
        size = working_size(clip.video.height, clip.video.width)
        series = [1000 * spatial_energy(scaled_while_reading(frame, *size)) for frame in clip.frames]
        return {"detail": MetricResult(float(np.mean(series)), per_frame=series)}
