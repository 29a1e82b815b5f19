"""What a training run would see of its clips: sizes, rates, buckets, windows, every skipped clip, and a sheet of pictures."""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from phys_pipeline.atomic import atomic_file
from phys_pipeline.media import probe
from phys_pipeline.media.text import MUTED, Surface
from phys_pipeline.tables import typed, write_table
from training.config import TrainConfig
from training.data import SkipClip, read_windows
from training.scores import BOOKKEEPING
from training.sources import CAPTION_COLUMNS, PATH_COLUMNS, Clip, Skipped, find_clips, list_entries

_SHEET_FRAMES, _SHEET_WIDTH = 6, 720  # pixels
_SHEET_ROWS = 100
_CAPTION, _GAP = 36, 10  # pixels


@dataclass(frozen=True)
class ClipFacts:
    """One clip as it is on disk, and the windows it gives; `frames` and `fps` are those of the file."""

    name: str
    frames: int
    fps: float
    width: int
    height: int
    seconds: float
    bucket: str  # frames x height x width of its windows
    windows: int
    caption: str


@dataclass(frozen=True)
class Inspection:
    """All clips of a source; `strips` are the pictures of the sheet, (T, H, W, 3) uint8, for the first clips.

    `columns` are those of the clips' table and of their scores, by path and caption.
    """

    clips: list[Clip]
    facts: list[ClipFacts]
    skipped: list[Skipped]
    strips: list[np.ndarray]
    columns: dict[tuple[Path, str], Mapping[str, Any]]

    def scored(self) -> list[tuple[str, ...]]:
        """Motion loss and dominant motion of every clip as text, nothing when none has a score."""
        rows = [self.columns[clip.path, clip.caption] for clip in self.clips]
        pairs = [(typed(row.get("composite")), row.get("dominant")) for row in rows]
        known: list[tuple[str, ...]] = [
            (f"{loss:.3f}" if isinstance(loss, (int, float)) else "", str(kind or "")) for loss, kind in pairs
        ]
        return known if any(loss for loss, *_ in known) else []

    def to_dict(self) -> dict[str, Any]:
        """The JSON form (schema "phys-pipeline/data-inspection", version 1)."""
        return {
            "schema": "phys-pipeline/data-inspection",
            "version": 1,
            "used": len(self.facts),
            "skipped": len(self.skipped),
            "windows": sum(fact.windows for fact in self.facts),
            "seconds": sum(fact.seconds for fact in self.facts),
            "buckets": self.buckets(),
            "fps": _counts(f"{fact.fps:.4g}" for fact in self.facts),
            "sizes": _counts(f"{fact.width}x{fact.height}" for fact in self.facts),
            "clips": [dataclasses.asdict(fact) for fact in self.facts],
            "skipped_clips": [dataclasses.asdict(skipped) for skipped in self.skipped],
        }

    def buckets(self) -> dict[str, dict[str, int]]:
        """Clips and windows of every bucket that has any."""
        return {
            bucket: {"clips": clips, "windows": sum(fact.windows for fact in self.facts if fact.bucket == bucket)}
            for bucket, clips in _counts(fact.bucket for fact in self.facts).items()
        }


def inspect_clips(config: TrainConfig, progress: Callable[[int, int], None] = lambda done, total: None) -> Inspection:
    """Read every clip as training would. A missing caption is a reason to skip here, whatever `missing_captions` says."""
    config = dataclasses.replace(config, missing_captions="skip")
    clips, skipped = find_clips(config)
    wanted = {(clip.path, clip.caption) for clip in clips}
    columns = {key: entry.columns for entry in list_entries(config) if (key := (entry.path, entry.caption)) in wanted}
    used: list[Clip] = []
    facts: list[ClipFacts] = []
    strips: list[np.ndarray] = []
    for number, clip in enumerate(clips, 1):
        try:
            windows = read_windows(clip, config)
        except SkipClip as reason:
            skipped.append(Skipped(clip.name, str(reason)))
        else:
            info, shape = probe(clip.path), windows[0].shape[1:]
            bucket = "x".join(map(str, shape))
            used.append(clip)
            facts.append(
                ClipFacts(
                    clip.name, info.frames, info.fps, info.width, info.height, info.duration, bucket, len(windows), clip.caption
                )
            )
            if len(strips) < _SHEET_ROWS:
                strips.append(_strip(windows[0]))
        progress(number, len(clips))
    return Inspection(used, facts, skipped, strips, columns)


def text_report(inspection: Inspection, source: str) -> str:
    """The inspection as a terminal shows it."""
    about = inspection.to_dict()
    lines = [
        f"{source}: {_number(about['used'], 'clip')} used ({about['seconds']:.1f} s), {about['skipped']} skipped, "
        f"{_number(about['windows'], 'window')}"
    ]
    if inspection.facts:
        scored = inspection.scored()
        rows = [["clip", "size", "fps", "seconds", "bucket", "windows", *(["loss", "dominant"] if scored else []), "caption"]]
        for f, scores in zip(inspection.facts, scored or [()] * len(inspection.facts), strict=True):
            size, rate, seconds = f"{f.width}x{f.height}", f"{f.fps:.4g}", f"{f.seconds:.2f}"
            rows.append([f.name, size, rate, seconds, f.bucket, str(f.windows), *scores, f.caption])
        lines += ["", *_aligned(rows)]
    lines += [
        "",
        *(
            f"bucket {name}: {_number(n['clips'], 'clip')}, {_number(n['windows'], 'window')}"
            for name, n in about["buckets"].items()
        ),
    ]
    if inspection.skipped:
        lines += ["", *_aligned([("skipped", "reason"), *((s.name, s.reason) for s in inspection.skipped)])]
    return "\n".join(lines)


def contact_sheet(inspection: Inspection, path: str | Path) -> None:
    """A PNG with one row of frames for every clip, as cut and resampled for training, its name and caption below.

    At most 100 clips; the last line says how many are left out.
    """
    heights = [strip.shape[1] + _CAPTION + _GAP for strip in inspection.strips]
    left_out = len(inspection.facts) - len(inspection.strips)
    surface = Surface(_SHEET_WIDTH + 2 * _GAP, sum(heights) + _GAP + (_CAPTION if left_out else 0), 1.0)
    tops = [_GAP + sum(heights[:row]) for row in range(len(heights))]
    for strip, fact, top in zip(inspection.strips, inspection.facts, tops, strict=False):
        below = top + strip.shape[1]
        what = f"{fact.name}   {fact.width}x{fact.height}, {fact.fps:.4g} fps, {fact.windows} x {fact.bucket}"
        surface.text(_GAP, below + 14, surface.fit(what, _SHEET_WIDTH, 11, bold=True), 11, bold=True)
        surface.text(_GAP, below + 29, surface.fit(fact.caption, _SHEET_WIDTH, 11), 11, MUTED)
    if left_out:
        surface.text(_GAP, sum(heights) + _GAP + 14, f"and {left_out} more clips", 11, MUTED)
    sheet = np.array(surface.image())
    for strip, top in zip(inspection.strips, tops, strict=True):
        for column, frame in enumerate(strip):
            left = _GAP + column * (strip.shape[2] + 4)
            sheet[top : top + strip.shape[1], left : left + strip.shape[2]] = frame
    from PIL import Image

    with atomic_file(path) as temporary:
        Image.fromarray(sheet).save(temporary, "PNG")


def write_clip_list(inspection: Inspection, path: str | Path) -> None:
    """The used clips as a table that `data=FILE` takes, with paths relative to it and the columns that filters may look at."""
    folder = Path(path).resolve().parent
    rows = []
    for clip in inspection.clips:
        more = {
            name: typed(value)
            for name, value in inspection.columns[clip.path, clip.caption].items()
            if name.lower() not in (*PATH_COLUMNS, *CAPTION_COLUMNS, *BOOKKEEPING)
        }
        video = Path(os.path.relpath(clip.path.resolve(), folder)).as_posix()
        rows.append({"video": video, "caption": clip.caption, **more})
    write_table(path, rows, list(dict.fromkeys(name for row in rows for name in row)))


def _strip(window: Tensor) -> np.ndarray:  # (3, T, H, W) in [0, 1]
    """At most six evenly spaced frames, at a size of which six fill the sheet's width: (n, H, W, 3) uint8."""
    from PIL import Image

    frames, height, width = window.shape[1:]
    chosen = np.unique(np.linspace(0, frames - 1, _SHEET_FRAMES).round().astype(int))
    columns = (_SHEET_WIDTH - 4 * (_SHEET_FRAMES - 1)) // _SHEET_FRAMES
    size = columns, max(1, round(height * columns / width))
    pictures = (window[:, chosen].permute(1, 2, 3, 0) * 255).round().byte().numpy()
    return np.stack([np.asarray(Image.fromarray(picture).resize(size)) for picture in pictures])


def _counts(values: Any) -> dict[str, int]:
    return dict(Counter(values).most_common())


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
