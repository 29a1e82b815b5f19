"""Dense optical flow between two frames, and where a pixel is still seen. DIS (OpenCV) or RAFT (torchvision)."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from phys_pipeline.evaluation.metric import Settings


class FlowEstimator(Protocol):
    """``(first, second)``, uint8 (H, W, 3) -> float32 (H, W, 2): where each pixel of first went, in pixels, x right, y down."""

    name: str  # "dis" or "raft", with version: the backend of rows

    def __call__(self, first: np.ndarray, second: np.ndarray) -> np.ndarray: ...


def is_visible(forward: np.ndarray, backward: np.ndarray) -> np.ndarray:
    """Boolean (H, W): the flow F stays in the frame and the backward flow B brings the pixel back.

    ``|F + B(x + F)|^2 <= 0.01 (|F|^2 + |B(x + F)|^2) + 0.5`` (Sundaram et al. 2010; Lai et al. 2018). Flows (H, W, 2) in pixels.
    """
    raise NotImplementedError


def flow_estimator(settings: Settings) -> FlowEstimator:
    """The estimator of a run. Raises ConfigError, with the command to install what is missing."""
    raise NotImplementedError


def flow_name(settings: Settings) -> str:
    """The name of the estimator that :func:`flow_estimator` would give, without loading it; "none" where there is none."""
    raise NotImplementedError
