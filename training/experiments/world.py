"""The folder an experiment reads: clips with captions, a clean reference, and prompts that no training clip shows.

    train/        NAME.mp4 and NAME.txt: what every arm is trained on, flawed clips among them
    held_out/     clean clips with captions, for the denoising loss
    clean/        clean clips, what frames should look like
    validation.jsonl, test.jsonl   prompts: id, prompt, and labels as in a manifest of `phys-pipeline evaluate`

Another world is another folder of this form, named by `world` in the experiment's settings and written with :func:`write_clips`
and :func:`write_prompts`. :func:`write_world` writes the small one of :mod:`phys_pipeline.media.synthetic`: one shape that moves,
258 captions, split between training and prompts.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np
import torch

from phys_pipeline.atomic import atomic_folder
from phys_pipeline.errors import ConfigError, DataError
from phys_pipeline.evaluation.prompts import label_by_rules
from phys_pipeline.evaluation.sample import LABELS
from phys_pipeline.media import corrupt, write_video
from phys_pipeline.media.synthetic import (
    COLOURS,
    MOTIONS,
    SHAPES,
    SyntheticClip,
    canonical_caption,
    is_visible_motion,
    make_clip,
)

SPLITS = ("validation", "test")
FOLDERS = ("train", "held_out", "clean")
FLAWS = ("jitter", "stutter", "cut", "reverse", "flicker", "rubber")  # what scraped video is full of
_WEAKEST = 0.4
CRF = 10  # of H.264: compression should not be a flaw of its own
_PARAPHRASES = 0.3


@dataclass(frozen=True)
class Asked:
    """One prompt with its labels."""

    id: str
    text: str
    labels: Mapping[str, str]


def subject_of(text: str) -> str:
    """What a caption of our worlds is about: "red square", or "cat" of "a picture of a cat"; else the whole text."""
    found = re.match(r"a picture of an? (\w+)|an? (\w+ \w+)", text)
    return next(filter(None, found.groups())) if found else text


def read_prompts(world: Path, split: str) -> list[Asked]:
    """The prompts of a split, in the order of the file. Raises DataError for a file that isn't there or says an id twice."""
    file = world / f"{split}.jsonl"
    if not file.is_file():
        raise DataError(f"{file}: no such file; {world} is not laid out as training/experiments/world.py says")
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    asked = [Asked(str(row["id"]), row["prompt"], {key: row[key] for key in LABELS if key in row}) for row in rows]
    if not asked or len({a.id for a in asked}) < len(asked):
        raise DataError(f"{file} has no prompt or an id twice")
    return asked


def world_digest(world: Path) -> str:
    """SHA-256 over every file's name and bytes. Raises DataError for a folder that lacks a part."""
    if missing := [name for name in FOLDERS if not (world / name).is_dir()]:
        raise DataError(f"{world} has no folder {missing[0]}: training/experiments/world.py says what a world holds")
    return folder_digest(world)


def captions(folder: Path) -> dict[str, str]:
    """By name of the clip."""
    return {file.stem: file.read_text(encoding="utf-8") for file in sorted(folder.glob("*.txt"))}


def folder_digest(folder: Path) -> str:
    """SHA-256 over every file's name and bytes."""
    total = hashlib.sha256()
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        total.update(str(file.relative_to(folder)).encode() + hashlib.sha256(file.read_bytes()).digest())
    return total.hexdigest()


def split_captions(validation: int, test: int, seed: int) -> dict[str, list[tuple[str, str, str]]]:
    """(colour, shape, motion) for "validation", "test" and "train", disjoint, motions in equal parts as far as they go.

    Raises ConfigError when the prompts would leave no caption for training.
    """
    rng = np.random.default_rng((31, seed))
    queues = []
    for motion in MOTIONS:
        subjects = [(c, s, motion) for c in COLOURS for s in SHAPES if is_visible_motion(s, motion)]
        queues.append([subjects[place] for place in rng.permutation(len(subjects))])
    turns = [queue[place] for place in range(max(map(len, queues))) for queue in queues if place < len(queue)]
    if validation + test >= len(turns):
        raise ConfigError(f"{validation} validation and {test} test prompts leave none of {len(turns)} captions for training")
    return {"validation": turns[:validation], "test": turns[validation : validation + test], "train": turns[validation + test :]}


class CaptionedClip(Protocol):
    """What a source of clips makes: ``video`` float (3, T, H, W) in [0, 1]. Synthetic clips are of this kind."""

    @property
    def video(self) -> torch.Tensor: ...

    @property
    def caption(self) -> str: ...


def write_clips(folder: Path, clips: Iterable[CaptionedClip], fps: float) -> None:
    """NNNNN.mp4 and NNNNN.txt for each clip, in their order."""
    for number, clip in enumerate(clips):
        file = folder / f"{number:05d}.mp4"
        write_video(file, clip.video, fps=fps, crf=CRF)
        file.with_suffix(".txt").write_text(clip.caption, encoding="utf-8")


def write_prompts(folder: Path, split: str, texts: Sequence[str], labels: Sequence[Mapping[str, str]] | None = None) -> None:
    """SPLIT.jsonl; without ``labels`` those that `phys_pipeline.evaluation.prompts` reads from each text."""
    found = [label_by_rules(text).sample_labels() for text in texts] if labels is None else labels
    rows = [
        {"id": f"{split}-{number:03d}", "prompt": text, **own}
        for number, (text, own) in enumerate(zip(texts, found, strict=True))
    ]
    (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def write_world(
    folder: Path, clips: Mapping[str, int], prompts: Mapping[str, int], *, flawed_share: float, seed: int,
    size: tuple[int, int, int] = (16, 64, 64), fps: float = 8.0,
) -> None:  # fmt: skip
    """Write the synthetic world. Clips of ``clips["train"]`` are flawed with probability ``flawed_share``, the others clean.

    Args:
        size: frames, height and width of a clip.
    """
    split = split_captions(prompts["validation"], prompts["test"], seed)
    with atomic_folder(folder) as scratch:
        for name in SPLITS:
            write_prompts(scratch, name, [canonical_caption(*subject) for subject in split[name]])
        for place, name in enumerate(FOLDERS):
            share = flawed_share if name == "train" else 0.0
            made = (_clip(split["train"], share, (seed, place, number), size) for number in range(clips[name]))
            write_clips(scratch / name, made, fps)


def _clip(
    subjects: Sequence[tuple[str, str, str]], flawed_share: float, seed: tuple[int, ...], size: tuple[int, int, int]
) -> SyntheticClip:
    rng = np.random.default_rng(seed)
    colour, shape, motion = subjects[int(rng.integers(len(subjects)))]
    clip = make_clip(rng, *size, shape=shape, colour=colour, motion=motion, paraphrase=_PARAPHRASES)
    if rng.random() >= flawed_share:
        return clip
    kind, strength = FLAWS[int(rng.integers(len(FLAWS)))], float(rng.uniform(_WEAKEST, 1.0))
    return replace(clip, video=corrupt(clip.video, kind, strength, seed=int(rng.integers(2**31))))
