"""From a folder of captioned clips to windows of pixels at one size and one frame rate."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from phys_pipeline.errors import DataError, MediaError
from phys_pipeline.media import Video, VideoInfo, probe, read_video
from training.config import TrainConfig

log = logging.getLogger(__name__)

STILL_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff")
SUFFIXES = (
    *STILL_SUFFIXES, ".mp4", ".webm", ".mkv", ".mov", ".avi", ".m4v", ".mpg", ".mpeg", ".ts", ".ogv", ".wmv", ".flv",
    ".gif", ".apng", ".webp", ".avif",
)  # fmt: skip
_SAME_RATE = 0.05
_STILL = "a still picture; pictures train only with frames=1"
_REPEAT_ADVICE = "lower fps or set repeated_frames=allow"


@dataclass(frozen=True)
class Clip:
    """A clip on disk with its caption; `name` is the path relative to the data folder."""

    path: Path
    name: str
    caption: str
    digest: str  # sha256 of the file's bytes


@dataclass(frozen=True)
class Skipped:
    """A clip that is not trained on, and why."""

    name: str
    reason: str


class SkipClip(Exception):
    """Raised by `read_windows`: this clip can't be used; the message is the reason."""


def find_clips(config: TrainConfig) -> tuple[list[Clip], list[Skipped]]:
    """List the clips of `config.data` (all sub-folders, sorted by name) with their captions.

    The caption of `walk.mp4` is the text of `walk.txt`. Raises DataError when the folder is missing, or lists every clip
    that lacks a caption unless `missing_captions: skip`.
    """
    root = Path(config.data)
    if not root.is_dir():
        raise DataError(f"{root}: no such folder of clips; set data=FOLDER")
    clips: list[Clip] = []
    skipped: list[Skipped] = []
    uncaptioned: list[str] = []
    for path in sorted(p for p in root.rglob("*") if p.is_file() and not p.name.startswith(".")):
        name = path.relative_to(root).as_posix()
        suffix = path.suffix.lower()
        if suffix not in SUFFIXES:
            continue
        if suffix in STILL_SUFFIXES and config.frames != 1:  # thumbnails beside the clips need no caption
            skipped.append(Skipped(name, _STILL))
            continue
        caption = read_caption(path.with_suffix(".txt"))
        if not caption:
            uncaptioned.append(name)
            continue
        clips.append(Clip(path, name, caption, file_digest(path)))
    if uncaptioned and config.missing_captions == "error":
        files = ", ".join(f"{name} (write {Path(name).with_suffix('.txt')})" for name in uncaptioned)
        raise DataError(
            f"{len(uncaptioned)} clip(s) in {root} lack a caption: {files}; one line that says what is seen and how it moves, "
            "or set missing_captions=skip"
        )
    skipped += [Skipped(name, f"no caption; write {Path(name).with_suffix('.txt')}") for name in uncaptioned]
    return clips, skipped


def read_caption(path: Path) -> str:
    """The caption in a text file as one line, "" when there is no file. Raises DataError when it is not UTF-8."""
    try:
        return " ".join(path.read_text(encoding="utf-8-sig").split())
    except FileNotFoundError:
        return ""
    except UnicodeDecodeError:
        raise DataError(f"{path}: the caption is not UTF-8 text; save it as UTF-8") from None


def file_digest(path: Path) -> str:
    """sha256 of a file's bytes, in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        for block in iter(lambda: stream.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def read_windows(clip: Clip, config: TrainConfig) -> list[Tensor]:
    """Decode a clip into windows of pixels, each (3, frames, height, width) float32 in [0, 1]. Raises SkipClip."""
    needed = (config.frames + 2) / config.fps
    seconds = None if config.max_clip_seconds is None else max(config.max_clip_seconds, needed)
    if config.frame_extraction == "head":
        seconds = needed  # nothing after the first window is used
    try:
        info = probe(clip.path)
        if info.frames == 1 and config.frames > 1:
            raise SkipClip(_STILL)
        size = _decoding_size(info, config.height, config.width)
        if config.frames == 1:
            video = read_video(clip.path, max_frames=1, size=size)
        else:
            video = read_video(clip.path, duration=seconds, size=size)
    except MediaError as error:
        raise SkipClip(f"unreadable: {error}") from None
    if config.frames == 1:
        return [crop_and_resize(video.frames[:1], config.height, config.width)]
    indices = resample_indices(video, config.fps)
    if len(indices) < config.frames:
        raise SkipClip(f"too short: {len(indices)} frames at {config.fps:g} fps, needs {config.frames}")
    if len(indices) != len(video) and unevenness(video, indices, config.fps) > 0.25:
        log.warning(
            "%s: %.3g fps resampled to %g takes uneven steps, which looks like jerky motion; an fps that divides it is better",
            clip.name, video.fps, config.fps,
        )  # fmt: skip
    stride = config.window_stride or max(1, config.frames // 2)
    starts = window_starts(len(indices), config.frames, config.frame_extraction, config.samples_per_clip, stride)
    windows = [indices[s : s + config.frames] for s in starts]
    if config.repeated_frames == "skip":
        windows = [w for w in windows if np.all(np.diff(w) > 0)]
        if not windows:
            raise SkipClip(f"frames would repeat: {video.fps:.3g} fps, resampled to {config.fps:g}; {_REPEAT_ADVICE}")
    return [crop_and_resize(video.frames[w], config.height, config.width) for w in windows]


def resample_indices(video: Video, fps: float) -> np.ndarray:
    """Indices of the source frames nearest to the times 0, 1/fps, 2/fps ... until the clip's end, so that motion keeps its speed.

    The clip ends one average frame after its last frame: 101 frames at 24 fps give floor(101 / 24 * 8) = 33 at 8 fps. A steady
    source within 5 % of `fps` is taken frame by frame: a little speed matters less than a missing or doubled frame.
    """
    times = video.timestamps
    steps = np.diff(times)
    steady = len(steps) > 0 and bool(np.all(np.abs(steps - steps.mean()) < 0.25 * steps.mean()))
    if steady and abs(video.fps / fps - 1.0) <= _SAME_RATE:
        return np.arange(len(times))
    count = int(np.floor(video.duration * fps + 1e-3))  # containers round time stamps
    middles = (times[1:] + times[:-1]) / 2
    return np.searchsorted(middles, np.arange(count) / fps)


def unevenness(video: Video, indices: np.ndarray, fps: float) -> float:
    """Largest distance of a chosen frame from its ideal time, in frames at `fps`: above about 0.25, smooth motion turns jerky."""
    return float(np.abs(video.timestamps[indices] - np.arange(len(indices)) / fps).max() * fps)


def _decoding_size(info: VideoInfo, height: int, width: int) -> tuple[int, int] | None:
    """Frames much larger than needed are halved (or more) while decoding, to twice the size needed: memory, not quality."""
    scale = 2.0 * max(height / info.height, width / info.width)
    return (round(info.height * scale), round(info.width * scale)) if scale < 0.75 else None


def window_starts(count: int, frames: int, how: str, samples: int, stride: int) -> list[int]:
    """First frames of the windows of `frames` out of `count` resampled frames.

    `head`: the first window. `middle`: the central one. `uniform`: `samples` windows, evenly spread, fewer when they would
    coincide. `sliding`: one every `stride` frames.
    """
    last = count - frames
    if last < 0:
        return []
    if how == "head":
        return [0]
    if how == "middle":
        return [last // 2]
    if how == "sliding":
        return list(range(0, last + 1, stride))
    if samples == 1:
        return [last // 2]
    return sorted({round(i * last / (samples - 1)) for i in range(samples)})


def crop_and_resize(frames: np.ndarray, height: int, width: int) -> Tensor:  # (T, H, W, 3) uint8
    """Cut the central part of the wanted aspect ratio, then resize with an antialiasing filter: (3, T, height, width)."""
    rows, columns = frames.shape[1:3]
    scale = min(rows / height, columns / width)
    crop_rows, crop_columns = max(1, round(height * scale)), max(1, round(width * scale))
    top, left = (rows - crop_rows) // 2, (columns - crop_columns) // 2
    cropped = frames[:, top : top + crop_rows, left : left + crop_columns]
    resized = []
    for frame in cropped:  # one at a time: a long window of large frames would not fit as float32
        pixels = torch.from_numpy(np.ascontiguousarray(frame)).permute(2, 0, 1)[None].float() / 255.0
        if (crop_rows, crop_columns) != (height, width):
            pixels = F.interpolate(pixels, size=(height, width), mode="bilinear", antialias=True, align_corners=False)
        resized.append(pixels[0].clamp(0.0, 1.0))
    return torch.stack(resized, dim=1)


def reason_table(skipped: Iterable[Skipped]) -> str:
    """One line: `a.mp4: too short ...; b.mp4: unreadable ...`."""
    return "; ".join(f"{s.name}: {s.reason}" for s in skipped)
