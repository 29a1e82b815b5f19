"""The in-memory video that every part of the package passes around."""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from phys_pipeline.errors import MediaError

if TYPE_CHECKING:
    import torch


class Frames(Protocol):
    """Pictures by number, each ``uint8 (H, W, 3)``: an array, or something that makes each when it is asked for."""

    def __getitem__(self, number: int, /) -> np.ndarray: ...


class Clip(Protocol):
    """What scoring and composing need of a video: its pictures may be made one by one, so that they never lie in memory."""

    @property
    def frames(self) -> Frames: ...
    @property
    def timestamps(self) -> np.ndarray: ...  # (T,), as in Video
    @property
    def fps(self) -> float: ...
    @property
    def source(self) -> str: ...
    @property
    def height(self) -> int: ...
    @property
    def width(self) -> int: ...
    @property
    def duration(self) -> float: ...
    def __len__(self) -> int: ...


@dataclass(frozen=True, eq=False)
class Video:
    """Decoded pictures and the moments at which they are shown.

    Args:
        frames: ``uint8 (T, H, W, 3)``, RGB.
        timestamps: ``float64 (T,)``, seconds, first 0, strictly increasing.
        fps: average frames per second.
        source: where it came from (a path, a prompt), for people.

    Raises:
        MediaError: a shape, a dtype, the order of the timestamps or ``fps`` is wrong.
    """

    frames: np.ndarray  # (T, H, W, 3)
    timestamps: np.ndarray  # (T,)
    fps: float
    source: str = ""

    def __post_init__(self) -> None:
        frames, times = self.frames, self.timestamps
        if not isinstance(frames, np.ndarray) or frames.dtype != np.uint8 or frames.ndim != 4 or frames.shape[-1] != 3:
            described = f"{getattr(frames, 'dtype', type(frames).__name__)} {getattr(frames, 'shape', '')}".strip()
            raise MediaError(f"video frames must be a uint8 array of shape (T, H, W, 3), got {described}; use Video.from_frames")
        if 0 in frames.shape:
            raise MediaError(f"a video needs at least one frame and one pixel, got shape {frames.shape}")
        if not isinstance(times, np.ndarray) or times.shape != (len(frames),) or times.dtype != np.float64:
            raise MediaError(f"video timestamps must be a float64 array with one entry for each of the {len(frames)} frames")
        if times[0] != 0.0 or not np.isfinite(times).all() or (np.diff(times) <= 0).any():
            raise MediaError("video timestamps must start at 0 and increase strictly")
        check_fps(self.fps)

    def __len__(self) -> int:
        return len(self.frames)

    def __repr__(self) -> str:
        return f"Video({len(self)} frames, {self.width}x{self.height}, {self.fps:.4g} fps, source={self.source!r})"

    @property
    def height(self) -> int:
        return int(self.frames.shape[1])

    @property
    def width(self) -> int:
        return int(self.frames.shape[2])

    @property
    def duration(self) -> float:
        """Seconds from the first frame to the end of the last one, which is shown for one average frame."""
        return float(self.timestamps[-1]) + 1.0 / self.fps

    def to_tensor(self) -> torch.Tensor:
        """``float32 (1, 3, T, H, W)`` in [0, 1]."""
        import torch

        pixels = torch.from_numpy(np.ascontiguousarray(self.frames)).permute(3, 0, 1, 2)
        return pixels.to(torch.float32, memory_format=torch.contiguous_format).contiguous().div_(255.0)[None]

    @classmethod
    def from_tensor(cls, x: torch.Tensor, fps: float, source: str = "") -> Video:
        """A constant-rate video from ``(3, T, H, W)`` or ``(1, 3, T, H, W)`` in [0, 1]; values outside are clipped.

        Raises:
            MediaError: another shape, an integer dtype, NaN or infinite values.
        """
        import torch

        if x.ndim == 5 and x.shape[0] == 1:
            x = x[0]
        if x.ndim != 4 or x.shape[0] != 3 or not x.is_floating_point():
            raise MediaError(f"expected a float tensor (3, T, H, W) or (1, 3, T, H, W) in [0, 1], got {x.dtype} {tuple(x.shape)}")
        x = x.detach().to("cpu", torch.float32)
        if not torch.isfinite(x).all():
            raise MediaError("the video tensor holds NaN or infinite values; check the decoder that made it")
        pixels = (x.clamp(0.0, 1.0) * 255.0).round().to(torch.uint8).permute(1, 2, 3, 0).contiguous()
        return cls.from_frames(pixels.numpy(), fps, source)

    @classmethod
    def from_frames(cls, frames: Sequence[Any] | np.ndarray, fps: float, source: str = "") -> Video:
        """A constant-rate video from uint8 pictures: an array ``(T, H, W, 3)`` or a list of ``(H, W, 3)`` arrays or images."""
        if isinstance(frames, np.ndarray):
            array = frames
        else:
            if len(frames) == 0:
                raise MediaError("a video needs at least one frame, got an empty list")
            pictures = [np.asarray(frame) for frame in frames]
            shapes = {picture.shape for picture in pictures}
            if len(shapes) > 1:
                raise MediaError(f"all frames of a video must have one size, got {sorted(shapes)[:3]}; resize them first")
            array = np.stack(pictures)
        check_fps(fps)
        return cls(array, np.arange(len(array), dtype=np.float64) / fps, float(fps), source)


@dataclass(frozen=True)
class VideoInfo:
    """What a file says about itself. ``frames`` is an estimate from the duration where the file declares no count."""

    frames: int
    fps: float
    width: int
    height: int
    duration: float  # seconds
    codec: str


def check_fps(fps: float) -> None:
    """Raise :class:`MediaError` unless ``fps`` is a finite positive number."""
    if not isinstance(fps, numbers.Real) or not math.isfinite(fps) or fps <= 0:
        raise MediaError(f"fps must be a positive number, got {fps!r}")


def is_constant_rate(video: Video, fps: float) -> bool:
    """True if frame k lies within half a frame of ``k / fps``, so that writing at ``fps`` needs no change."""
    return _is_constant(video.timestamps, fps)


def _is_constant(timestamps: np.ndarray, fps: float) -> bool:
    return bool((np.abs(timestamps * fps - np.arange(len(timestamps))) < 0.5).all())


def frames_shown(timestamps: np.ndarray, fps: float, new_fps: float) -> np.ndarray:
    """Numbers of the frames shown at the moments ``k / new_fps``: the nearest in time, each once if the rate is constant already.

    ``timestamps`` (T,) in seconds, ``fps`` their average rate.
    """
    check_fps(new_fps)
    if _is_constant(timestamps, new_fps):
        return np.arange(len(timestamps))
    seconds = float(timestamps[-1]) + 1.0 / fps
    moments = np.arange(max(1, round(seconds * new_fps))) / new_fps
    return np.searchsorted((timestamps[1:] + timestamps[:-1]) / 2, moments, side="right")


def resample(video: Video, fps: float) -> Video:
    """The same seconds at a constant ``fps``: each output moment takes the nearest frame in time, so that motion keeps its speed.

    Frames are repeated or dropped, never blended; raising the rate therefore gives steps, not smoother motion.
    """
    shown = frames_shown(video.timestamps, video.fps, fps)
    same = len(shown) == len(video) and bool((shown == np.arange(len(shown))).all())
    return Video.from_frames(video.frames if same else video.frames[shown], fps, video.source)
