"""What a clip of the world shows, as plain data: its subject, its motions and its camera; which pairs training never sees."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from phys_pipeline.media.synthetic import COLOURS, MOTIONS, REVERSED
from training.world.bodies import BODY_SHAPES

PHOTOGRAPHS: tuple[str, ...] = ("woman", "cat", "cup", "rocket", "motorcycle", "temple", "flower")
CAMERAS: tuple[str, ...] = (
    "pans left", "pans right", "tilts up", "tilts down", "zooms in", "zooms out", "rolls clockwise", "rolls counterclockwise",
)  # fmt: skip
_CAMERA_REVERSED = {
    "pans left": "pans right", "tilts up": "tilts down", "zooms in": "zooms out", "rolls clockwise": "rolls counterclockwise",
}  # fmt: skip
BACKWARDS: dict[str, str] = (
    REVERSED | _CAMERA_REVERSED | {other: one for one, other in _CAMERA_REVERSED.items()}
)  # what a clip shows when it is played backwards
ONE_WAY = ("moves left", "moves up", "rotates counterclockwise", "shrinks", "pans left", "tilts up", "zooms out",
           "rolls counterclockwise")  # fmt: skip
EVENTS: dict[str, tuple[str, ...]] = {  # simulated; never played backwards -> the shapes that show it
    "falls and bounces": ("circle", "square", "bar"),
    "rolls left": ("circle",),
    "rolls right": ("circle",),
    "flies left": ("circle", "square", "bar"),
    "flies right": ("circle", "square", "bar"),
    "spins clockwise": ("circle", "square", "bar"),
    "spins counterclockwise": ("circle", "square", "bar"),
    "swings": ("bar",),
    "hits": ("circle",),
}
_TRAVELS = MOTIONS[:4]
_TURNS, _ZOOMS = MOTIONS[4:6], MOTIONS[6:8]
KIND_SHARES = {"shape": 0.5, "photograph": 0.25, "event": 0.25}
MIXTURE_SHARE, CAMERA_SHARE = 0.2, 0.2  # of the clips with a shape; the rest have one motion and a still camera
CARD_SHARE = 0.4  # of the photographs: a photograph as a body that moves, not the whole frame
HELD_OUT_SHARE = 0.1  # of all pairs of a subject and a motion


@dataclass(frozen=True)
class Scene:
    """``subject``: "red square" or "cat" (a photograph); ``motions``: what it does; ``camera``: what that does, "" if still.

    ``other``: the colour of what is hit. A photograph that fills the frame has no motions of its own.
    """

    kind: str
    subject: str
    motions: tuple[str, ...] = ()
    camera: str = ""
    other: str = ""

    @property
    def words(self) -> tuple[str, ...]:
        """Motions, then the camera's."""
        return (*self.motions, self.camera) if self.camera else self.motions

    @property
    def simple(self) -> bool:
        """One steady motion of one thing, or of the camera over a photograph."""
        return self.kind != "event" and len([word for word in self.words if word != "stays still"]) <= 1

    def backwards(self) -> Scene | None:
        """What the clip shows played backwards; None for a simulated event."""
        if self.kind == "event":
            return None
        return Scene(self.kind, self.subject, tuple(BACKWARDS[m] for m in self.motions), BACKWARDS.get(self.camera, ""))

    def to_list(self) -> list[Any]:
        """Plain data, for a file; ``from_list`` reads it."""
        return [self.kind, self.subject, list(self.motions), self.camera, self.other]

    @classmethod
    def from_list(cls, stored: list[Any]) -> Scene:
        kind, subject, motions, camera, other = stored
        return cls(kind, subject, tuple(motions), camera, other)


def all_pairs() -> list[tuple[str, str]]:
    """Every (subject, motion) that the world can show, sorted; the camera's motions go with photographs."""
    shapes = [(f"{colour} {shape}", motion) for colour in COLOURS for shape in BODY_SHAPES for motion in MOTIONS]
    events = [(f"{colour} {shape}", event) for event, shapes in EVENTS.items() for shape in shapes for colour in COLOURS]
    photographs = [(name, word) for name in PHOTOGRAPHS for word in (*CAMERAS, *MOTIONS)]
    return sorted(shapes + events + photographs)


@cache
def held_out_pairs() -> frozenset[tuple[str, str]]:
    """The pairs that no training clip shows, always the same; a tenth of each motion, never the documentation's example."""
    rng, chosen = np.random.default_rng(21), set()
    pairs = all_pairs()
    for word in sorted({word for _, word in pairs}):
        own = [pair for pair in pairs if pair[1] == word and pair != ("red square", "moves right")]
        chosen |= {own[i] for i in rng.permutation(len(own))[: max(1, round(HELD_OUT_SHARE * len(own)))]}
    return frozenset(chosen)


def is_held_out(scene: Scene) -> bool:
    """Whether the scene shows a held-out pair of its subject and a motion."""
    return any((scene.subject, word) in held_out_pairs() for word in scene.words)


def draw_scene(rng: np.random.Generator, held_out: bool = False) -> Scene:
    """A scene at random; one that training never shows with ``held_out``, else one that it may show, forwards and backwards."""
    while True:
        scene = _any_scene(rng)
        reverse = scene.backwards()
        if held_out == is_held_out(scene) and (held_out or reverse is None or not is_held_out(reverse)):
            return scene


def _pick(rng: np.random.Generator, names: tuple[str, ...]) -> str:
    return names[int(rng.integers(len(names)))]


def _any_scene(rng: np.random.Generator) -> Scene:
    kind = tuple(KIND_SHARES)[int(np.searchsorted(np.cumsum(list(KIND_SHARES.values())), rng.random(), side="right"))]
    colours = tuple(COLOURS)
    if kind == "photograph":
        name = _pick(rng, PHOTOGRAPHS)
        if rng.random() < CARD_SHARE:
            return Scene(kind, name, (_pick(rng, MOTIONS),))
        return Scene(kind, name, camera=_pick(rng, CAMERAS))
    if kind == "event":
        event = _pick(rng, tuple(EVENTS))
        colour = _pick(rng, colours)
        other = _pick(rng, tuple(name for name in colours if name != colour)) if event == "hits" else ""
        return Scene(kind, f"{colour} {_pick(rng, EVENTS[event])}", (event,), other=other)
    subject = f"{_pick(rng, colours)} {_pick(rng, BODY_SHAPES)}"
    part = rng.random()
    if part < MIXTURE_SHARE:
        return Scene(kind, subject, (_pick(rng, _TRAVELS), _pick(rng, _TURNS + _ZOOMS)))
    if part < MIXTURE_SHARE + CAMERA_SHARE:  # only still things and things that travel: a camera that rolls says enough
        return Scene(kind, subject, ("stays still" if rng.random() < 0.5 else _pick(rng, _TRAVELS),), _pick(rng, CAMERAS[:6]))
    return Scene(kind, subject, (_pick(rng, MOTIONS),))
