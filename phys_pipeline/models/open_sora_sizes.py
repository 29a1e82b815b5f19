"""Sizes, lengths and the noise schedule that Open-Sora 1.2 takes from them."""

from __future__ import annotations

import math
import re

from phys_pipeline.errors import ConfigError
from phys_pipeline.models.open_sora_vae import CHUNK_FRAMES, latent_frames

RESOLUTIONS = (144, 240, 360, 480, 720)  # the short side of a 16:9 picture of the same area
SECONDS = {2: 51, 4: 102, 8: 204, 16: 408}  # the released lengths, all whole numbers of 17 frames
PICTURE_FPS = 120.0  # what the model is told in place of a frame rate when it makes one picture


def picture_size(resolution: str, aspect_ratio: str = "9:16") -> tuple[int, int]:
    """(height, width) in pixels of a resolution such as "480p" and an aspect ratio, which is height:width in this model.

    "240p" and "9:16" give 240 x 426, a landscape. Every ratio has the area of the 16:9 picture; sides are even numbers.
    """
    known = re.fullmatch(r"(\d+)p", resolution)
    if known is None or int(known[1]) not in RESOLUTIONS:
        raise ConfigError(f"unknown resolution {resolution!r}: use one of {', '.join(f'{side}p' for side in RESOLUTIONS)}")
    parts = re.fullmatch(r"(\d+):([1-9]\d*)", aspect_ratio)
    if parts is None or not 0.2 <= (ratio := int(parts[1]) / int(parts[2])) <= 5:
        raise ConfigError(f"unknown aspect ratio {aspect_ratio!r}: write height:width, such as 9:16 for a landscape")
    area = int(known[1]) ** 2 * 16 / 9
    return _even(math.sqrt(area * ratio)), _even(math.sqrt(area / ratio))


def _even(side: float) -> int:
    return 2 * round(side / 2)


def timestep_shift(frames: int, height: int, width: int) -> float:
    """Shift of the noise levels for a video of ``frames`` pixel frames: grows with the side and the root of the length.

    The rule counts 5 latents for every whole 17 frames, which leaves none for 2 to 16 frames: ConfigError.
    """
    if frames < 1 or 1 < frames < CHUNK_FRAMES:
        raise ConfigError(
            f"{frames} frames: Open-Sora 1.2 has no noise schedule for 2 to {CHUNK_FRAMES - 1}, use 1 or at least {CHUNK_FRAMES}"
        )
    length = 1 if frames == 1 else frames // CHUNK_FRAMES * latent_frames(CHUNK_FRAMES)
    return math.sqrt(height * width / 512**2) * math.sqrt(length)


def evenly_spaced_sigmas(steps: int) -> list[float]:
    """Noise levels from 1 down to 1/N, before the shift."""
    return [1 - i / steps for i in range(steps)]
