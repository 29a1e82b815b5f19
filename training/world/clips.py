"""Captioned clips of the world, each a function of (seed, index): clean, or with the faults of scraped video.

python -m training.world.sheet out/world.png      # look at them
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch

from phys_pipeline.errors import ConfigError
from phys_pipeline.media.corruptions import corrupt
from training.world.bodies import Pose
from training.world.captions import direction_of, write_caption
from training.world.rendering import render
from training.world.scenes import Scene, draw_scene

FLAWS: tuple[str, ...] = ("jitter", "stutter", "cut", "reverse", "flicker", "rubber")
_SHOWN_BY_STILL_CLIPS = ("jitter", "cut", "flicker", "rubber")  # the order of equal frames doesn't show
FLAWED_SHARE = 0.4
PARAPHRASE_SHARE = 0.4
_CLIPS, _FAULTS, _OTHERS, _REFERENCE = 0, 1, 2, 3  # streams of random numbers
_WEAKEST = 0.3  # of a flaw's strengths, which are drawn evenly up to 1


@dataclass(frozen=True)
class Truth:
    """What the clean clip does. ``motion``: translation, rotation, scaling, static, mixture or event; ``direction``: a label of
    ``phys-pipeline evaluate``, None for mixtures; ``speed`` of the leading motion per frame: px, rad or log size.

    ``poses``: (T, 4) x, y, angle, log size of each body in the scene; ``camera``: (T, 4) of the picture.
    """

    motion: str
    direction: str | None
    speed: float
    poses: list[Pose]
    camera: Pose


@dataclass(frozen=True)
class WorldClip:
    """``video``: float32 (3, T, H, W) in [0, 1]. ``flaw`` "" and ``strength`` 0 where nothing is wrong; no caption tells."""

    video: torch.Tensor
    caption: str
    scene: Scene
    truth: Truth
    flaw: str = ""
    strength: float = 0.0


def motion_kind(scene: Scene) -> str:
    """translation, rotation, scaling, static, mixture or event."""
    if scene.kind == "event":
        return "event"
    words = [word for word in scene.words if word != "stays still"]
    if len(words) != 1:
        return "mixture" if words else "static"
    if words[0].endswith("clockwise"):
        return "rotation"
    return "scaling" if words[0] in ("grows", "shrinks", "zooms in", "zooms out") else "translation"


def _clean(rng: np.random.Generator, frames: int, side: int, spread: float, held_out: bool) -> WorldClip:
    scene = draw_scene(rng, held_out)
    caption = write_caption(scene, rng, PARAPHRASE_SHARE)
    drawn = render(scene, rng, frames, side, spread)
    truth = Truth(motion_kind(scene), direction_of(scene), drawn.speed, drawn.poses, drawn.camera)
    return WorldClip(torch.from_numpy(drawn.video), caption, scene, truth)


def world_clip(
    seed: int, index: int, *, flawed: bool = True, held_out: bool = False, frames: int = 16, side: int = 64, spread: float = 1.0
) -> WorldClip:
    """Clip number ``index`` of the world ``seed``.

    Args:
        flawed: ``FLAWED_SHARE`` of the clips have one flaw; without, the same clips without it: the clean reference.
        held_out: a clip with a pair of subject and motion that training never shows (another stream of clips).
        spread: in [0, 1]; narrows places, sizes and speeds towards their means.

    Raises:
        ConfigError: a negative seed or index, a spread outside [0, 1], under 2 frames, a side under 16.
    """
    if min(seed, index) < 0 or not 0 <= spread <= 1 or frames < 2 or side < 16:
        wanted = "use numbers from 0, a spread in [0, 1], 2 frames or more of 16 px or more"
        raise ConfigError(f"seed {seed}, index {index}, spread {spread}, {frames} frames of {side} px: {wanted}")
    stream = _REFERENCE if held_out else _CLIPS
    clip = _clean(np.random.default_rng((61, stream, seed, index)), frames, side, spread, held_out)
    if not flawed:
        return clip
    rng = np.random.default_rng((61, _FAULTS, stream, seed, index))
    if rng.random() >= FLAWED_SHARE:
        return clip
    possible = FLAWS if clip.truth.motion != "static" else _SHOWN_BY_STILL_CLIPS
    flaw = possible[int(rng.integers(len(possible)))]
    strength = float(rng.uniform(_WEAKEST, 1.0))
    other = None
    if flaw == "cut":
        others = np.random.default_rng((61, _OTHERS, stream, seed, index))
        other = _clean(others, frames, side, spread, held_out=False).video
    broken = corrupt(clip.video, flaw, strength, int(rng.integers(2**31)), other=other)
    return replace(clip, video=broken, flaw=flaw, strength=strength)


def world_clips(seed: int, begin: int, end: int, *, flawed: bool = True, spread: float = 1.0) -> Iterator[WorldClip]:
    """Clips ``begin`` to ``end`` (not included), one at a time."""
    for index in range(begin, end):
        yield world_clip(seed, index, flawed=flawed, spread=spread)
