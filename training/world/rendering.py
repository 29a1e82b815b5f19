"""From a scene to pixels: draws places, sizes and speeds, then paints ground, bodies and camera."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from phys_pipeline.media.synthetic import dark_background
from training.world.bodies import WIDEST, Body, Pose, body_coordinates, paint_body, sample_picture, steady
from training.world.physics import simulate
from training.world.pictures import CARD_SIDE, FRAME_SIDE, photograph, texture
from training.world.scenes import Scene

_STEPS = {"left": (-1, 0), "right": (1, 0), "up": (0, -1), "down": (0, 1)}
_TEXTURED_SHARE = 0.4  # of the grounds behind a still camera
_GROUND_CONTRAST = 0.6  # of textures behind bodies, so that the bodies stand out
_LARGE = (14.0, 17.0)  # radii in px of what only turns, or rests: smaller, turning hardly shows in latents of 8x8 pixels
_MARGIN = 2.0  # pixels that a body keeps from the border, where there is room


@dataclass(frozen=True)
class Rendered:
    """``video``: float32 (3, T, H, W). ``poses``: (T, 4) of each body in the scene; ``camera``: (T, 4) of the picture.

    ``speed``: of the leading motion, per frame: px, rad or log size.
    """

    video: np.ndarray
    poses: list[Pose]
    camera: Pose
    speed: float


class _Draw:
    """Uniform numbers narrowed towards their mean by ``spread``; speeds are set for 16 frames of 64 px."""

    def __init__(self, rng: np.random.Generator, spread: float, frames: int, side: int) -> None:
        self.rng, self.spread = rng, spread
        self.pace, self.scale = 15 / max(frames - 1, 1), side / 64

    def __call__(self, low: float, high: float) -> float:
        return (low + high) / 2 + self.spread * float(self.rng.uniform((low - high) / 2, (high - low) / 2))


def _speeds(word: str, draw: _Draw, camera: bool = False) -> dict[str, float | tuple[float, float]]:
    """Arguments of ``steady`` for one motion word; a camera's are those of the picture, which goes the other way."""
    last = word.split()[-1]
    flip = -1.0 if camera else 1.0
    if last in _STEPS:
        speed = draw.scale * draw.pace * draw(1.1, 1.9)
        return {"velocity": (flip * speed * _STEPS[last][0], flip * speed * _STEPS[last][1])}
    if last.endswith("clockwise"):
        turn = draw.pace * (draw(0.05, 0.09) if camera else draw(0.085, 0.15))
        return {"rotation": flip * turn * (-1 if last.startswith("counter") else 1)}
    if word in ("grows", "shrinks", "zooms in", "zooms out"):
        zoom = draw.pace * (draw(0.025, 0.04) if camera else draw(0.035, 0.055))
        return {"zoom": zoom if word in ("grows", "zooms in") else -zoom}
    return {}


def _size_of(value: float | tuple[float, float]) -> float:
    return math.hypot(*value) if isinstance(value, tuple) else abs(value)


def _steady_body(scene: Scene, draw: _Draw, frames: int, side: int) -> tuple[Body, Pose, float]:
    """The one body of a scene without events: inside the picture all the time, where there is room."""
    speeds: dict[str, float | tuple[float, float]] = {}
    for motion in scene.motions:
        speeds |= _speeds(motion, draw)
    travels = "velocity" in speeds
    radius = draw.scale * (draw(9.5, 12.5) if travels else draw(*_LARGE))
    if "zoom" in speeds and not travels:
        radius = draw.scale * draw(10.0, 12.5)  # half way
    zoom = speeds.get("zoom", 0.0)
    assert isinstance(zoom, float)
    span = (frames - 1) / 2
    velocity = speeds.get("velocity", (0.0, 0.0))
    assert isinstance(velocity, tuple)
    middle = []
    for speed in velocity:
        reach = 0.9 * WIDEST * radius * math.exp(abs(zoom) * span) + abs(speed) * span + _MARGIN
        room = max((side - 1) / 2 - reach, 0.0)
        middle.append((side - 1) / 2 + draw(-room, room))
    pose = steady(frames, (middle[0], middle[1]), draw(-0.8, 0.8), **speeds)  # type: ignore[arg-type]
    if scene.kind == "photograph":
        body = Body("square", "", radius, picture=photograph(scene.subject, CARD_SIDE, draw.rng))
    else:
        colour, shape = scene.subject.split()
        body = Body(shape, colour, radius)
    leading = next(iter(speeds.values()), 0.0)  # of a mixture: the travel, which comes first
    return body, pose, _size_of(leading)


def render(scene: Scene, rng: np.random.Generator, frames: int, side: int, spread: float) -> Rendered:
    """Draw what ``scene`` leaves open, and paint it. ``spread`` in [0, 1]: with 0 the scene tells the layout, not the look."""
    draw = _Draw(rng, spread, frames, side)
    motion = _speeds(scene.camera, draw, camera=True) if scene.camera else {}
    camera = steady(frames, (0.0, 0.0), **motion)  # type: ignore[arg-type]
    rows, columns = np.mgrid[:side, :side].astype(np.float32)
    centred = columns[None] - np.float32((side - 1) / 2), rows[None] - np.float32((side - 1) / 2)
    x, y, _ = body_coordinates(camera if scene.camera else camera[:1], *centred)  # from the picture's centre
    reach = draw.scale * FRAME_SIDE / 2
    bodies: list[tuple[Body, Pose]] = []
    floor, speed = None, 0.0
    if scene.kind == "event":
        colour, shape = scene.subject.split()
        radius = draw.scale * (draw(*_LARGE) if scene.motions[0].startswith("spins") else draw(9.0, 12.0))
        event = simulate(scene.motions[0], shape, radius, frames, side, rng, spread)
        floor, speed = event.floor, event.speed
        colours = [colour, scene.other]
        bodies = [(Body(shape, name, radius), pose) for name, pose in zip(colours, event.poses, strict=False)]
    elif scene.motions:
        body, pose, speed = _steady_body(scene, draw, frames, side)
        bodies = [(body, pose)]
    if scene.camera and not speed:
        speed = max(_size_of(value) for value in motion.values())
    if scene.kind == "photograph" and scene.camera:
        ground = sample_picture(photograph(scene.subject, FRAME_SIDE, rng), x, y, reach)
    elif scene.camera or rng.random() < _TEXTURED_SHARE:
        ground = np.float32(_GROUND_CONTRAST) * sample_picture(texture(FRAME_SIDE, rng), x, y, reach)
    else:
        ground = dark_background(side, side, rng)
    video = np.ascontiguousarray(np.broadcast_to(ground, (3, frames, side, side)), np.float32)
    if floor is not None:
        under = np.clip(rows - np.float32(floor), 0, 1)
        video += np.float32(0.16) * under
    half = np.float32((side - 1) / 2)
    for body, pose in bodies:
        paint_body(video, body, pose, x + half, y + half)
    return Rendered(np.clip(video, 0, 1), [pose for _, pose in bodies], camera, speed)
