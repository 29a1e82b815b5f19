"""The procedural world as a folder that an experiment reads, laid out as :mod:`training.experiments.world` says."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from phys_pipeline.atomic import atomic_folder
from training.experiments.world import SPLITS, write_clips, write_prompts
from training.world.clips import world_clip
from training.world.prompts import held_out_clips, labels_of

SPREAD = 0.25  # of places, sizes and speeds, as the base model is taught them
_FIRST = {"train": 0, "held_out": 1_000_000, "clean": 2_000_000}  # numbers of clips


def write_procedural(
    folder: Path, clips: Mapping[str, int], prompts: Mapping[str, int], *, seed: int, size: tuple[int, int, int] = (16, 64, 64),
    fps: float = 8.0,
) -> None:  # fmt: skip
    """Write training clips of the flawed world, clean clips that follow them, and prompts for what no training clip shows.

    ``train/`` holds the first clips of the world ``seed``, with which :mod:`training.pretrain_tiny` begins too; ``held_out/`` and
    ``clean/`` clips without flaws that it never reaches. Prompts ask for held-out pairs of subject and motion, the
    validation's come first.

    Args:
        clips: numbers of clips by folder; prompts: numbers of prompts by split.
        size: frames, height and width; height and width are equal.
    """
    asked = held_out_clips(prompts["validation"] + prompts["test"], seed, frames=size[0], side=size[1])
    with atomic_folder(folder) as scratch:
        for name in SPLITS:
            part, asked = asked[: prompts[name]], asked[prompts[name] :]
            write_prompts(scratch, name, [clip.caption for clip in part], [labels_of(clip) for clip in part])
        for name, begin in _FIRST.items():
            numbers = range(begin, begin + clips[name])
            clip = partial(world_clip, seed, flawed=name == "train", frames=size[0], side=size[1], spread=SPREAD)
            write_clips(scratch / name, map(clip, numbers), fps)


def write_unflawed(folder: Path, clips: int, *, seed: int, size: tuple[int, int, int] = (16, 64, 64), fps: float = 8.0) -> None:
    """Write the training clips of :func:`write_procedural` as they are without their flaws, captions and all."""
    with atomic_folder(folder) as scratch:
        clip = partial(world_clip, seed, flawed=False, frames=size[0], side=size[1], spread=SPREAD)
        write_clips(scratch, map(clip, range(clips)), fps)
