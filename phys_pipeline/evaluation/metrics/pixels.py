"""From frames to the input of image models: scale, crop, normalise. Own code with Pillow and torch; torchvision is not needed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

if TYPE_CHECKING:
    import torch

BICUBIC, BILINEAR = Image.Resampling.BICUBIC, Image.Resampling.BILINEAR
Normalisation = tuple[tuple[float, float, float], tuple[float, float, float]]
CLIP_NORMALISATION: Normalisation = ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711))
IMAGENET_NORMALISATION: Normalisation = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


def short_side_scaled(frame: np.ndarray, size: int, resample: Image.Resampling) -> np.ndarray:
    """``uint8 (H, W, 3)`` scaled so that its short side is ``size``, antialiased."""
    height, width = frame.shape[:2]
    short = min(height, width)
    return _resized(frame, int(size * height / short), int(size * width / short), resample)


def center_cropped(frame: np.ndarray, size: int) -> np.ndarray:
    """The middle ``(size, size, 3)`` of a frame that is at least that large."""
    top, left = (frame.shape[0] - size) // 2, (frame.shape[1] - size) // 2
    return frame[top : top + size, left : left + size]


def squashed(frame: np.ndarray, size: int, resample: Image.Resampling) -> np.ndarray:
    """``uint8 (H, W, 3)`` scaled to a square whatever its aspect ratio, antialiased."""
    return _resized(frame, size, size, resample)


def normalised(frames: Iterable[np.ndarray], normalisation: Normalisation) -> torch.Tensor:
    """``uint8 (H, W, 3)`` frames to ``float32 (N, 3, H, W)``: to [0, 1], less the mean, over the standard deviation."""
    import torch

    mean, std = (np.asarray(values, np.float32) for values in normalisation)
    scaled = (np.stack(list(frames)).astype(np.float32) / np.float32(255) - mean) / std
    return torch.from_numpy(np.ascontiguousarray(scaled.transpose(0, 3, 1, 2)))


def aliased(frames: Sequence[np.ndarray], height: int, width: int) -> torch.Tensor:
    """``uint8 (H, W, 3)`` frames as ``float32 (N, 3, height, width)`` in [0, 255], bilinear without antialiasing.

    What torchvision's and OpenCV's default scaling of tensors did in 2023.
    """
    import torch

    scaled = []
    for frame in frames:
        picture = torch.from_numpy(np.ascontiguousarray(frame)).permute(2, 0, 1)[None].float()
        scaled.append(torch.nn.functional.interpolate(picture, (height, width), mode="bilinear", align_corners=False))
    return torch.cat(scaled)


def _resized(frame: np.ndarray, height: int, width: int, resample: Image.Resampling) -> np.ndarray:
    return np.asarray(Image.fromarray(np.ascontiguousarray(frame)).resize((width, height), resample))
