"""Held-out prompts of the world, each with a clean clip that shows what it asks for."""

from __future__ import annotations

from dataclasses import replace

from training.world.captions import write_caption
from training.world.clips import WorldClip, world_clip


def held_out_clips(count: int, seed: int, *, frames: int = 16, side: int = 64, spread: float = 1.0) -> list[WorldClip]:
    """``count`` clean clips of scenes that training never shows, with canonical captions, no two alike.

    A function of its arguments: the first ``n`` are the same for every ``count`` above ``n``.
    """
    found: dict[str, WorldClip] = {}
    index = 0
    while len(found) < count:
        clip = world_clip(seed, index, flawed=False, held_out=True, frames=frames, side=side, spread=spread)
        caption = write_caption(clip.scene)
        found.setdefault(caption, replace(clip, caption=caption))
        index += 1
    return list(found.values())


def labels_of(clip: WorldClip) -> dict[str, str]:
    """Labels for ``phys-pipeline evaluate``: stratum, motion, and the direction where there is one."""
    motions = {"mixture": "mixed", "static": "other", "event": "other"}
    labels = {
        "stratum": "simple" if clip.scene.simple else "complex",
        "motion": motions.get(clip.truth.motion, clip.truth.motion),
    }
    if clip.truth.direction is not None:
        labels["direction"] = clip.truth.direction
    return labels
