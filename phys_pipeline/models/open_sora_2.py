"""Open-Sora 2.0 as diffusers' ``FluxTransformer2DModel``: packed tokens, their positions, and what is given beforehand.

The transformer sees tokens of 2x2 latents, each beside a token of the condition: a mask (1 where a latent frame is given) and
the given latents, zero elsewhere. Text-to-video gives nothing, so its condition is zero, but it is there: the layer that reads
it has a bias. Text tokens all stand at position (0, 0, 0), video tokens at (frame, row, column).
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from phys_pipeline.errors import ConfigError

PATCH = 2  # latents per token along height and width
MAX_FRAMES = 129
TIME_STRIDE = 4
SIZE_MULTIPLE = 16  # pixels: 8 per latent, 2 latents per token

# The released transformer: 16 latent channels and the mask, in tokens of 2x2. 11.9 billion values.
TRANSFORMER_CONFIG: dict[str, Any] = {
    "patch_size": 1,
    "in_channels": 132,
    "out_channels": 64,
    "num_layers": 19,
    "num_single_layers": 38,
    "attention_head_dim": 128,
    "num_attention_heads": 24,
    "joint_attention_dim": 4096,
    "pooled_projection_dim": 768,
    "guidance_embeds": False,
    "axes_dims_rope": (16, 56, 56),
}

_AREAS = {"256px": 256, "768px": 768}
_RATIOS = {"16:9": (16, 9), "9:16": (9, 16), "4:3": (4, 3), "3:4": (3, 4), "1:1": (1, 1), "2.39:1": (2.39, 1)}


def pack(latents: Tensor) -> Tensor:  # (B, C, T, H, W)
    """Tokens (B, T * H/2 * W/2, 4C), frame by frame and row by row; channels lie as (channel, row, column) of the 2x2 patch."""
    batch, channels, frames, height, width = latents.shape
    if height % PATCH or width % PATCH:
        raise ConfigError(f"latents of {height}x{width} can't be packed in 2x2: use pixel sizes that are multiples of 16")
    tokens = latents.reshape(batch, channels, frames, height // PATCH, PATCH, width // PATCH, PATCH)
    return tokens.permute(0, 2, 3, 5, 1, 4, 6).flatten(4).flatten(1, 3)


def unpack(tokens: Tensor, frames: int, height: int, width: int) -> Tensor:  # (B, T * H/2 * W/2, 4C)
    """Latents (B, C, T, H, W) of packed tokens; sizes are those of the latents."""
    channels = tokens.shape[-1] // PATCH**2
    latents = tokens.reshape(len(tokens), frames, height // PATCH, width // PATCH, channels, PATCH, PATCH)
    return latents.permute(0, 4, 1, 2, 5, 3, 6).reshape(len(tokens), channels, frames, height, width)


def positions(frames: int, height: int, width: int, device: torch.device | str | None = None) -> Tensor:
    """Positions (tokens, 3) of the video's tokens as (frame, row, column), float32; sizes are those of the latents."""
    axes = [torch.arange(n, dtype=torch.float32, device=device) for n in (frames, height // PATCH, width // PATCH)]
    return torch.cartesian_prod(*axes)


def condition(latents: Tensor, given: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
    """The condition (B, C + 1, T, H, W) of video latents (B, C, T, H, W): the mask, then the given latents where it is 1.

    ``given`` (B, C, T, H, W) and ``mask`` (B, 1, T, H, W) come together or not at all (text-to-video: all zero).
    """
    if (given is None) != (mask is None):
        raise ConfigError("given latents and their mask come together: pass both or neither")
    if given is None or mask is None:
        return torch.zeros_like(latents[:, :1]).repeat(1, latents.shape[1] + 1, 1, 1, 1)
    if given.shape[1:] != latents.shape[1:] or mask.shape[1:] != latents[:, :1].shape[1:]:
        raise ConfigError(
            f"given latents {tuple(given.shape)} and mask {tuple(mask.shape)} don't fit the video's {tuple(latents.shape)}: "
            "encode pictures of the video's own size"
        )
    mask = mask.to(latents)
    both = torch.cat([mask, torch.where(mask > 0, given.to(latents), 0.0)], dim=1)
    return both.expand(len(latents), -1, -1, -1, -1)


def flow_shift(tokens_per_frame: int, latent_frames: int) -> float:
    """Timestep shift of a video: it grows with the tokens of a frame and the root of the number of latent frames."""
    return (1 + 2 * (tokens_per_frame - 256) / (4096 - 256)) * math.sqrt(latent_frames)


def video_shift(num_frames: int, height: int, width: int) -> float:
    """:func:`flow_shift` of a video's size in frames and pixels."""
    return flow_shift(height // SIZE_MULTIPLE * (width // SIZE_MULTIPLE), (num_frames - 1) // TIME_STRIDE + 1)


def video_size(resolution: str, aspect_ratio: str = "16:9") -> tuple[int, int]:
    """(height, width) in pixels of ``256px`` or ``768px`` at a ratio W:H (``16:9`` is landscape, unlike Open-Sora 1.2's).

    The resolution names the side of a square of the same area; sides are rounded to multiples of 16.
    """
    if resolution not in _AREAS or aspect_ratio not in _RATIOS:
        raise ConfigError(
            f"no size {resolution!r} at {aspect_ratio!r}: use one of {', '.join(_AREAS)} and one of {', '.join(_RATIOS)}"
        )
    side, (wide, high) = _AREAS[resolution], _RATIOS[aspect_ratio]
    height, width = (side * math.sqrt(ratio) for ratio in (high / wide, wide / high))
    return round(height / SIZE_MULTIPLE) * SIZE_MULTIPLE, round(width / SIZE_MULTIPLE) * SIZE_MULTIPLE


def check_frames(num_frames: int) -> None:
    """Raise ConfigError, naming the nearest numbers, unless there are 4k+1 frames and at most 129."""
    if not 1 <= num_frames <= MAX_FRAMES:
        raise ConfigError(f"{num_frames} frames: Open-Sora 2.0 makes 1 to {MAX_FRAMES}")
    if (num_frames - 1) % TIME_STRIDE:
        lower = (num_frames - 1) // TIME_STRIDE * TIME_STRIDE + 1
        raise ConfigError(f"{num_frames} frames do not fit Open-Sora 2.0, which takes 4k+1: use {lower} or {lower + TIME_STRIDE}")


def described(prompt: str, fps: float | None, motion_score: float | None) -> str:
    """The prompt as the model was trained to read it: with its frame rate and a motion score (4 is usual); None leaves one out.

    An empty prompt stays empty: it stands for no text.
    """
    if prompt and fps is not None:
        prompt += f" {fps:g} FPS."
    if prompt and motion_score is not None:
        prompt += f" {motion_score:g} motion score."
    return prompt
