"""The pairs that motion measures are judged on: clips, their corrupted copies, and the rules for which of them count.

A clip is 16 frames of 8-bit pixels, its copies too, as a file would hold them. The rules don't look at any score:

* Parts: a clip is held out if the SHA-256 of its name (a file's name, or "synthetic SEED") leaves 0 on division by 3. All windows
  of a file, and all pairs of a window, lie in the same part.
* Cuts: a window of a file is left out if the colour histograms (16 bins per channel, shares) of two neighbouring frames differ by
  more than 0.1 in total variation. Motion hardly changes a histogram; cuts and dissolves do.
* Visibility: a copy counts if it differs from its clip by at least 1/255 on average over all pixels, frames and channels.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import torch

from phys_pipeline.media import CORRUPTIONS, corrupt, probe, read_video, resample
from phys_pipeline.media.synthetic import COLOURS, object_clip, textured_clip
from phys_pipeline.media.warping import similarity_warp
from phys_pipeline.spectral.report import ANALYSIS_FPS, ANALYSIS_SIDE

FRAMES = 16
STRENGTHS = (0.25, 0.5, 1.0)
VISIBLE = 1 / 255
CUT = 0.1  # total variation between the colour histograms of neighbouring frames
CLEAN, CONTROL = "clean", "control"
_SUFFIXES = (".mp4", ".webm", ".gif", ".mkv", ".webp", ".mov", ".avi")

_SIDE = 64
_NOISE = 2 / 255  # standard deviation of the sensor noise
_PAINT = ("white", "yellow", "green")  # brighter than the background, so that measures on grey pictures see the objects too
_SHAPES = ("square", "bar", "triangle", "star", "circle")
_MOTIONS = ("translation", "rotation", "zoom", "mixture")
CELLS: tuple[tuple[str, str, bool, bool], ...] = tuple(  # content, motion, moving background, sensor noise
    (content, motion, background, noise)
    for noise in (False, True)
    for background in (False, True)  # a texture fills the frame: there the two are repeats
    for motion in _MOTIONS
    for content in ("texture", *_SHAPES, "several")
    if (content, motion) != ("circle", "rotation")  # can't be seen
)


@dataclass(frozen=True, eq=False)
class Clip:
    """One window. ``source`` is "synthetic" or "real", ``name`` the clip it belongs to, ``pixels`` uint8 (16, H, W, 3)."""

    source: str
    name: str
    start: int
    pixels: np.ndarray

    @property
    def held_out(self) -> bool:
        return held_out(self.name)

    @cached_property
    def content(self) -> str:
        """Digest of name, place and pixels: what scores are filed under."""
        head = f"{self.source} {self.name} {self.start} {self.pixels.shape}".encode()
        return hashlib.sha256(head + self.pixels.tobytes()).hexdigest()[:16]


def held_out(name: str) -> bool:
    """Whether a clip belongs to the third that no choice may be made on."""
    return int(hashlib.sha256(name.encode()).hexdigest(), 16) % 3 == 0


def contains_cut(frames: np.ndarray) -> bool:
    """Whether a cut or a dissolve falls between any two neighbouring frames of uint8 (T, H, W, 3)."""
    counts = np.stack([[np.bincount(frame[..., c].ravel() >> 4, minlength=16) for c in range(3)] for frame in frames])
    change = np.abs(np.diff(counts / frames[0, ..., 0].size, axis=0)).sum(axis=2).mean(axis=1) / 2  # (T - 1,)
    return bool((change > CUT).any())


def real_clips(folder: Path, most: int, longer: int = ANALYSIS_SIDE) -> tuple[list[Clip], int]:
    """Up to ``most`` windows spread over each video of a folder, at the size and rate of the scores, and how many had cuts.

    Windows of a file never overlap. Files of fewer than 16 frames at that rate give none. ``longer`` is the longer side in
    pixels; smaller videos keep their size.
    """
    clips, cuts = [], 0
    for path in sorted(folder.iterdir()):
        if path.suffix.lower() not in _SUFFIXES:
            continue
        info = probe(path)
        factor = min(1.0, longer / max(info.height, info.width))
        video = read_video(path, size=(round(info.height * factor), round(info.width * factor)))
        step = max(1, min(round(video.fps / ANALYSIS_FPS), len(video) // FRAMES))
        frames = resample(video, video.fps).frames[::step]
        count = min(most, len(frames) // FRAMES)
        for start in np.linspace(0, len(frames) - FRAMES, count).round().astype(int).tolist():
            window = np.ascontiguousarray(frames[start : start + FRAMES])
            if contains_cut(window):
                cuts += 1
            else:
                clips.append(Clip("real", path.name, start, window))
    return clips, cuts


def synthetic_clip(seed: int) -> Clip:
    """The clip of a seed, 64x64 pixels: the cells take turns, and within its cell each seed draws its own shapes and speeds."""
    content, motion, background, noise = CELLS[seed % len(CELLS)]
    rng = np.random.default_rng([seed, 11])
    if content == "texture":
        velocity, rotation, zoom = _draw_motion(motion, rng)
        video = textured_clip(FRAMES, _SIDE, _SIDE, velocity, rotation, zoom, seed=seed).video
    else:
        angle = rng.uniform(0, 2 * math.pi)
        drift = rng.uniform(0.3, 0.8) if background else 0.0
        backdrop = (drift * math.cos(angle), drift * math.sin(angle))
        video = _objects(content, motion, backdrop, rng, seed)
    pixels = video.permute(1, 2, 3, 0).numpy()  # (T, H, W, 3)
    if noise:
        pixels = pixels + _NOISE * rng.standard_normal(pixels.shape)
    return Clip("synthetic", synthetic_name(seed), 0, _to_bytes(pixels))


def synthetic_name(seed: int) -> str:
    return f"synthetic {seed}"


def _draw_motion(motion: str, rng: np.random.Generator, fastest: float = 2.3) -> tuple[tuple[float, float], float, float]:
    """Velocity in px, rotation in rad and zoom in log size, all per frame; a mixture has half of each."""
    share = 0.5 if motion == "mixture" else 1.0
    angle = rng.uniform(0, 2 * math.pi)
    speed = share * rng.uniform(0.7, fastest) * (motion in ("translation", "mixture"))
    rotation = share * rng.choice([-1, 1]) * rng.uniform(0.035, 0.15) * (motion in ("rotation", "mixture"))
    zoom = share * rng.choice([-1, 1]) * rng.uniform(0.012, 0.042) * (motion in ("zoom", "mixture"))
    return (speed * math.cos(angle), speed * math.sin(angle)), float(rotation), float(zoom)


def _objects(content: str, motion: str, backdrop: tuple[float, float], rng: np.random.Generator, seed: int) -> torch.Tensor:
    """One object, or three that move each in its own way, before a textured background; (3, T, H, W)."""
    count = 3 if content == "several" else 1
    ring = rng.uniform(0, 2 * math.pi)
    contrast = rng.uniform(0.05, 0.1)
    video = torch.empty(0)
    for index in range(count):
        kind = _MOTIONS[index] if motion == "mixture" and count > 1 else motion  # several: one of each kind
        shapes = _SHAPES[:4] if kind == "rotation" else _SHAPES
        shape = shapes[int(rng.integers(len(shapes)))] if count > 1 else content
        velocity, rotation, zoom = _draw_motion(kind, rng, fastest=2.3 if count == 1 else 1.5)
        radius = (9.0 if zoom >= 0 else 14.0) * (1.0 if count == 1 else 0.65)
        distance = rng.uniform(0, 5) if count == 1 else 16.0
        place = ring + 2 * math.pi * index / count  # where the middle of the path lies
        middle = (_SIDE - 1) / 2
        centre = (
            middle + distance * math.cos(place) - 7.5 * velocity[0],
            middle + distance * math.sin(place) - 7.5 * velocity[1],
        )
        colour = _PAINT[index] if count > 1 else _PAINT[int(rng.integers(len(_PAINT)))]
        render = partial(
            object_clip, shape, frames=FRAMES, height=_SIDE, width=_SIDE, centre=centre, radius=radius,
            angle=rng.uniform(0, 2 * math.pi), velocity=velocity, rotation=rotation, zoom=zoom, background_velocity=backdrop,
            seed=seed,
        )  # fmt: skip
        if index == 0:
            video = render(colour=colour, texture=contrast).video
            continue
        # the same object in two colours tells how much of each pixel it covers
        white, blue = (render(colour=paint, texture=0.0).video[:1] for paint in ("white", "blue"))
        cover = (white - blue) / (COLOURS["white"][0] - COLOURS["blue"][0])
        video = video * (1 - cover) + torch.tensor(COLOURS[colour])[:, None, None, None] * cover
    return video


def copies(clip: Clip) -> Iterator[tuple[str, np.ndarray]]:
    """Name ("KIND STRENGTH") and pixels of every corrupted copy, then of the control, seen or not.

    The control is the clip moved by half a pixel right and down, the same in all frames: as much interpolation as a copy can get,
    and not another motion. A measure that calls it worse reacts to the interpolation.
    """
    seed = int(hashlib.sha256(f"{clip.name} {clip.start}".encode()).hexdigest(), 16) % 2**31
    video = torch.from_numpy(clip.pixels).permute(3, 0, 1, 2)[None].float() / 255  # (1, 3, T, H, W)
    for kind in CORRUPTIONS:
        for strength in STRENGTHS:
            yield copy_name(kind, strength), _from_tensor(corrupt(video, kind, strength, seed=seed))
    half = 0.5 / video.shape[-1]
    moves = torch.tensor([half, half, 0.0, 0.0]).expand(1, video.shape[2], 4)
    yield CONTROL, _from_tensor(similarity_warp(video, moves))


def copy_name(kind: str, strength: float) -> str:
    return f"{kind} {strength:g}"


def is_visible(clip: np.ndarray, copy: np.ndarray) -> bool:
    """Whether a copy counts; both uint8 (T, H, W, 3)."""
    return float(np.abs(copy.astype(np.int16) - clip).mean()) / 255 >= VISIBLE


def _from_tensor(video: torch.Tensor) -> np.ndarray:
    return _to_bytes(video[0].permute(1, 2, 3, 0).numpy())


def _to_bytes(pixels: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray((np.clip(pixels, 0, 1) * 255).round().astype(np.uint8))
