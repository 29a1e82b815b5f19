"""An autoencoder of pictures (diffusers' ``AutoencoderKL``) used on video: every frame alone, a few at a time."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

FRAMES_AT_ONCE = 4
SCALING_FACTOR = 0.18215  # by which MVDiT and Open-Sora 1.2 multiply the latents, whatever the autoencoder's config says


def encode_frames(vae: Any, video: Tensor, generator: torch.Generator | None = None) -> Tensor:  # (B, 3, T, H, W)
    """Unscaled latents (B, C, T, H/8, W/8) of a video in [-1, 1]: the posterior's mode, or with ``generator`` a sample."""
    posteriors = (vae.encode(part).latent_dist for part in _frames(video).split(FRAMES_AT_ONCE))
    latents = [p.mode() if generator is None else p.sample(generator) for p in posteriors]
    return _video(torch.cat(latents), len(video))


def decode_frames(vae: Any, latents: Tensor) -> Tensor:  # (B, C, T, H', W')
    """Video (B, 3, T, 8H', 8W') of unscaled latents, about in [-1, 1]. Differentiable."""
    parts = [vae.decode(part, return_dict=False)[0] for part in _frames(latents).split(FRAMES_AT_ONCE)]
    return _video(torch.cat(parts), len(latents))


def _frames(video: Tensor) -> Tensor:  # (B, C, T, H, W)
    return video.transpose(1, 2).flatten(0, 1)


def _video(frames: Tensor, batch: int) -> Tensor:  # (B*T, C, H, W)
    return frames.unflatten(0, (batch, -1)).transpose(1, 2)
