"""Read any video, GIF, animated WebP or still picture into a :class:`Video`."""

from __future__ import annotations

import math
import os
from pathlib import Path

from phys_pipeline.errors import MediaError
from phys_pipeline.media.containers import probe_container, read_container
from phys_pipeline.media.pictures import is_picture, probe_pictures, read_pictures
from phys_pipeline.media.video import Video, VideoInfo


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
    if max_frames is not None and max_frames < 1:
        raise MediaError(f"max_frames={max_frames} must be 1 or more")
    if not math.isfinite(start) or start < 0:
        raise MediaError(f"start={start} must be 0 or more seconds")
    if duration is not None and (not math.isfinite(duration) or duration <= 0):
        raise MediaError(f"duration={duration} must be more than 0 seconds")
    if size is not None and (len(size) != 2 or min(size) < 1):
        raise MediaError(f"size={size} must be (height, width), both 1 or more")
    if stream < 0:
        raise MediaError(f"stream={stream} must be 0 or more")
    file = _existing_file(path)
    if _holds_pictures(file):
        if stream:
            raise MediaError(f"{file} is a picture file with one stream, so stream={stream} doesn't exist; use 0")
        return read_pictures(file, max_frames=max_frames, start=start, duration=duration, size=size)
    return read_container(file, max_frames=max_frames, start=start, duration=duration, size=size, stream=stream)


def probe(path: str | os.PathLike[str]) -> VideoInfo:
    """Size, rate, length and codec of a file's first video stream; decodes at most one frame of a container.

    Raises:
        MediaError: as :func:`read_video`.
    """
    file = _existing_file(path)
    return probe_pictures(file) if _holds_pictures(file) else probe_container(file)


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
