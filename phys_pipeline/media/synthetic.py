"""Captioned synthetic clips whose motion is known exactly: coloured shapes, and textures, moving under SIM(2).

Everything is evaluated analytically at the moved coordinates (signed distances for shapes, plane waves for textures), so that
sub-pixel motion is exact: no picture is resampled and no border enters the frame. Coordinates are pixels, x right, y down;
rotation is positive clockwise on screen; zoom is the change of log size per frame, positive when the content grows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from phys_pipeline.errors import ConfigError

COLOURS: dict[str, tuple[float, float, float]] = {
    "red": (0.90, 0.13, 0.13),
    "green": (0.13, 0.75, 0.20),
    "blue": (0.18, 0.35, 0.95),
    "yellow": (0.95, 0.86, 0.15),
    "purple": (0.65, 0.20, 0.85),
    "white": (0.95, 0.95, 0.95),
}
SHAPES: tuple[str, ...] = ("square", "circle", "bar", "triangle", "star")
MOTIONS: tuple[str, ...] = (
    "moves left", "moves right", "moves up", "moves down", "rotates clockwise", "rotates counterclockwise", "grows", "shrinks",
    "stays still",
)  # fmt: skip
_DIRECTION = {"moves left": (-1, 0), "moves right": (1, 0), "moves up": (0, -1), "moves down": (0, 1)}
_PARAPHRASES: dict[str, tuple[str, ...]] = {
    "moves left": ("moves to the left", "moving to the left", "is moving left"),
    "moves right": ("moves to the right", "moving to the right", "is moving right"),
    "moves up": ("moves upward", "moving up", "is moving up"),
    "moves down": ("moves downward", "moving down", "is moving down"),
    "rotates clockwise": ("rotating clockwise", "is rotating clockwise", "turns clockwise"),
    "rotates counterclockwise": ("rotating counterclockwise", "is rotating counterclockwise", "turns counterclockwise"),
    "grows": ("growing", "is growing", "becomes larger"),
    "shrinks": ("shrinking", "is shrinking", "becomes smaller"),
    "stays still": ("staying still", "is still", "does not move"),
}
REVERSED: dict[str, str] = {  # what a clip shows when it is played backwards
    "moves left": "moves right", "moves right": "moves left", "moves up": "moves down", "moves down": "moves up",
    "rotates clockwise": "rotates counterclockwise", "rotates counterclockwise": "rotates clockwise",
    "grows": "shrinks", "shrinks": "grows", "stays still": "stays still",
}  # fmt: skip
_ROUND = {"circle"}  # rotation can't be seen
_REFERENCE_SIDE = 64  # sizes and speeds below are in pixels of a picture whose shorter side is this long


@dataclass(frozen=True)
class MotionTruth:
    """Exact motion per frame: ``velocity_x``, ``velocity_y`` px, ``rotation`` rad (clockwise positive), ``zoom`` log size."""

    velocity_x: float = 0.0
    velocity_y: float = 0.0
    rotation: float = 0.0
    zoom: float = 0.0


@dataclass(frozen=True)
class SyntheticClip:
    """A clip, its caption and its true motion. ``video`` is float32 (3, T, H, W) in [0, 1]."""

    video: torch.Tensor
    caption: str
    truth: MotionTruth
    shape: str = ""
    colour: str = ""
    motion: str = ""


def is_visible_motion(shape: str, motion: str) -> bool:
    """Whether ``motion`` can be seen on ``shape``: a turning circle looks still."""
    return not (shape in _ROUND and motion.startswith("rotates"))


def canonical_caption(colour: str, shape: str, motion: str) -> str:
    """Return for example ``"a red square moves right"``."""
    return f"a {colour} {shape} {motion}"


def write_caption(colour: str, shape: str, motion: str, rng: np.random.Generator, paraphrase: float = 0.0) -> str:
    """Return the canonical caption, or with probability ``paraphrase`` a variant ("a red square moving to the right")."""
    if rng.random() >= paraphrase:
        return canonical_caption(colour, shape, motion)
    variants = _PARAPHRASES[motion]
    return canonical_caption(colour, shape, variants[rng.integers(len(variants))])


def all_captions() -> list[str]:
    """Every caption that ``write_caption`` can return for a visible motion, sorted."""
    return sorted(
        canonical_caption(colour, shape, words)
        for motion in MOTIONS
        for words in (motion, *_PARAPHRASES[motion])
        for shape in SHAPES
        if is_visible_motion(shape, motion)
        for colour in COLOURS
    )


def _choose(name: str, value: str | None, allowed: Sequence[str], rng: np.random.Generator) -> str:
    if value is None:
        return str(allowed[int(rng.integers(len(allowed)))])
    if value not in allowed:
        raise ConfigError(f"{name} {value!r} is unknown: use one of {', '.join(allowed)}")
    return value


def _check_size(frames: int, height: int, width: int) -> None:
    if min(frames, height, width) < 1:
        raise ConfigError(f"a clip of {frames} frames of {width}x{height} is empty: use at least 1 frame of 1x1 pixel")


def _moved_coordinates(
    frames: int, height: int, width: int, truth: MotionTruth, centre: tuple[float, float], angle: float = 0.0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return x, y (T, H, W) of each pixel in the moving body's own axes, in its size at frame 0, and its size (T, 1, 1)."""
    t = np.arange(frames, dtype=np.float32)[:, None, None]
    y, x = np.meshgrid(np.arange(height, dtype=np.float32), np.arange(width, dtype=np.float32), indexing="ij")
    x = x[None] - np.float32(centre[0]) - np.float32(truth.velocity_x) * t
    y = y[None] - np.float32(centre[1]) - np.float32(truth.velocity_y) * t
    turn = np.float32(angle) + np.float32(truth.rotation) * t
    size = np.exp(np.float32(truth.zoom) * t)
    cos, sin = np.cos(turn) / size, np.sin(turn) / size
    return cos * x + sin * y, cos * y - sin * x, size


def signed_distance(shape: str, x: np.ndarray, y: np.ndarray, radius: float) -> np.ndarray:
    """Distance to the outline in pixels, negative inside (a lower bound of it outside corners)."""
    if shape == "circle":
        return np.hypot(x, y) - np.float32(0.95 * radius)
    if shape == "square":
        return np.maximum(np.abs(x), np.abs(y)) - np.float32(0.85 * radius)
    if shape == "bar":
        return np.maximum(np.abs(x) - np.float32(1.25 * radius), np.abs(y) - np.float32(0.42 * radius))
    if shape == "triangle":  # tip up, centroid at the origin
        slope = math.sqrt(3) / 2
        inner = 0.6 * radius
        return np.maximum(y, np.float32(slope) * np.abs(x) - np.float32(0.5) * y) - np.float32(inner)
    # star: fold the plane into one of ten equal sectors, whose outline is one straight line from tip to notch
    outer, inner = 1.25 * radius, 0.55 * radius
    distance = np.hypot(x, y)
    sector = 2 * np.pi / 5
    fold = np.abs((np.arctan2(x, -y) + sector / 2) % sector - sector / 2).astype(np.float32)
    along, across = distance * np.cos(fold), distance * np.sin(fold)
    notch_x, notch_y = inner * math.cos(sector / 2), inner * math.sin(sector / 2)
    length = math.hypot(notch_y, outer - notch_x)
    normal = (notch_y / length, (outer - notch_x) / length)
    return (along - np.float32(outer)) * np.float32(normal[0]) + across * np.float32(normal[1])


def _coverage(shape: str, x: np.ndarray, y: np.ndarray, size: np.ndarray, radius: float) -> np.ndarray:
    """Anti-aliased share of each pixel that the shape covers, (T, H, W) in [0, 1]."""
    return np.clip(np.float32(0.5) - signed_distance(shape, x, y, radius) * size, 0, 1)


def plane_waves(
    x: np.ndarray, y: np.ndarray, rng: np.random.Generator, waves: int, shortest: float, longest: float
) -> np.ndarray:
    """Sum of random plane waves with amplitude proportional to wavelength; (3, *x.shape), zero mean, about unit variance."""
    wavelength = np.exp(rng.uniform(math.log(shortest), math.log(longest), waves))
    direction = rng.uniform(0, 2 * np.pi, waves)
    phase = rng.uniform(0, 2 * np.pi, waves)
    amplitude = np.sqrt(wavelength)[:, None] * (1 + 0.35 * rng.standard_normal((waves, 3)))  # log-spaced: sqrt gives 1/f power
    amplitude /= np.sqrt((amplitude**2).sum(0, keepdims=True) / 2)
    out = np.zeros((3, *x.shape), np.float32)
    for i in range(waves):
        kx, ky = 2 * np.pi * np.cos(direction[i]) / wavelength[i], 2 * np.pi * np.sin(direction[i]) / wavelength[i]
        wave = np.sin(np.float32(kx) * x + np.float32(ky) * y + np.float32(phase[i]))
        out += amplitude[i].astype(np.float32)[:, None, None, None] * wave
    return out


def textured_clip(
    frames: int = 16,
    height: int = 64,
    width: int = 64,
    velocity: tuple[float, float] = (0.0, 0.0),
    rotation: float = 0.0,
    zoom: float = 0.0,
    seed: int = 0,
) -> SyntheticClip:
    """A full-frame 1/f texture that moves rigidly about the picture's centre; no border ever shows.

    ``velocity`` is (x, y) in px/frame, ``rotation`` rad/frame clockwise, ``zoom`` log/frame. ConfigError for an empty size.
    """
    _check_size(frames, height, width)
    truth = MotionTruth(float(velocity[0]), float(velocity[1]), float(rotation), float(zoom))
    x, y, _ = _moved_coordinates(frames, height, width, truth, ((width - 1) / 2, (height - 1) / 2))
    texture = plane_waves(x, y, np.random.default_rng(seed), waves=120, shortest=5.0, longest=float(max(height, width, 16)))
    return SyntheticClip(torch.from_numpy(np.clip(0.5 + 0.16 * texture, 0, 1)), "a moving texture", truth)


def object_clip(
    shape: str = "square",
    colour: str = "red",
    *,
    frames: int = 16,
    height: int = 64,
    width: int = 64,
    centre: tuple[float, float] | None = None,
    radius: float = 10.0,
    angle: float = 0.0,
    velocity: tuple[float, float] = (0.0, 0.0),
    rotation: float = 0.0,
    zoom: float = 0.0,
    background_velocity: tuple[float, float] = (0.0, 0.0),
    texture: float = 0.08,
    seed: int = 0,
) -> SyntheticClip:
    """One shape over a textured background, every number explicit.

    ``centre`` (x, y) px, ``radius`` px and ``angle`` rad hold at frame 0 (default: the picture's centre); ``velocity``,
    ``rotation`` and ``zoom`` as in ``textured_clip``; ``background_velocity`` px/frame; ``texture`` is the background's contrast
    (0 = flat grey). ``truth`` is the object's motion. ConfigError for unknown names or an empty size.
    """
    _check_size(frames, height, width)
    rng = np.random.default_rng(seed)
    shape, colour = _choose("shape", shape, SHAPES, rng), _choose("colour", colour, tuple(COLOURS), rng)
    truth = MotionTruth(float(velocity[0]), float(velocity[1]), float(rotation), float(zoom))
    start = centre if centre is not None else ((width - 1) / 2, (height - 1) / 2)
    x, y, size = _moved_coordinates(frames, height, width, truth, start, angle)
    cover = _coverage(shape, x, y, size, radius)[None]
    backdrop = np.full((3, frames, height, width), 0.4, np.float32)
    if texture:
        moved = MotionTruth(float(background_velocity[0]), float(background_velocity[1]))
        bx, by, _ = _moved_coordinates(frames, height, width, moved, (0.0, 0.0))
        backdrop += np.float32(texture) * plane_waves(bx, by, rng, waves=60, shortest=6.0, longest=float(max(height, width, 16)))
    paint = np.asarray(COLOURS[colour], np.float32)[:, None, None, None]
    video = np.clip(backdrop * (1 - cover) + paint * cover, 0, 1)
    return SyntheticClip(torch.from_numpy(video), f"a {colour} {shape}", truth, shape, colour)


def dark_background(height: int, width: int, rng: np.random.Generator) -> np.ndarray:
    """A dark still background (3, 1, H, W): flat, a gradient, or a soft texture."""
    base = (rng.uniform(0.04, 0.34) + rng.uniform(-0.03, 0.03, 3)).astype(np.float32)[:, None, None, None]
    kind = rng.random()
    if kind < 0.55:
        return np.clip(np.broadcast_to(base, (3, 1, height, width)), 0, 1)
    y, x = np.meshgrid(np.arange(height, dtype=np.float32), np.arange(width, dtype=np.float32), indexing="ij")
    if kind < 0.8:
        direction, slope = rng.uniform(0, 2 * np.pi), rng.uniform(0.05, 0.16)
        ramp = math.cos(direction) * (x / max(width, 1) - 0.5) + math.sin(direction) * (y / max(height, 1) - 0.5)
        return np.clip(base + np.float32(slope) * ramp[None, None].astype(np.float32), 0, 1)
    side = min(height, width)
    soft = plane_waves(x[None], y[None], rng, waves=6, shortest=0.35 * side, longest=1.2 * side)
    return np.clip(base + np.float32(rng.uniform(0.015, 0.04)) * soft, 0, 1)


def make_clip(
    seed: int | np.random.Generator | Sequence[int],
    frames: int = 16,
    height: int = 64,
    width: int = 64,
    shape: str | None = None,
    colour: str | None = None,
    motion: str | None = None,
    paraphrase: float = 0.0,
    spread: float = 1.0,
) -> SyntheticClip:
    """Draw a captioned clip; what isn't given is drawn at random. Equal seeds give equal clips.

    The object stays inside the picture. ``paraphrase`` is the share of captions that aren't in canonical form. ``spread`` in
    [0, 1] narrows places, sizes, speeds and angles towards their means: with 0 the caption alone tells where everything is.
    ConfigError for unknown names, for a rotation that can't be seen (circle) or an empty size.
    """
    _check_size(frames, height, width)
    rng = seed if isinstance(seed, np.random.Generator) else np.random.default_rng(seed)
    motion_given = motion is not None
    motion = _choose("motion", motion, MOTIONS, rng)
    shape_names = SHAPES if not motion.startswith("rotates") else tuple(s for s in SHAPES if s not in _ROUND)
    if shape is not None and not is_visible_motion(shape, motion):
        if motion_given:
            raise ConfigError(f"a {shape} that {motion} looks still: choose another shape or motion")
        motion = _choose("motion", None, tuple(m for m in MOTIONS if is_visible_motion(shape, m)), rng)
    shape = _choose("shape", shape, SHAPES if shape is not None else shape_names, rng)
    colour = _choose("colour", colour, tuple(COLOURS), rng)

    def draw(low: float, high: float) -> float:
        return (low + high) / 2 + spread * float(rng.uniform((low - high) / 2, (high - low) / 2))

    scale = min(height, width) / _REFERENCE_SIDE
    span = max(frames - 1, 1)
    pace = 15 / span  # speeds are set for 16 frames, and keep the path's length for other counts
    radius, angle = scale * draw(8.5, 11.0), 0.0
    velocity_x = velocity_y = rotation = zoom = 0.0
    if motion in _DIRECTION:
        speed = scale * pace * draw(1.1, 1.9)
        velocity_x, velocity_y = speed * _DIRECTION[motion][0], speed * _DIRECTION[motion][1]
    elif motion.startswith("rotates"):
        rotation = pace * draw(0.075, 0.15) * (1 if motion == "rotates clockwise" else -1)
        angle = draw(0, 2 * np.pi)
    elif motion in ("grows", "shrinks"):
        zoom = pace * draw(0.035, 0.055) * (1 if motion == "grows" else -1)
        radius = scale * (draw(5.5, 7.0) if motion == "grows" else draw(12.0, 14.0))
    extent = 1.3 * radius * math.exp(max(zoom, 0.0) * span)
    start = []
    for side, velocity in ((width, velocity_x), (height, velocity_y)):
        travel = velocity * span
        low, high = extent + max(-travel, 0.0), side - 1 - extent - max(travel, 0.0)
        start.append(draw(low, high) if low < high else (low + high) / 2)

    truth = MotionTruth(velocity_x, velocity_y, rotation, zoom)
    x, y, size = _moved_coordinates(frames, height, width, truth, (start[0], start[1]), angle)
    cover = _coverage(shape, x, y, size, radius)[None]
    paint = np.asarray(COLOURS[colour], np.float32) * np.float32(rng.uniform(0.92, 1.0))
    backdrop = dark_background(height, width, rng)
    video = backdrop * (1 - cover) + paint[:, None, None, None] * cover
    caption = write_caption(colour, shape, motion, rng, paraphrase)
    return SyntheticClip(torch.from_numpy(np.ascontiguousarray(video, dtype=np.float32)), caption, truth, shape, colour, motion)
