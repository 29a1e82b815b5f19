"""A study folder from two or more columns of videos, and the key that says which side is which.

What could tell a participant the side is taken away: file names are random, both videos of a pair have the same size, rate and
number of frames and are encoded alike, carry no metadata, and are filled up with random bytes to one file size, so that neither
their lengths, their hashes nor their order on the disk says anything. The key is a file of its own beside the folder.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from phys_pipeline.atomic import atomic_file, atomic_folder
from phys_pipeline.errors import DataError
from phys_pipeline.evaluation.sample import VideoSample
from phys_pipeline.media import Video, write_video

STUDY_SCHEMA, KEY_SCHEMA, VERSION = "phys-pipeline/study", "phys-pipeline/study-key", 1
CHECK_TEXT = "A check that you are attentive: please choose the video in which something moves, for both questions."
_LEAST_CHANGE = 1.0  # mean change between frames, in grey levels, below which nobody sees that a clip moves
_SPARE_BYTES = 4096


@dataclass(frozen=True)
class _Pair:
    """Two samples of one prompt and seed; ``columns`` numbers the combination of columns."""

    columns: int
    first: VideoSample
    second: VideoSample


def build_study(
    samples: Sequence[VideoSample],
    folder: Path,
    key: Path,
    *,
    seed: int = 0,
    checks: int = 2,
    per_person: int | None = None,
    title: str = "Video study",
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, Any]:
    """Write a study folder (``study.json``, ``videos/``) and its key; returns the key's content.

    Every two columns are paired over the (prompt, seed) that both have.

    Args:
        samples: videos of two or more columns.
        folder: is made; must not exist, so that no answers are lost.
        key: JSON file that maps file names to columns; must lie outside of ``folder``.
        seed: of the order in which pairs and sides are shown; names and filling are always random.
        checks: trials in which one video is a frozen copy of the other and the text asks for the one that moves.
        per_person: so many pairs (beside the checks) for each participant, drawn at random; None shows all.
        title: headline of the page.

    Raises:
        DataError: fewer than two columns, no common prompt and seed, columns that differ in size, rate or frames, too few
            clips that move, or a folder that exists.
        MediaError: a video that can't be read or is too short to be scored.
    """
    from phys_pipeline.scoring import score_video

    _check_targets(folder, key)
    pairs = _pairs(samples)
    if checks < 2:
        raise DataError(f"checks={checks}: a study needs at least 2 to tell who is attentive")
    if per_person is not None and not 1 <= per_person <= len(pairs):
        raise DataError(f"per_person={per_person}: the study has {len(pairs)} pairs")
    trials: list[dict[str, Any]] = []
    hidden: dict[str, dict[str, Any]] = {}
    moving: list[tuple[float, int, VideoSample]] = []
    scores: dict[str, float] = {}
    with atomic_folder(folder) as temporary:
        videos = temporary / "videos"
        videos.mkdir()
        for number, pair in enumerate(pairs):
            clips = [sample.decode() for sample in (pair.first, pair.second)]
            _check_alike(pair, clips)
            names = _write_pair(videos, clips)
            for name, sample, clip in zip(names, (pair.first, pair.second), clips, strict=True):
                if sample.name not in scores:
                    scores[sample.name] = score_video(clip).to_dict()["dynamic_degree"]
                    moving.append((_change(clip), number, sample))
                hidden[name] = _entry(sample, scores[sample.name])
            trials.append(_trial("pair", pair.columns, pair.first, names, pair.first.prompt))
            progress(number + 1, len(pairs))
        for sample in _most_moving(moving, checks):
            clip = sample.decode()
            frozen = Video(np.repeat(clip.frames[:1], len(clip), axis=0), clip.timestamps, clip.fps)
            names = _write_pair(videos, [clip, frozen])
            hidden[names[0]] = {**_entry(sample, scores[sample.name]), "check": "original"}
            hidden[names[1]] = {**_entry(sample, 0.0), "check": "frozen"}
            trials.append(_trial("check", 0, sample, names, CHECK_TEXT))
        secrets.SystemRandom().shuffle(trials)
        study = {
            "schema": STUDY_SCHEMA, "version": VERSION, "title": title, "seed": seed, "per_person": per_person, "trials": trials,
        }  # fmt: skip
        (temporary / "study.json").write_text(json.dumps(study, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
        content = {
            "schema": KEY_SCHEMA, "version": VERSION, "columns": list(dict.fromkeys(s.model for s in samples)), "files": hidden,
        }  # fmt: skip
        with atomic_file(key) as secret:
            secret.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    return content


def _check_targets(folder: Path, key: Path) -> None:
    for target in (folder, key):
        if target.exists():
            raise DataError(f"{target} exists already: choose another name, so that no answers and no key are lost")
    if folder.resolve() in key.resolve().parents:
        raise DataError(f"the key {key} would lie in the folder that is served: put it elsewhere")


def _pairs(samples: Sequence[VideoSample]) -> list[_Pair]:
    columns: dict[str, dict[tuple[str, int | None], VideoSample]] = {}
    for sample in samples:
        known = columns.setdefault(sample.model, {})
        if (sample.id, sample.seed) in known:
            raise DataError(f"{sample.name} is there twice")
        known[sample.id, sample.seed] = sample
    if len(columns) < 2:
        raise DataError("a study compares two or more columns: give NAME=FOLDER at least twice")
    pairs = []
    for number, (first, second) in enumerate(combinations(columns, 2)):
        shared = [place for place in columns[first] if place in columns[second]]
        if not shared:
            raise DataError(f"columns {first} and {second} have no prompt and seed in common: name files ID.mp4 or ID_seed3.mp4")
        pairs += [_Pair(number, columns[first][place], columns[second][place]) for place in shared]
    for pair in pairs:
        if pair.first.prompt != pair.second.prompt:
            raise DataError(f"{pair.first.name} and {pair.second.name} have different prompts")
    return pairs


def _check_alike(pair: _Pair, clips: Sequence[Video]) -> None:
    first, second = ((f"{clip.width}x{clip.height}", len(clip), round(clip.fps, 3)) for clip in clips)
    if first != second:
        words = [f"{size}, {frames} frames, {fps:g} fps" for size, frames, fps in (first, second)]
        raise DataError(
            f"{pair.first.name} ({words[0]}) and {pair.second.name} ({words[1]}) would be told apart: make them alike"
        )


def _write_pair(folder: Path, clips: Sequence[Video]) -> list[str]:
    """Encode both under random names, in random order, and fill them up to one size; names in the order of ``clips``."""
    names = [f"{secrets.token_hex(8)}.mp4" for _ in clips]
    order = list(range(len(clips)))
    secrets.SystemRandom().shuffle(order)
    for index in order:
        write_video(folder / names[index], clips[index], fps=clips[index].fps)
    sizes = [(folder / name).stat().st_size for name in names]
    total = max(sizes) + 16 + secrets.randbelow(_SPARE_BYTES)
    for index in order:
        _fill(folder / names[index], total - sizes[index])
    return names


def _fill(path: Path, count: int) -> None:
    """Append a "free" box of ``count`` bytes, which players skip (ISO/IEC 14496-12, 8.1.2), and give the file a fixed time."""
    with path.open("ab") as file:
        file.write(count.to_bytes(4, "big") + b"free" + os.urandom(count - 8))
    os.utime(path, (0, 0))


def _entry(sample: VideoSample, dynamic_degree: float) -> dict[str, Any]:
    """Secret part of a video: where it comes from."""
    return {
        "column": sample.model,
        "id": sample.id,
        "seed": sample.seed,
        "sha256": sample.digest,
        "dynamic_degree": dynamic_degree,
    }


def _trial(kind: str, columns: int, sample: VideoSample, names: Sequence[str], text: str) -> dict[str, Any]:
    """What a session has to know of a trial: no column's name.

    ``files`` keep the order of the columns, so that a session can give each the left side equally often; ``study.json`` is never
    served.
    """
    return {
        "trial": secrets.token_hex(8),
        "kind": kind,
        "columns": columns,
        "files": list(names),
        "text": text,
        "labels": {name: value for name, value in sample.labels.items() if name in ("stratum", "motion")},
    }


def _change(clip: Video) -> float:
    """Mean absolute change from frame to frame, in grey levels; frames are read at every fourth pixel."""
    frames = clip.frames[:, ::4, ::4].astype(np.int16)
    return float(np.abs(np.diff(frames, axis=0)).mean()) if len(frames) > 1 else 0.0


def _most_moving(clips: Sequence[tuple[float, int, VideoSample]], count: int) -> list[VideoSample]:
    """Clips for the checks: those that change most, each from another prompt and seed, from all columns in turn."""
    chosen: list[VideoSample] = []
    columns = list(dict.fromkeys(sample.model for _, _, sample in clips))
    places: set[tuple[str, int | None]] = set()
    for index in range(count):
        column = columns[index % len(columns)]
        candidates = [
            (change, -number, sample)
            for change, number, sample in clips
            if sample.model == column and (sample.id, sample.seed) not in places and change >= _LEAST_CHANGE
        ]
        if not candidates:
            raise DataError(f"only {len(chosen)} of {count} attention checks can be made: too few clips move visibly")
        best = max(candidates, key=lambda candidate: candidate[:2])[2]
        places.add((best.id, best.seed))
        chosen.append(best)
    return chosen
