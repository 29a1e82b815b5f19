"""Read any video, GIF, animated WebP or still picture into a :class:`Video`."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from phys_pipeline.errors import MediaError
from phys_pipeline.media.buffer import FrameBuffer, clean_clock
from phys_pipeline.media.containers import ContainerFrames, outline_container, probe_container
from phys_pipeline.media.frames import TOLERANCE, Choice, FrameSource, Outline, outline_of
from phys_pipeline.media.limits import check_video_bytes
from phys_pipeline.media.pictures import PictureFrames, is_picture, probe_pictures
from phys_pipeline.media.video import Video, VideoInfo

_LOG = logging.getLogger(__name__)


def read_video(
    path: str | os.PathLike[str],
    *,
    max_frames: int | None = None,
    start: float = 0.0,
    duration: float | None = None,
    size: tuple[int, int] | None = None,
    stream: int = 0,
) -> Video:
    """Decode a file. What it is, is told by its content, not by its name.

    The display rotation is applied and pixels are made square (the width is stretched by the sample aspect ratio).
    Variable frame rates are kept in ``timestamps``. A damaged file gives the frames that decode and a logged warning.
    A still picture is a video of one frame at 1 fps. Transparent pixels are shown on white. Sound is ignored.

    Args:
        max_frames: stop after so many frames.
        start: seconds from the first frame; earlier frames are left out, and the result's clock starts at 0 again.
        duration: seconds to read from ``start``.
        size: ``(height, width)`` to which each frame is scaled while decoding.
        stream: which of the file's video streams, 0 for the first.

    Raises:
        MediaError: no such file, not a video, nothing to decode, an argument out of range, or more decoded bytes
            than the limit (``PHYS_PIPELINE_MAX_BYTES``, 4 GiB by default).
    """
    file = _existing_file(path)
    with _frames(file, Choice(start, duration, max_frames, size, stream)) as frames:
        check_video_bytes(frames.expected, *(size or frames.stored_size), str(file))
        buffer = FrameBuffer(frames.expected, str(file))
        for seconds, item in frames:
            buffer.append(frames.picture(item), seconds)
        _warn(file, frames)
        return buffer.video(frames.nominal_fps, str(file), frames.last_shown)


class UnexpectedTimes(Exception):
    """The frames that decode are not those that the packets promised."""


class VideoStream:
    """A file whose pictures are read one by one, so that memory doesn't grow with its length, and whose times are known before.

    The same frames and times as :func:`read_video` gives with the same arguments; it raises the same errors. Times come from the
    container's packets without decoding where those tell them.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, start: float = 0.0, duration: float | None = None, max_frames: int | None = None
    ) -> None:
        self._file = _existing_file(path)
        self._choice = Choice(start, duration, max_frames)
        outline = None if _holds_pictures(self._file) else outline_container(self._file, self._choice)
        self._exact = outline is None
        self._use(outline or self._decoded_outline())

    def __len__(self) -> int:
        return len(self.timestamps)

    def read_exact_times(self) -> None:
        """Decode the file for its times, after :class:`UnexpectedTimes`."""
        self._exact = True
        self._use(self._decoded_outline())

    def _decoded_outline(self) -> Outline:
        with _frames(self._file, self._choice) as frames:
            return outline_of(frames)

    def _use(self, outline: Outline) -> None:
        self.source, self.height, self.width = str(self._file), outline.height, outline.width
        self._seconds = outline.seconds
        self.timestamps, self.fps = clean_clock(outline.seconds, outline.nominal_fps, outline.last_shown)

    def pictures(self, numbers: np.ndarray, size: tuple[int, int]) -> Iterator[np.ndarray]:
        """Pictures ``uint8 (H, W, 3)`` of ``size`` (height, width) of the frames ``numbers``, ascending; some may repeat.

        Every frame is decoded, whether it is wanted or not, and only those of ``numbers`` are scaled and converted. Where damage
        makes fewer frames decode than when the times were read, the last picture stands in for those that are missing.

        Raises:
            MediaError: as :func:`read_video`.
            UnexpectedTimes: the frames are not those of ``timestamps``; call :meth:`read_exact_times` and begin again.
        """
        wanted, position, count = numbers.tolist(), 0, 0
        with _frames(self._file, replace(self._choice, size=size)) as frames:
            for seconds, item in frames:
                if not self._exact and (count == len(self) or abs(seconds - self._seconds[count]) > TOLERANCE):
                    raise UnexpectedTimes(self._file)
                if position < len(wanted) and wanted[position] == count:
                    picture = frames.picture(item)
                    while position < len(wanted) and wanted[position] == count:
                        yield picture
                        position += 1
                count += 1
            if not self._exact and count < len(self):
                raise UnexpectedTimes(self._file)
            _warn(self._file, frames)
            if position:
                yield from [picture] * (len(wanted) - position)


def probe(path: str | os.PathLike[str]) -> VideoInfo:
    """Size, rate, length and codec of a file's first video stream; decodes at most one frame of a container.

    Raises:
        MediaError: as :func:`read_video`.
    """
    file = _existing_file(path)
    return probe_pictures(file) if _holds_pictures(file) else probe_container(file)


def _frames(file: Path, choice: Choice) -> FrameSource:
    return PictureFrames(file, choice) if _holds_pictures(file) else ContainerFrames(file, choice)


def _warn(file: Path, frames: FrameSource) -> None:
    if frames.damage:
        _LOG.warning("%s is damaged or truncated: %s", file, frames.damage)


def _existing_file(path: str | os.PathLike[str]) -> Path:
    file = Path(path)
    if not str(path):
        raise MediaError("the file name is empty; give a video file")
    if "://" in str(path):
        raise MediaError(f"{path} is an address, not a file; download it first")
    try:
        if file.is_dir():
            raise MediaError(f"{file} is a folder; give a video file inside it")
        if file.exists() and not file.is_file():
            raise MediaError(f"{file} is not a regular file; give a video file")
        if not file.is_file():
            raise MediaError(f"{file} doesn't exist; check the path")
    except (OSError, ValueError) as error:
        raise MediaError(f"{str(file)[:80]!r} can't be opened ({error}); check the path") from error
    return file


def _holds_pictures(file: Path) -> bool:
    try:
        with file.open("rb") as handle:
            return is_picture(handle.read(32))
    except OSError as error:
        raise MediaError(f"{file} can't be read ({error.strerror}); check its permissions") from error
