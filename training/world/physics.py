"""Simulated events: bodies that fall, bounce, roll, fly, spin, swing and collide, by pymunk (extra "pretrain").

Pixels and frames are the units; y points down.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from phys_pipeline.errors import ConfigError
from training.world.bodies import Pose

_SUBSTEPS = 20  # per frame
_FLOOR = 0.94  # of the height
_FALL, _ARC, _SWING = 0.9, 0.45, 0.5  # px per frame squared, at 64 px and 16 frames


@dataclass(frozen=True)
class Simulated:
    """``poses``: (T, 4) of each body, log sizes 0. ``floor``: its y in px, None without one.

    ``speed``: mean of the first body per frame, in px, or in rad where it spins in place.
    """

    poses: list[Pose]
    floor: float | None
    speed: float


def _pymunk() -> Any:
    try:
        import pymunk
    except ImportError:
        raise ConfigError('the simulated clips need pymunk: pip install "phys-pipeline[pretrain]"') from None
    return pymunk


def _add(space: Any, shape: str, radius: float, place: tuple[float, float], elasticity: float) -> Any:
    pymunk = _pymunk()
    half = {"square": (0.85 * radius, 0.85 * radius), "bar": (1.25 * radius, 0.42 * radius)}.get(shape)
    moment = pymunk.moment_for_circle(1.0, 0, radius) if half is None else pymunk.moment_for_box(1.0, (2 * half[0], 2 * half[1]))
    body = pymunk.Body(1.0, moment)
    body.position = place
    outline = pymunk.Circle(body, 0.95 * radius) if half is None else pymunk.Poly.create_box(body, (2 * half[0], 2 * half[1]))
    outline.elasticity, outline.friction = elasticity, 0.7
    space.add(body, outline)
    return body


def simulate(event: str, shape: str, radius: float, frames: int, side: int, rng: np.random.Generator, spread: float) -> Simulated:
    """Run ``event`` (a key of ``EVENTS``) in a picture of ``side`` px; ``spread`` in [0, 1] narrows what is drawn to its mean.

    ConfigError without pymunk.
    """
    pymunk = _pymunk()

    def draw(low: float, high: float) -> float:
        return (low + high) / 2 + spread * float(rng.uniform((low - high) / 2, (high - low) / 2))

    scale, pace = side / 64, 15 / max(frames - 1, 1)
    space = pymunk.Space()
    space.iterations = 20
    sign = -1.0 if event.endswith(("left", "counterclockwise")) else 1.0
    middle = side / 2
    floor = _FLOOR * side if event in ("falls and bounces", "rolls left", "rolls right") else None
    if floor is not None:
        ground = pymunk.Segment(space.static_body, (-10 * side, floor + 20), (11 * side, floor + 20), 20)
        ground.elasticity, ground.friction = 0.95, 0.9
        space.add(ground)
    others: list[Any] = []
    if event == "falls and bounces":
        space.gravity = (0, _FALL * scale * pace**2)
        body = _add(space, shape, radius, (middle + side * draw(-0.15, 0.15), radius * draw(0.8, 1.3)), draw(0.7, 0.9))
        body.angle, body.angular_velocity = draw(-0.6, 0.6), pace * draw(-0.12, 0.12)
    elif event.startswith("rolls"):
        speed = scale * pace * draw(1.4, 2.2)
        space.gravity = (0, scale * pace**2)
        body = _add(space, shape, radius, (middle - sign * 7.5 * speed / pace, _FLOOR * side - 0.95 * radius), 0.0)
        body.velocity, body.angular_velocity = (sign * speed, 0), sign * speed / (0.95 * radius)
        body.angle = draw(-math.pi, math.pi)
    elif event.startswith("flies"):
        speed = scale * pace * draw(1.5, 2.3)
        space.gravity = (0, _ARC * scale * pace**2)
        body = _add(space, shape, radius, (middle - sign * 7.5 * speed / pace, side * draw(0.6, 0.75)), 0.5)
        body.velocity, body.angular_velocity = (sign * speed, -_ARC * scale * pace * draw(7.0, 8.5)), pace * draw(-0.1, 0.1)
    elif event.startswith("spins"):
        space.damping = 0.9**pace
        body = _add(space, shape, radius, (middle + side * draw(-0.1, 0.1), middle + side * draw(-0.1, 0.1)), 0.5)
        body.angle, body.angular_velocity = draw(-math.pi, math.pi), sign * pace * draw(0.25, 0.4)
    elif event == "swings":
        space.gravity = (0, _SWING * scale * pace**2)
        body = _add(space, shape, radius, (middle, middle), 0.5)
        pivot = (middle, side * 0.2)
        angle = draw(0.6, 1.0) * (1 if rng.random() < 0.5 else -1)
        body.angle = math.pi / 2 + angle
        body.position = pivot[0] + radius * math.cos(body.angle), pivot[1] + radius * math.sin(body.angle)
        space.add(pymunk.PivotJoint(space.static_body, body, pivot))
    else:  # hits
        sign = 1.0 if rng.random() < 0.5 else -1.0
        speed = scale * pace * draw(2.4, 3.2)
        body = _add(space, shape, radius, (middle - sign * side * 0.36, middle + side * draw(-0.06, 0.06)), 0.95)
        body.velocity = (sign * speed, 0)
        others.append(_add(space, shape, radius, (middle + sign * side * 0.05, middle + side * draw(-0.06, 0.06)), 0.95))
    moving = [body, *others]
    poses = np.zeros((len(moving), frames, 4))
    for frame in range(frames):
        for number, item in enumerate(moving):
            poses[number, frame, :3] = item.position.x, item.position.y, item.angle
        for _ in range(_SUBSTEPS):
            space.step(1 / _SUBSTEPS)
    steps = np.diff(poses[0], axis=0)
    speed = np.abs(steps[:, 2]).mean() if event.startswith("spins") else np.hypot(steps[:, 0], steps[:, 1]).mean()
    return Simulated(list(poses), floor, float(speed))
