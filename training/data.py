"""From a clip on disk to windows of pixels at one size and one frame rate."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from phys_pipeline.errors import MediaError
from phys_pipeline.media import Video, VideoInfo, probe, read_video
from phys_pipeline.media.reading import VideoStream
from training.buckets import Bucket, config_buckets, nearest_bucket
from training.config import TrainConfig
from training.sources import STILL, Clip

log = logging.getLogger(__name__)

_SAME_RATE = 0.05
_REPEAT_ADVICE = "lower fps or set repeated_frames=allow"


class SkipClip(Exception):
    """Raised by `read_windows`: this clip can't be used; the message is the reason."""


class Clock(Protocol):
    """When the frames of a clip are shown: a Video, or a VideoStream, which knows it without decoding."""

    @property
    def timestamps(self) -> np.ndarray: ...  # (T,) seconds

    @property
    def fps(self) -> float: ...


@dataclass(frozen=True)
class Plan:
    """What is cut from a clip: the bucket, and of every window the indices (frames,) of its source frames."""

    bucket: Bucket
    windows: list[np.ndarray]


def read_windows(clip: Clip, config: TrainConfig) -> list[Tensor]:
    """Decode a clip into windows of pixels of its bucket's shape, (3, frames, height, width) float32 in [0, 1].

    Raises SkipClip.
    """
    buckets = config_buckets(config)
    try:
        info = probe(clip.path)
        single = _is_single(info, buckets)
        video = read_video(clip.path, max_frames=1 if single else None, duration=None if single else _seconds(config, buckets),
                           size=_decoding_size(info, buckets))  # fmt: skip
    except MediaError as error:
        raise SkipClip(f"unreadable: {error}") from None
    plan = _plan(None if single else video, info, config, buckets)
    taken = np.arange(len(video)) if single else resample_indices(video, config.fps)
    if len(taken) != len(video) and unevenness(video, taken, config.fps) > 0.25:
        log.warning(
            "%s: %.3g fps resampled to %g takes uneven steps, which looks like jerky motion; an fps that divides it is better",
            clip.name, video.fps, config.fps,
        )  # fmt: skip
    return [crop_and_resize(video.frames[window], plan.bucket.height, plan.bucket.width) for window in plan.windows]


def plan_windows(clip: Clip, config: TrainConfig) -> Plan:
    """The windows that `read_windows` would cut, from the times that the file's packets tell; frames that don't decode count.

    Decodes only where a container tells no times. Raises SkipClip.
    """
    buckets = config_buckets(config)
    try:
        info = probe(clip.path)
        single = _is_single(info, buckets)
        clock = None if single else VideoStream(clip.path, duration=_seconds(config, buckets))
    except MediaError as error:
        raise SkipClip(f"unreadable: {error}") from None
    return _plan(clock, info, config, buckets)


def _is_single(info: VideoInfo, buckets: list[Bucket]) -> bool:
    """True if one frame is all that is used of a clip. Raises SkipClip for a still picture where no bucket takes one."""
    shortest = min(bucket.frames for bucket in buckets)
    if info.frames == 1 and shortest > 1:
        raise SkipClip(STILL)
    return info.frames == 1 or all(bucket.frames == 1 for bucket in buckets)


def _seconds(config: TrainConfig, buckets: list[Bucket]) -> float | None:
    """How much of a clip is read; None for all of it."""
    needed = (max(bucket.frames for bucket in buckets) + 2) / config.fps
    if config.frame_extraction == "head":
        return needed  # nothing after the first window is used
    return None if config.max_clip_seconds is None else max(config.max_clip_seconds, needed)


def _plan(clock: Clock | None, info: VideoInfo, config: TrainConfig, buckets: list[Bucket]) -> Plan:
    """The windows of a clip with these times; without a clock, its first frame."""
    indices = np.zeros(1, np.intp) if clock is None else resample_indices(clock, config.fps)
    bucket = nearest_bucket(buckets, len(indices), info.height, info.width)
    if bucket is None:
        shortest = min(bucket.frames for bucket in buckets)
        raise SkipClip(f"too short: {len(indices)} frames at {config.fps:g} fps, needs {shortest}")
    stride = config.window_stride or max(1, bucket.frames // 2)
    starts = window_starts(len(indices), bucket.frames, config.frame_extraction, config.samples_per_clip, stride)
    windows = [indices[s : s + bucket.frames] for s in starts]
    if config.repeated_frames == "skip":
        windows = [w for w in windows if np.all(np.diff(w) > 0)]
        if not windows:
            rate = info.fps if clock is None else clock.fps
            raise SkipClip(f"frames would repeat: {rate:.3g} fps, resampled to {config.fps:g}; {_REPEAT_ADVICE}")
    return Plan(bucket, windows)


def resample_indices(clock: Clock, fps: float) -> np.ndarray:
    """Indices of the source frames nearest to the times 0, 1/fps, 2/fps ... until the clip's end, so that motion keeps its speed.

    The clip ends one average frame after its last frame: 101 frames at 24 fps give floor(101 / 24 * 8) = 33 at 8 fps. A steady
    source within 5 % of `fps` is taken frame by frame: a little speed matters less than a missing or doubled frame.
    """
    times = clock.timestamps
    steps = np.diff(times)
    steady = len(steps) > 0 and bool(np.all(np.abs(steps - steps.mean()) < 0.25 * steps.mean()))
    if steady and abs(clock.fps / fps - 1.0) <= _SAME_RATE:
        return np.arange(len(times))
    count = int(np.floor((times[-1] + 1.0 / clock.fps) * fps + 1e-3))  # containers round time stamps
    middles = (times[1:] + times[:-1]) / 2
    return np.searchsorted(middles, np.arange(count) / fps)


def unevenness(video: Video, indices: np.ndarray, fps: float) -> float:
    """Largest distance of a chosen frame from its ideal time, in frames at `fps`: above about 0.25, smooth motion turns jerky."""
    return float(np.abs(video.timestamps[indices] - np.arange(len(indices)) / fps).max() * fps)


def _decoding_size(info: VideoInfo, buckets: list[Bucket]) -> tuple[int, int] | None:
    """Frames much larger than needed are halved (or more) while decoding, to twice the size needed: memory, not quality."""
    scale = 2.0 * max(max(bucket.height / info.height, bucket.width / info.width) for bucket in buckets)
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
