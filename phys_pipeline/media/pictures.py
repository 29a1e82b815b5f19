"""Read GIF, animated WebP and PNG, AVIF and still pictures with Pillow: whole composited frames, true durations."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

from phys_pipeline.errors import MediaError
from phys_pipeline.media.frames import Choice
from phys_pipeline.media.scaling import scaled_while_reading
from phys_pipeline.media.video import VideoInfo

_LOG = logging.getLogger(__name__)

_SIGNATURES = (b"GIF8", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"BM", b"II*\x00", b"MM\x00*")
_SHORTEST_DELAY = 0.02  # seconds; browsers and ffmpeg show anything shorter for a tenth of a second
_DEFAULT_DELAY = 0.1
_ORIENTATION = 0x0112  # EXIF tag


def is_picture(head: bytes) -> bool:
    """True if a file that begins with ``head`` (32 bytes) is one that Pillow reads, whatever its name says."""
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return True
    if head[4:12] in (b"ftypavif", b"ftypavis"):
        return True
    return head.startswith(_SIGNATURES)


class PictureFrames:
    """The chosen frames of a picture file, see :class:`phys_pipeline.media.frames.FrameSource`."""

    def __init__(self, path: Path, choice: Choice) -> None:
        if choice.stream:
            raise MediaError(f"{path} is a picture file with one stream, so stream={choice.stream} doesn't exist; use 0")
        self._path, self._choice = path, choice
        self._image = _open(path)
        self._count = _frame_count(self._image, path)
        self.expected = min(self._count, choice.max_frames or self._count)
        self.stored_size = (self._image.height, self._image.width)
        self.nominal_fps = 1.0 if self._count == 1 else 0.0
        self.last_shown, self.damage = _DEFAULT_DELAY, ""

    def __enter__(self) -> PictureFrames:
        return self

    def __exit__(self, *_: object) -> None:
        self._image.close()

    def __iter__(self) -> Iterator[tuple[float, Image.Image]]:
        image, choice = self._image, self._choice
        clock, given = 0.0, 0
        for index in range(self._count):
            try:
                image.seek(index)
                image.load()
            except Exception as error:  # Pillow's decoders raise whatever a damaged byte leads them to
                if not given:
                    raise _damaged(self._path, error) from error
                self.damage = f"kept the {given} frames that decode, of {self._count}"
                break
            delay = _delay(image)
            if choice.ends_by(clock):
                break
            if choice.begins_by(clock):
                given += 1
                self.last_shown = delay
                yield clock, image
                if given == choice.max_frames:
                    break
            clock += delay
        if not given:
            raise MediaError(f"{self._path} has no frame from start={choice.start:g} s on; it is {clock:.2f} s long")

    def upright_size(self, image: Image.Image) -> tuple[int, int]:
        """Height and width after the turn that a camera noted in the file."""
        return _upright_size(image, self._path)

    def picture(self, image: Image.Image) -> np.ndarray:
        """The current frame upright, on white where it is transparent, as ``uint8 (H, W, 3)`` of the chosen size."""
        upright = ImageOps.exif_transpose(image)
        if upright.mode in ("I", "F") or upright.mode.startswith("I;16"):
            upright = _eight_bits(upright)
        if "A" in upright.mode or "transparency" in upright.info:
            layered = upright.convert("RGBA")
            ground = Image.new("RGBA", layered.size, (255, 255, 255, 255))
            upright = Image.alpha_composite(ground, layered)
        picture = np.asarray(upright.convert("RGB"))
        return picture if self._choice.size is None else scaled_while_reading(picture, *self._choice.size)


def probe_pictures(path: Path) -> VideoInfo:
    """Frame count, size and length of a picture file; frames of an animation are visited for their durations."""
    with _open(path) as image:
        count = _frame_count(image, path)
        height, width = _upright_size(image, path)
        codec = (image.format or "picture").lower()
        if count == 1:
            return VideoInfo(1, 1.0, width, height, 1.0, codec)
        seconds = 0.0
        for index in range(count):
            try:
                image.seek(index)
                image.load()  # WebP tells a frame's duration only then
            except Exception as error:  # as in PictureFrames
                if index == 0:
                    raise _damaged(path, error) from error
                count = index
                break
            seconds += _delay(image)
        return VideoInfo(count, count / max(seconds, _SHORTEST_DELAY), width, height, seconds, codec)


def _open(path: Path) -> Image.Image:
    try:
        return Image.open(path)
    except Image.DecompressionBombError as error:
        raise MediaError(f"{path} is too large a picture to open safely; make it smaller first") from error
    except Exception as error:  # as in PictureFrames
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> MediaError:
    return MediaError(f"{path} is a damaged picture ({type(error).__name__}); copy or download it again")


def _frame_count(image: Image.Image, path: Path) -> int:
    try:
        return int(getattr(image, "n_frames", 1))
    except Exception as error:  # as in PictureFrames
        _LOG.debug("%s: frames can't be counted (%s); reading the first", path, error)
        return 1


def _upright_size(image: Image.Image, path: Path) -> tuple[int, int]:
    """Height and width after the turn that a camera noted in the file."""
    try:
        quarter_turned = image.getexif().get(_ORIENTATION) in (5, 6, 7, 8)
    except Exception as error:  # as in PictureFrames
        raise _damaged(path, error) from error
    return (image.width, image.height) if quarter_turned else (image.height, image.width)


def _delay(image: Image.Image) -> float:
    """Seconds for which the current frame is shown."""
    seconds = float(image.info.get("duration") or 0.0) / 1000.0
    return seconds if seconds >= _SHORTEST_DELAY else _DEFAULT_DELAY


def _eight_bits(image: Image.Image) -> Image.Image:
    """Sixteen bits to eight by the full scale; Pillow's own conversion clips."""
    values = np.asarray(image, np.float64)
    top = 65535.0 if values.max(initial=0) > 255 else 255.0
    return Image.fromarray((values.clip(0, top) * (255.0 / top)).round().astype(np.uint8))
