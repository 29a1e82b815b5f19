"""A page of the experiment's videos beside each other, of prompts that a rule names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from phys_pipeline.atomic import atomic_file, atomic_folder
from phys_pipeline.evaluation.scores import Scores
from phys_pipeline.media import Video, read_video, write_video
from phys_pipeline.media.scaling import resized
from phys_pipeline.media.text import TEXT, Surface
from training.experiments.world import Asked

EXTREMES = 3  # pairs of the largest falls and rises of the jerk
RULE = (
    "The first prompt of each kind of motion and direction, simple and complex, in the order of the file, whatever the videos "
    f"are like; the {EXTREMES} whose tracked jerk falls most from LoRA with base loss to ours, and the {EXTREMES} that rise most."
)
_ENLARGED = 2
_QUALITY = 55  # of WebP: some 40 kB a video, half of the usual quality's
_GAP, _HEADER, _LETTERS = 4, 18, 11  # pixels


@dataclass(frozen=True)
class Shown:
    """A prompt of the page and why it is there."""

    asked: Asked
    reason: str


def choose_prompts(asked: Sequence[Asked], before: Scores, after: Scores, seed: int) -> list[Shown]:
    """By :data:`RULE`; a prompt is shown once, with all its reasons.

    Args:
        asked: the prompts in the order of the file.
        before, after: jerk of LoRA with base loss and of ours, by (prompt id, seed).
        seed: of the videos that are shown.
    """
    shown: dict[str, Shown] = {}
    kinds: set[tuple[str, ...]] = set()
    for one in asked:
        kind = tuple(one.labels.get(label, "") for label in ("stratum", "motion", "direction"))
        if kind not in kinds:
            kinds.add(kind)
            shown[one.id] = Shown(one, "first of its kind")
    ratios = {
        one.id: after.values[one.id, seed] / before.values[one.id, seed]
        for one in asked
        if (one.id, seed) in after.values and before.values.get((one.id, seed), 0.0) > 0
    }
    by_id = {one.id: one for one in asked}
    ranked = sorted(ratios, key=lambda key: ratios[key])
    for name in [*ranked[:EXTREMES], *ranked[: -EXTREMES - 1 : -1]]:
        word = "falls" if ratios[name] < 1 else "rises"
        reasons = [shown[name].reason] if name in shown else []
        shown[name] = Shown(by_id[name], "; ".join([*reasons, f"jerk {word} to {ratios[name]:.2f}"]))
    return list(shown.values())


def write_showcase(page: Path, shown: Sequence[Shown], columns: Mapping[str, str], videos: Mapping[str, Path], seed: int) -> None:
    """Write the page and, in a folder of its name beside it, an animated WebP for each prompt.

    Args:
        page: a ``.md``; what the folder held before is replaced.
        columns: key and label of each column, from left to right.
        videos: file of each video by ``column/prompt id#seed``.
    """
    with atomic_folder(page.with_suffix("")) as folder:
        for one in shown:
            clips = [read_video(videos[f"{key}/{one.asked.id}#{seed}"]) for key in columns]
            beside = _beside(clips, list(columns.values()))
            write_video(folder / f"{one.asked.id}.webp", beside, webp_quality=_QUALITY)
    tables = page.name.removesuffix("_videos.md") + ".md"
    parts = [
        f"# Videos of the experiment, side by side\n\nTest prompts, training seed {seed}, same noise in each column: "
        f"{', '.join(columns.values())}. Written with the tables of [the experiment]({tables}), which judge every prompt;"
        f" made by the embedded model, under the licence of its card. Rule: {RULE}"
    ]
    for one in shown:
        kind = ", ".join(value for value in (one.asked.labels.get("stratum"), one.asked.labels.get("motion")) if value)
        parts.append(f"## {one.asked.text}\n\n{kind}; {one.reason}\n\n![{one.asked.text}]({page.stem}/{one.asked.id}.webp)")
    with atomic_file(page) as temporary:
        temporary.write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def _beside(clips: Sequence[Video], labels: Sequence[str]) -> Video:
    """All clips enlarged in one row, their labels above."""
    height, width = clips[0].height * _ENLARGED, clips[0].width * _ENLARGED
    surface = Surface(len(clips) * (width + _GAP) - _GAP, height + _HEADER, 1.0)
    for place, label in enumerate(labels):
        fits = surface.fit(label, width, _LETTERS)
        surface.text(place * (width + _GAP) + width / 2, _HEADER - 5, fits, _LETTERS, TEXT, anchor="ms")
    empty = np.asarray(surface.image())  # (H, W, 3)
    frames = []
    for number in range(min(len(clip) for clip in clips)):
        picture = empty.copy()  # (H, W, 3)
        for place, clip in enumerate(clips):
            left = place * (width + _GAP)
            picture[_HEADER:, left : left + width] = resized(clip.frames[number], height, width)
        frames.append(picture)
    return Video.from_frames(np.stack(frames), fps=clips[0].fps)
