"""Where the tiny model's clips come from: the small world of ``media.synthetic``, or the procedural one with the web's faults."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
import torch

from phys_pipeline.media.synthetic import COLOURS, MOTIONS, REVERSED, SHAPES, all_captions, is_visible_motion, make_clip
from phys_pipeline.media.synthetic import write_caption as write_shape_caption
from training.world.captions import vocabulary, write_caption
from training.world.clips import world_clip
from training.world.scenes import ONE_WAY, Scene

WORLDS = ("shapes", "clean", "flawed")
PARAPHRASE_SHARE = 0.3
_STREAM = 7
_HELD_OUT = 24
_ONE_WAY = {
    "moves left": "moves right",
    "moves up": "moves down",
    "rotates counterclockwise": "rotates clockwise",
    "shrinks": "grows",
}

Subject = tuple[str, str, str]  # colour, shape, motion


class ClipSource(Protocol):
    """Clips in chunks, each a function of its number, with labels (plain data) from which captions are written at every use."""

    name: str
    captions: list[str]  # for the tokenizers

    def chunk(self, index: int, size: int) -> Iterator[tuple[torch.Tensor, Any]]:
        """Yield ``size`` (video, label) pairs; videos are float32 (3, T, H, W) in [0, 1]."""
        ...

    def frames(self, rng: np.random.Generator, count: int) -> torch.Tensor:
        """(3, count, H, W): a few frames of some clip, for the autoencoder."""
        ...

    def shown(self, label: Any, rng: np.random.Generator, one_way: bool) -> tuple[bool, str] | None:
        """Whether the clip is to be played backwards, and the caption that then fits; None when it is not to be shown."""
        ...


def held_out_subjects() -> list[Subject]:
    """The (colour, shape, motion) triples that no training clip shows, for evaluation; always the same ones."""
    visible = [(c, s, m) for c in COLOURS for s in SHAPES for m in MOTIONS if is_visible_motion(s, m)]
    visible.remove(("red", "square", "moves right"))  # the example of the documentation
    order = np.random.default_rng(20).permutation(len(visible))
    return sorted(visible[i] for i in order[:_HELD_OUT])


class ShapeSource:
    """Coloured shapes on a dark ground, one motion each: what the embedded model was trained on."""

    name = "shapes"

    def __init__(self, seed: int, frames: int, side: int, spread: float = 1.0) -> None:
        self.seed, self.length, self.side, self.spread = seed, frames, side, spread
        self.captions = all_captions()
        self._held_out = frozenset(held_out_subjects())

    def chunk(self, index: int, size: int) -> Iterator[tuple[torch.Tensor, Any]]:
        narrowed = () if self.spread == 1.0 else (round(100 * self.spread),)
        rng = np.random.default_rng((_STREAM, self.seed, index, *narrowed))
        made = 0
        while made < size:
            clip = make_clip(rng, self.length, self.side, self.side, spread=self.spread)
            subject = (clip.colour, clip.shape, clip.motion)
            if subject not in self._held_out:
                made += 1
                yield clip.video, subject

    def frames(self, rng: np.random.Generator, count: int) -> torch.Tensor:
        return make_clip(rng, frames=count, height=self.side, width=self.side).video

    def shown(self, label: Any, rng: np.random.Generator, one_way: bool) -> tuple[bool, str] | None:
        colour, shape, motion = label
        shown = _ONE_WAY.get(motion, motion) if one_way else REVERSED[motion] if rng.random() < 0.5 else motion
        if (colour, shape, shown) in self._held_out:
            return None
        return shown != motion, write_shape_caption(colour, shape, shown, rng, PARAPHRASE_SHARE)


class WorldSource:
    """The procedural world, ``flawed`` or clean. One way means simple scenes only, turned so that each motion has one sense."""

    def __init__(self, seed: int, frames: int, side: int, spread: float = 1.0, *, flawed: bool = True) -> None:
        self.name = "flawed" if flawed else "clean"
        self.seed, self.length, self.side, self.spread, self.flawed = seed, frames, side, spread, flawed
        self.captions = vocabulary()

    def chunk(self, index: int, size: int) -> Iterator[tuple[torch.Tensor, Any]]:
        for number in range(index * size, (index + 1) * size):
            clip = world_clip(self.seed, number, flawed=self.flawed, frames=self.length, side=self.side, spread=self.spread)
            yield clip.video, [clip.scene.to_list(), clip.flaw]

    def frames(self, rng: np.random.Generator, count: int) -> torch.Tensor:
        return world_clip(self.seed, int(rng.integers(2**31)), flawed=False, frames=count, side=self.side).video

    def shown(self, label: Any, rng: np.random.Generator, one_way: bool) -> tuple[bool, str] | None:
        scene, flaw = Scene.from_list(label[0]), label[1]
        turnable = flaw not in ("reverse", "cut")  # played backwards, these don't begin as their captions say
        reverse = scene.backwards() if turnable else None
        backwards = False
        if one_way:
            if not scene.simple:
                return None
            backwards = any(word in ONE_WAY for word in scene.words)
            if backwards and reverse is None:
                return None
        elif reverse is not None:
            backwards = rng.random() < 0.5
        shown = reverse if backwards and reverse is not None else scene
        return backwards, write_caption(shown, rng, PARAPHRASE_SHARE)


def clip_source(world: str, seed: int, frames: int, side: int, spread: float) -> ShapeSource | WorldSource:
    """The source of ``world``, one of ``WORLDS``."""
    if world == "shapes":
        return ShapeSource(seed, frames, side, spread)
    return WorldSource(seed, frames, side, spread, flawed=world == "flawed")
