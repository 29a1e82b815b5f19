"""Frames for tests; loaded by the test process, too."""

from __future__ import annotations

import torch


def moving(frames: int, height: int, width: int, channels: int, kind: str, speed: float) -> torch.Tensor:
    """A bright square that moves over a textured ground, ``(frames, height, width, channels)``.

    ``kind`` may hold words: "constant" (one picture, without memory for the others), "noise" (no motion at all), "nan", "half"
    (float16), "strided" (not contiguous).
    """
    generator = torch.Generator().manual_seed(0)
    if "constant" in kind:
        return torch.rand(1, height, width, channels, generator=generator).expand(frames, -1, -1, -1)
    images = (0.2 * torch.rand(height, width, channels, generator=generator)).repeat(frames, 1, 1, 1)
    for number in range(frames):
        left = int(number * speed) % max(1, width - 12)
        images[number, height // 3 : height // 3 + 12, left : left + 12] = 0.9
    if "noise" in kind:
        images = torch.rand(images.shape, generator=generator)
    if "nan" in kind:
        images[frames // 2, 3, 3] = float("nan")
    if "half" in kind:
        images = images.half()
    if "strided" in kind:
        images = images.permute(2, 0, 1, 3).contiguous().permute(1, 2, 0, 3)
    return images
