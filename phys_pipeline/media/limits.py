"""A ceiling on decoded or composed video, checked before memory is asked for."""

from __future__ import annotations

import os

from phys_pipeline.errors import ConfigError, MediaError

DEFAULT_MAX_BYTES = 4 * 1024**3
ENVIRONMENT_NAME = "PHYS_PIPELINE_MAX_BYTES"


def max_bytes() -> int:
    """The largest uint8 video in bytes: ``PHYS_PIPELINE_MAX_BYTES``, or 4 GiB.

    Raises:
        ConfigError: the variable isn't a positive integer.
    """
    text = os.environ.get(ENVIRONMENT_NAME, "").strip()
    if not text:
        return DEFAULT_MAX_BYTES
    if not text.isdecimal() or int(text) < 1:
        raise ConfigError(f"{ENVIRONMENT_NAME}={text!r} isn't a positive number of bytes; set it to e.g. {DEFAULT_MAX_BYTES}")
    return int(text)


def check_video_bytes(frames: int, height: int, width: int, what: str) -> None:
    """Raise :class:`MediaError` if ``frames`` RGB pictures of ``height`` x ``width`` exceed :func:`max_bytes`."""
    needed, limit = frames * height * width * 3, max_bytes()
    if needed > limit:
        raise MediaError(
            f"{what} needs {_readable(needed)} for about {frames} frames of {width}x{height}, "
            f"over the limit of {_readable(limit)}; "
            f"use fewer frames (max_frames or duration), a smaller size, or raise {ENVIRONMENT_NAME}"
        )


def _readable(count: int) -> str:
    for unit, factor in (("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024)):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count} bytes"
