"""Batches of float pictures, as ComfyUI passes them around, read and made one picture at a time.

A batch of 129 pictures of 720 lines takes 1.4 GB; nothing here makes a second copy of one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from phys_pipeline.errors import MediaError
from phys_pipeline.media.video import Clip, check_fps

if TYPE_CHECKING:
    import torch
    from torch import Tensor

Step = Callable[[], None]


class ImageBatch:
    """A clip over ``float (B, H, W, C)`` in [0, 1] at a constant rate; it is its own ``frames``.

    Each picture becomes ``uint8 (H, W, 3)`` when it is asked for, rounded as :meth:`Video.from_tensor` rounds, so that scores and
    comparisons are those of the same video in memory. One channel is grey, a fourth is left out; values outside are clipped.

    Args:
        each: called before every picture; what it raises ends the work.

    Raises:
        MediaError: another shape or number type, no picture, a wrong ``fps``; when asked for a picture, NaN or infinity in it.
    """

    def __init__(self, images: Tensor, fps: float, source: str = "", each: Step | None = None) -> None:  # (B, H, W, C)
        if images.ndim != 4 or images.shape[-1] not in (1, 3, 4) or not images.is_floating_point():
            raise MediaError(f"pictures must be float (B, H, W, 3) in [0, 1], got {images.dtype} {tuple(images.shape)}")
        if 0 in images.shape:
            raise MediaError(f"a video needs at least one frame and one pixel, got shape {tuple(images.shape)}")
        check_fps(fps)
        self._images, self._each = images, each
        self.fps, self.source = float(fps), source
        self.timestamps = np.arange(len(images), dtype=np.float64) / self.fps

    def __len__(self) -> int:
        return len(self._images)

    @property
    def height(self) -> int:
        return int(self._images.shape[1])

    @property
    def width(self) -> int:
        return int(self._images.shape[2])

    @property
    def duration(self) -> float:
        return len(self) / self.fps

    @property
    def frames(self) -> ImageBatch:
        return self

    def __getitem__(self, number: int) -> np.ndarray:
        import torch

        if not 0 <= number < len(self):
            raise IndexError(number)
        if self._each is not None:
            self._each()
        picture = self._images[number, ..., :3].detach().to("cpu", torch.float32)
        if not torch.isfinite(picture).all():
            raise MediaError(f"picture {number} holds NaN or infinite values; check the decoder that made it")
        pixels = (picture.clamp(0.0, 1.0) * 255.0).round().to(torch.uint8)
        return pixels.expand(*pixels.shape[:2], 3).contiguous().numpy()


def images_of(clip: Clip, *, device: torch.device | str = "cpu", each: Step | None = None) -> Tensor:
    """All pictures of a clip as ``float32 (B, H, W, 3)`` in [0, 1]; ``each`` is called before every picture."""
    import torch

    images = torch.empty((len(clip), clip.height, clip.width, 3), dtype=torch.float32, device=device)
    for number in range(len(clip)):
        if each is not None:
            each()
        images[number].copy_(torch.from_numpy(clip.frames[number])).div_(255.0)
    return images
