"""Clips for the latent benchmark, their latents, and stand-ins for an autoencoder that compresses time.

The embedded model's autoencoder encodes frame by frame. What a causal video autoencoder with time stride 4 would hold is stood in
for by four ways of putting its frame-wise latents together; all keep the causal rule, in which frame 0 is alone and every
later latent frame covers four pictures:

* ``every``: no compression, one latent frame per picture.
* ``fourth``: frames 0, 4, 8, ... What happens between them is lost.
* ``mean``: frame 0, then the mean of each four.
* ``linear``: the principal components of the four frames' channels together, as many as one frame has channels: the best linear
  causal compression by four. Frame 0 stands for four equal frames, as causal padding makes it.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from benchmarks.pairs import Clip, contains_cut
from phys_pipeline.families.hunyuan_video import HunyuanVideoFamily
from phys_pipeline.media import read_video
from phys_pipeline.media.synthetic import MotionTruth, object_clip, textured_clip

FRAMES = 41  # 4k + 1, and a whole sample clip: eleven latent frames at time stride 4
TIME_STRIDE = 4
SPACE_STRIDE = 8
SIDE = 128  # pixels of a synthetic clip: a latent grid of 16 x 16 cells
WIDTH = 192  # pixels of a real clip
STAND_INS = ("every", "fourth", "mean", "linear")
CONTENTS = ("texture", "square", "texture", "star", "texture", "bar")
MOTIONS = ("translation", "rotation", "zoom", "mixture")
CELLS = tuple((content, motion) for motion in MOTIONS for content in CONTENTS)
_NOISE = 2 / 255
_SUFFIXES = (".mp4", ".webm", ".gif", ".mkv", ".webp", ".mov", ".avi")


def for_tuning(seed: int) -> bool:
    """Whether settings may be chosen on a synthetic clip: a third of them, spread evenly over the cells."""
    return (seed + seed // len(CELLS)) % 3 == 0


def long_clip(seed: int) -> tuple[Clip, MotionTruth, str]:
    """The clip of a seed (41 frames of 128 x 128 pixels), its true motion and the kind of it.

    Cells of content and motion take turns; every other round has sensor noise. Objects move before a still texture.
    """
    content, motion = CELLS[seed % len(CELLS)]
    rng = np.random.default_rng([seed, 23])
    share = 0.5 if motion == "mixture" else 1.0
    direction = rng.uniform(0, 2 * math.pi)
    speed = share * rng.uniform(0.5, 3.0 if content == "texture" else 2.0) * (motion in ("translation", "mixture"))
    velocity = (speed * math.cos(direction), speed * math.sin(direction))
    rotation = float(share * rng.choice([-1, 1]) * rng.uniform(0.01, 0.06) * (motion in ("rotation", "mixture")))
    zoom = float(share * rng.choice([-1, 1]) * rng.uniform(0.004, 0.015) * (motion in ("zoom", "mixture")))
    moved = {"velocity": velocity, "rotation": rotation, "zoom": zoom}
    size = {"frames": FRAMES, "height": SIDE, "width": SIDE}
    if content == "texture":
        drawn = textured_clip(**size, **moved, seed=seed)
    else:
        middle = (SIDE - 1) / 2
        centre = (middle - velocity[0] * (FRAMES - 1) / 2, middle - velocity[1] * (FRAMES - 1) / 2)
        radius = 18.0 if zoom >= 0 else 28.0
        drawn = object_clip(
            content, ("white", "yellow", "green")[seed % 3], **size, **moved, centre=centre, radius=radius,
            angle=rng.uniform(0, 6), seed=seed,
        )  # fmt: skip
    pixels = drawn.video.permute(1, 2, 3, 0).numpy()  # (T, H, W, 3)
    if seed // len(CELLS) % 2:
        pixels = pixels + _NOISE * rng.standard_normal(pixels.shape)
    return Clip("synthetic", long_name(seed), 0, _to_bytes(pixels)), drawn.truth, motion


def long_name(seed: int) -> str:
    return f"latents {seed}"


def panned_texture(speed: float, seed: int, frames: int = FRAMES) -> tuple[Tensor, MotionTruth]:
    """A texture (3, T, 128, 128) that pans in a random direction at ``speed`` pixels a frame."""
    direction = np.random.default_rng([seed, 29]).uniform(0, 2 * math.pi)
    velocity = (speed * math.cos(direction), speed * math.sin(direction))
    drawn = textured_clip(frames, SIDE, SIDE, velocity=velocity, seed=seed)
    return drawn.video, drawn.truth


def long_windows(folder: Path, most: int) -> list[Clip]:
    """Up to ``most`` windows of 41 frames of each video of a folder, 192 pixels wide, at its own rate, without cuts.

    Windows of a file don't overlap; files of fewer frames give none.
    """
    clips = []
    for path in sorted(folder.iterdir()):
        if path.suffix.lower() not in _SUFFIXES:
            continue
        video = read_video(path, max_frames=1)
        height = max(16, round(WIDTH * video.frames.shape[1] / video.frames.shape[2] / 16) * 16)
        frames = read_video(path, size=(height, WIDTH)).frames
        count = min(most, len(frames) // FRAMES)
        for start in np.linspace(0, len(frames) - FRAMES, count).round().astype(int).tolist():
            window = np.ascontiguousarray(frames[start : start + FRAMES])
            if not contains_cut(window):
                clips.append(Clip("real", path.name, start, window))
    return clips


class Encoder:
    """Frame-wise latents of 8-bit clips by the embedded model's autoencoder; equal frames are encoded once."""

    def __init__(self) -> None:
        self.family = HunyuanVideoFamily()
        self.vae = self.family.load("vae")

    def __call__(self, clips: list[np.ndarray]) -> Tensor:
        """uint8 clips (T, H, W, 3) of one shape -> latents (B, C, T, H / 8, W / 8)."""
        places: dict[bytes, int] = {}
        order = [places.setdefault(frame.tobytes(), len(places)) for clip in clips for frame in clip]
        height, width = clips[0].shape[1:3]
        frames = torch.from_numpy(np.stack([np.frombuffer(raw, np.uint8).reshape(height, width, 3) for raw in places]))
        pieces = []
        for begin in range(0, len(frames), 32):
            pixels = frames[begin : begin + 32].permute(3, 0, 1, 2)[None].float() / 255  # (1, 3, N, H, W)
            pieces.append(self.family.encode_video(self.vae, pixels)[0])
        latents = torch.cat(pieces, dim=1)[:, order]  # (C, B T, h, w)
        return latents.unflatten(1, (len(clips), -1)).transpose(0, 1).contiguous()


def groups_of(latents: Tensor) -> Tensor:
    """Causal groups: (B, C, 1 + 4k, h, w) -> (B, 4 C, 1 + k, h, w), frame 0 four times in the first."""
    # latents: (B, C, T, h, w)
    if (latents.shape[2] - 1) % TIME_STRIDE:
        raise ValueError(f"{latents.shape[2]} frames are not 1 + {TIME_STRIDE}k")
    padded = torch.cat([latents[:, :, :1].expand(-1, -1, TIME_STRIDE - 1, -1, -1), latents], dim=2)
    return padded.unflatten(2, (-1, TIME_STRIDE)).transpose(2, 3).flatten(1, 2)


class LinearCompression:
    """Projection of each causal group on its first principal components."""

    def __init__(self, latents: list[Tensor]) -> None:
        # latents: each (B, C, T, h, w)
        channels = latents[0].shape[1]
        cells = torch.cat([groups_of(item)[:, :, 1:].transpose(0, 1).flatten(1) for item in latents], dim=1)  # (4 C, cells)
        values, vectors = torch.linalg.eigh(torch.cov(cells.double()))
        self.basis = vectors[:, -channels:].flip(1).T.float()  # (C, 4 C)
        self.kept = float(values[-channels:].sum() / values.sum())

    def __call__(self, latents: Tensor) -> Tensor:
        """(B, C, 1 + 4k, h, w) -> (B, C, 1 + k, h, w)."""
        return torch.einsum("kc,bcthw->bkthw", self.basis, groups_of(latents))


def compress(latents: Tensor, stand_in: str, linear: LinearCompression) -> Tensor:
    """Latents (B, C, 1 + 4k, h, w) as a stand-in holds them."""
    # latents: (B, C, 1 + 4k, h, w)
    if stand_in == "every":
        return latents
    if stand_in == "fourth":
        return latents[:, :, ::TIME_STRIDE]
    if stand_in == "mean":
        return groups_of(latents).unflatten(1, (latents.shape[1], TIME_STRIDE)).mean(dim=2)
    if stand_in == "linear":
        return linear(latents)
    raise ValueError(f"unknown stand-in {stand_in!r}; use one of {', '.join(STAND_INS)}")


def to_unit(pixels: np.ndarray) -> Tensor:
    """uint8 (T, H, W, 3) -> float (3, T, H, W) in [0, 1]."""
    return torch.from_numpy(pixels).permute(3, 0, 1, 2).float() / 255


def _to_bytes(pixels: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray((np.clip(pixels, 0, 1) * 255).round().astype(np.uint8))
