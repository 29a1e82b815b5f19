"""Enlarge small pictures by whole numbers and fit pictures to a height, a width or a frame."""

from __future__ import annotations

import numpy as np
from PIL import Image

READABLE_HEIGHT = 360  # pixels below which text beside a picture can't be read
_LONGEST = 4096  # pixels; enlarging stops here


def enlargement(height: int, width: int) -> int:
    """The smallest whole factor that brings a picture to at least 360 rows, without a side over 4096 pixels."""
    needed = -(-READABLE_HEIGHT // height)
    return max(1, min(needed, _LONGEST // max(height, width)))


def scaled_while_reading(picture: np.ndarray, height: int, width: int) -> np.ndarray:
    """``uint8 (H, W, 3)`` scaled with the triangle filter, antialiased when it shrinks; the same array if the size is right.

    Clips are scored after this filter whether they are reduced in memory, here, or while a container is decoded, by its library:
    both give the same numbers but for rounding.
    """
    if picture.shape[:2] == (height, width):
        return picture
    return np.asarray(Image.fromarray(np.ascontiguousarray(picture)).resize((width, height), Image.Resampling.BILINEAR))


def resized(picture: np.ndarray, height: int, width: int) -> np.ndarray:
    """``uint8 (H, W, 3)`` scaled with Lanczos; the same array if the size is right already."""
    if picture.shape[:2] == (height, width):
        return picture
    return np.asarray(Image.fromarray(np.ascontiguousarray(picture)).resize((width, height), Image.Resampling.LANCZOS))
