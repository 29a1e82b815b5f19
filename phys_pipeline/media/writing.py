"""Write H.264 that browsers play, GIF, animated WebP or PNG; whole files or none."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import av
import numpy as np
from av.video.reformatter import ColorRange, Colorspace
from PIL import Image

from phys_pipeline.atomic import atomic_file
from phys_pipeline.errors import MediaError
from phys_pipeline.media.video import Video, check_fps, is_constant_rate, resample

_NTSC_RATES = tuple(Fraction(base * 1000, 1001) for base in (24, 30, 48, 60, 120))
_X264 = "mbtree=0"  # with it the vectorised lookahead gives equal small pictures different files now and then
_BT709, _SMPTE170M, _LIMITED_RANGE = 1, 6, 1  # ISO/IEC 23091-2 code points; ffmpeg's AVCOL_RANGE_MPEG
_FASTEST_GIF = 50.0  # frames a second: browsers slow down anything faster


class _Quality(NamedTuple):
    """What every writer is given; each takes its own."""

    crf: int
    webp: int


def write_video(
    path: str | os.PathLike[str], video: Video | np.ndarray | Sequence[Any] | Any, fps: float | None = None, *, crf: int = 18,
    webp_quality: int = 90,
) -> Path:  # fmt: skip
    """Write ``video`` in the format that the suffix names, and return the path.

    ``.mp4``, ``.m4v``, ``.mov``: H.264, yuv420p, index at the front, colours tagged (BT.709 from 720 lines or 1280
    columns on, else BT.601); a constant rate, made from the true timestamps by repeating or dropping frames; an odd
    width or height gets one copied column or row at the right or bottom edge (nothing is cropped).
    ``.gif``, ``.webp``: animated, true durations, endless loop; encoders merge equal neighbours. ``.png``: one frame.
    No sound is written. A missing parent folder is made.

    Args:
        video: a :class:`Video`; or frames ``uint8 (T, H, W, 3)`` or a list of pictures; or a float tensor
            ``(3, T, H, W)`` or ``(1, 3, T, H, W)`` in [0, 1]. All but the first need ``fps``.
        fps: frames a second of the file; default the video's own. Another rate keeps the speed of motion.
        crf: quality of H.264, 0 (lossless) to 51.
        webp_quality: of WebP, 0 to 100 (best).

    Raises:
        MediaError: unknown suffix, frames or rate that can't be written, or a folder that can't be written to.
    """
    target = Path(path)
    writer = _WRITERS.get(target.suffix.lower())
    if writer is None:
        raise MediaError(f"{target} has no suffix that can be written; use one of {', '.join(_WRITERS)}")
    if not 0 <= crf <= 51:
        raise MediaError(f"crf={crf} must lie between 0 and 51")
    if not 0 <= webp_quality <= 100:
        raise MediaError(f"webp_quality={webp_quality} must lie between 0 and 100")
    clip = _as_video(video, fps)
    if target.suffix.lower() == ".png" and len(clip) > 1:
        raise MediaError(f"{target} can hold one frame but the video has {len(clip)}; use .mp4, .gif or .webp")
    if target.is_dir():
        raise MediaError(f"{target} is a folder; give a file name")
    try:
        with atomic_file(target) as temporary:
            writer(temporary, clip, fps, _Quality(crf, webp_quality))
    except (OSError, av.error.FFmpegError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise MediaError(f"{target} can't be written ({reason}); check the folder, its permissions and free space") from error
    return target


def exact_rate(fps: float) -> Fraction:
    """``fps`` as the fraction a container should hold: 29.97 -> 30000/1001, 8.0 -> 8."""
    for rate in _NTSC_RATES:
        if abs(fps / float(rate) - 1) < 2e-5:
            return rate
    return Fraction(float(fps)).limit_denominator(1001) or Fraction(1, 1001)


def _as_video(video: Any, fps: float | None) -> Video:
    if fps is not None:
        check_fps(fps)
    if isinstance(video, Video):
        return video
    if fps is None:
        raise MediaError("fps is needed to write frames that aren't a Video; pass fps=...")
    if hasattr(video, "is_floating_point"):
        return Video.from_tensor(video, fps)
    return Video.from_frames(video, fps)


def _write_h264(path: Path, video: Video, fps: float | None, quality: _Quality) -> None:
    rate = exact_rate(fps if fps is not None else video.fps)
    clip = video if is_constant_rate(video, float(rate)) else resample(video, float(rate))
    height, width = clip.height + clip.height % 2, clip.width + clip.width % 2
    high_definition = height >= 720 or width >= 1280
    container_format = "mov" if path.suffix.lower() == ".mov" else "mp4"
    with av.open(str(path), "w", format=container_format, options={"movflags": "+faststart"}) as container:
        options = {"crf": str(quality.crf), "preset": "veryfast", "x264-params": _X264}
        stream = container.add_stream("libx264", rate=rate, options=options)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        stream.time_base = 1 / rate
        context = stream.codec_context
        context.color_range = _LIMITED_RANGE
        context.colorspace = context.color_primaries = context.color_trc = _BT709 if high_definition else _SMPTE170M
        matrix = Colorspace.ITU709 if high_definition else Colorspace.ITU601
        for index, picture in enumerate(clip.frames):
            frame = av.VideoFrame.from_ndarray(_even(picture), format="rgb24").reformat(
                format="yuv420p", dst_colorspace=matrix, dst_color_range=ColorRange.MPEG
            )
            frame.pts, frame.time_base = index, 1 / rate
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))


def _even(picture: np.ndarray) -> np.ndarray:
    """Copy the last row or column once where the size is odd: H.264 in yuv420p needs even sizes."""
    height, width = picture.shape[:2]
    if height % 2 or width % 2:
        picture = np.pad(picture, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")
    return np.ascontiguousarray(picture)


def _write_gif(path: Path, video: Video, fps: float | None, quality: _Quality) -> None:
    rate = fps if fps is not None else video.fps
    clip = video if fps is None and rate <= _FASTEST_GIF else resample(video, min(rate, _FASTEST_GIF))
    pictures = [Image.fromarray(frame).quantize(256, dither=Image.Dither.FLOYDSTEINBERG) for frame in clip.frames]
    _save_animation(path, pictures, _durations(clip, 10), format="GIF", disposal=1, optimize=False)


def _write_webp(path: Path, video: Video, fps: float | None, quality: _Quality) -> None:
    clip = video if fps is None else resample(video, fps)
    pictures = [Image.fromarray(frame) for frame in clip.frames]
    _save_animation(path, pictures, _durations(clip, 1), format="WEBP", quality=quality.webp, method=4)


def _write_png(path: Path, video: Video, fps: float | None, quality: _Quality) -> None:
    Image.fromarray(video.frames[0]).save(path, format="PNG")


def _save_animation(path: Path, pictures: list[Image.Image], durations: list[int], **options: Any) -> None:
    pictures[0].save(path, save_all=True, append_images=pictures[1:], duration=durations, loop=0, **options)


def _durations(video: Video, unit: int) -> list[int]:
    """Milliseconds for which each frame is shown, in multiples of ``unit``; rounding errors don't add up."""
    edges = np.append(video.timestamps, video.duration) * (1000.0 / unit)
    ticks = np.diff(np.round(edges)).astype(int)
    return [unit * max(1, int(tick)) for tick in ticks]


_WRITERS: dict[str, Callable[[Path, Video, float | None, _Quality], None]] = {
    ".mp4": _write_h264,
    ".m4v": _write_h264,
    ".mov": _write_h264,
    ".gif": _write_gif,
    ".webp": _write_webp,
    ".png": _write_png,
}
