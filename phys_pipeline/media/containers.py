"""Decode video containers with PyAV: one explicit stream, true timestamps, rotation and pixel shape respected."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import av
import numpy as np
from av.video.reformatter import Colorspace, Interpolation, VideoReformatter

from phys_pipeline.errors import MediaError
from phys_pipeline.media.frames import TOLERANCE, Choice, Outline
from phys_pipeline.media.video import VideoInfo

_LOG = logging.getLogger(__name__)

# Demuxers that read text art, or open further files and addresses: never what a user means by "this video".
_REFUSED_FORMATS = {"tty", "bin", "xbin", "adf", "idf", "hls", "concat", "dash"}
_ATTACHED_PICTURE = 0x400  # stream disposition: the cover of an audio file
_UNTAGGED_COLOUR = 2
_MOST_REORDERED = 64  # frames; no codec stores a frame later than that after one that is shown after it


class ContainerFrames:
    """The chosen frames of a container's video stream, see :class:`phys_pipeline.media.frames.FrameSource`."""

    def __init__(self, path: Path, choice: Choice) -> None:
        self._path, self._choice = path, choice
        self._reformatter = VideoReformatter()
        self._container = _open(path)
        try:
            self._stream = _video_stream(self._container, choice.stream, path)
        except MediaError:
            self._container.close()
            raise
        self._stream.thread_type = "AUTO"
        self._declared = _declared_frames(self._container, self._stream)
        self.nominal_fps = _nominal_rate(self._stream)
        self.expected = _expected_frames(self._declared, self.nominal_fps, choice)
        self.stored_size = (self._stream.height, self._stream.width)
        self.last_shown, self.damage = 0.0, ""

    def __enter__(self) -> ContainerFrames:
        return self

    def __exit__(self, *_: object) -> None:
        self._container.close()

    def __iter__(self) -> Iterator[tuple[float, av.VideoFrame]]:
        choice, rate = self._choice, self.nominal_fps
        faults, given, cut_short, last_shown = _Faults(), 0, False, 0.0
        for seconds, frame in _frames_from(self._container, self._stream, choice.start, rate, faults):
            cut_short = choice.ends_by(seconds)
            if cut_short:
                break
            given += 1
            last_shown = _shown_seconds(frame)
            yield seconds, frame
            cut_short = given == choice.max_frames
            if cut_short:
                break
        if not given:
            raise MediaError(_nothing_decoded(self._path, choice.start, self._declared, rate))
        self.last_shown = last_shown if rate <= 0 or given == 1 else 0.0
        if faults.count or (not cut_short and _is_short(given, self._declared, choice.start, rate)):
            self.damage = f"kept the {given} frames that decode, of about {max(self._declared, given)}"

    def upright_size(self, frame: av.VideoFrame) -> tuple[int, int]:
        """Height and width after pixels are made square and the display rotation is applied."""
        return displayed_size(frame, _pixel_aspect(self._stream))

    def picture(self, frame: av.VideoFrame) -> np.ndarray:
        """One upright RGB picture ``uint8 (H, W, 3)`` of the chosen size.

        Untagged YUV is taken as BT.709 from 720 lines on and as BT.601 below, as players do. Scaling is done before the colour
        conversion, with the triangle filter of :func:`scaled_while_reading`; the two agree within rounding.
        """
        height, width = self._choice.size or self.upright_size(frame)
        turns = _quarter_turns(frame)
        if turns % 2:
            height, width = width, height
        options: dict[str, Any] = {"format": "rgb24"}
        if (height, width) != (frame.height, frame.width):  # to planes: packed RGB would be made from half of the chroma columns
            options = {"format": "gbrp", "height": height, "width": width, "interpolation": Interpolation.BILINEAR}
        if int(frame.colorspace) == _UNTAGGED_COLOUR and frame.format.name.startswith("yuv"):
            options["src_colorspace"] = Colorspace.ITU709 if frame.height >= 720 else Colorspace.ITU601
        picture = self._reformatter.reformat(frame, **options).to_ndarray()
        return np.rot90(picture, turns) if turns else picture


def outline_container(path: Path, choice: Choice) -> Outline | None:
    """Size and times of the chosen frames from one decoded frame and the times of the packets.

    None where packets do not tell: no times, no rate, damage. Then only decoding shows which frames there are.
    """
    with _open(path) as container:
        stream = _video_stream(container, choice.stream, path)
        rate, base = _nominal_rate(stream), stream.time_base
        if rate <= 0 or not base:
            return None
        origin = _seek(container, stream, choice.start)
        stamps: list[int] = []
        first: av.VideoFrame | None = None
        try:
            for packet in container.demux(stream):
                if packet.is_corrupt:
                    return None
                if packet.size and not packet.is_discard:
                    if packet.pts is None:
                        return None
                    stamps.append(packet.pts)
                if first is None:
                    first = next(iter(packet.decode()), None)
                elif packet.dts is not None and _is_past(choice, float((packet.dts - stamps[0]) * base), len(stamps), rate):
                    break
        except (av.error.FFmpegError, OSError):
            return None
        if first is None or not stamps:
            return None
        moments = [float(stamp * base) for stamp in sorted(stamps)]
        early = moments[0] if origin is None else origin
        if origin is not None and moments[0] - origin > choice.start + TOLERANCE:
            return None
        seconds = [moment - early for moment in moments]
        seconds = [moment for moment in seconds if choice.begins_by(moment) and not choice.ends_by(moment)][: choice.max_frames]
        if len(seconds) < 2:
            return None
        return Outline(*displayed_size(first, _pixel_aspect(stream)), np.array(seconds, np.float64), rate, 0.0)


def _is_past(choice: Choice, seconds: float, packets: int, rate: float) -> bool:
    """True if packets from here on, stored at ``seconds``, are surely shown after the chosen frames."""
    if choice.ends_by(seconds):
        return True
    return choice.max_frames is not None and packets > choice.max_frames + choice.start * rate * 2 + _MOST_REORDERED


def probe_container(path: Path) -> VideoInfo:
    """Metadata of the first video stream; one frame is decoded to learn the display rotation."""
    with _open(path) as container:
        chosen = _video_stream(container, 0, path)
        rate = _nominal_rate(chosen)
        frames = _declared_frames(container, chosen)
        first = next((frame for _, frame in _frames_from(container, chosen, 0.0, rate, _Faults())), None)
        if first is None:
            raise MediaError(_nothing_decoded(path, 0.0, frames, rate))
        height, width = displayed_size(first, _pixel_aspect(chosen))
        seconds = _declared_seconds(container, chosen)
        if frames == 0:
            frames = max(1, round(seconds * rate))
        if seconds <= 0:
            seconds = frames / rate if rate > 0 else 0.0
        return VideoInfo(frames, rate or 1.0, width, height, seconds, chosen.codec_context.name)


def displayed_size(frame: av.VideoFrame, pixel_aspect: float = 1.0) -> tuple[int, int]:
    """Height and width after pixels are made square (width x ``pixel_aspect``) and the display rotation is applied."""
    height, width = frame.height, max(1, round(frame.width * pixel_aspect))
    return (width, height) if _quarter_turns(frame) % 2 else (height, width)


class _Faults:
    """How many packets could not be decoded."""

    count = 0


def _open(path: Path) -> Any:
    try:
        container = av.open(os.path.abspath(path), options={"protocol_whitelist": "file"})
    except (av.error.FFmpegError, OSError, ValueError) as error:
        size = path.stat().st_size
        if size == 0:
            raise MediaError(f"{path} is empty (0 bytes); copy or download it again") from error
        reason = getattr(error, "strerror", None) or str(error)
        raise MediaError(
            f"{path} isn't a video or picture that can be read ({reason}); check that it is complete, or convert it to .mp4"
        ) from error
    if _REFUSED_FORMATS & set(container.format.name.split(",")):
        name = container.format.name
        container.close()
        raise MediaError(f"{path} is a {name} file, not a video; give the video file itself")
    return container


def _video_stream(container: Any, number: int, path: Path) -> Any:
    streams = [item for item in container.streams.video if not int(getattr(item, "disposition", 0)) & _ATTACHED_PICTURE]
    if not streams:
        kinds = sorted({item.type for item in container.streams}) or ["no"]
        raise MediaError(f"{path} has no video stream (it holds {', '.join(kinds)} only); give a file with pictures")
    if any(item.codec_context is None for item in streams):
        raise MediaError(f"{path} holds video in a format that can't be decoded here; convert it to H.264 in .mp4")
    if number >= len(streams):
        last = len(streams) - 1
        raise MediaError(f"{path} has {len(streams)} video stream(s), so stream={number} doesn't exist; use 0 to {last}")
    return streams[number]


def _nominal_rate(stream: Any) -> float:
    for rate in (stream.average_rate, stream.guessed_rate, stream.base_rate):
        if rate and 0 < float(rate) <= 1000:
            return float(rate)
    return 0.0


def _declared_seconds(container: Any, stream: Any) -> float:
    if stream.duration and stream.time_base:
        return float(stream.duration * stream.time_base)
    return float(container.duration) / 1e6 if container.duration else 0.0


def _declared_frames(container: Any, stream: Any) -> int:
    """The file's own count, or one from its duration where that is more, or 0 if it says nothing.

    A fragmented MP4 counts the frames of its first fragment alone.
    """
    return max(int(stream.frames), round(_declared_seconds(container, stream) * _nominal_rate(stream)))


def _expected_frames(declared: int, rate: float, choice: Choice) -> int:
    """Frames to reserve memory for; 0 if the file gives no hint."""
    expected = max(0, declared - math.floor(choice.start * rate)) if rate > 0 else declared
    if choice.duration is not None and rate > 0:
        expected = min(expected, math.ceil(choice.duration * rate) + 1)
    if choice.max_frames is not None:
        expected = min(expected, choice.max_frames) if expected else 0
    return expected


def _seek(container: Any, stream: Any, start: float) -> float | None:
    """Go to the key frame before ``start``; seconds of the stream's first frame, or None if it was not worth it or failed."""
    if start <= 2.0 or stream.start_time is None:
        return None
    try:
        container.seek(int(start / stream.time_base) + stream.start_time, stream=stream, backward=True)
    except (av.error.FFmpegError, OSError):
        _LOG.debug("can't seek; decoding from the beginning")
        return None
    return float(stream.start_time * stream.time_base)


def _frames_from(
    container: Any, stream: Any, start: float, rate: float, faults: _Faults
) -> Iterator[tuple[float, av.VideoFrame]]:
    """Frames shown from ``start`` on, with seconds since the stream's first frame. Seeks if that saves decoding."""
    origin = _seek(container, stream, start)
    first_after_seek = origin is not None
    for seconds, frame in _decoded(container, stream, rate, faults):
        if origin is None:
            origin = seconds
        if first_after_seek and seconds - origin > start + TOLERANCE:
            # A file without a usable index lands too late: decode from its beginning instead.
            container.seek(0, backward=True)
            restarted = _decoded(container, stream, rate, faults)
            yield from ((late - origin, kept) for late, kept in restarted if late - origin >= start - TOLERANCE)
            return
        first_after_seek = False
        if seconds - origin >= start - TOLERANCE:
            yield seconds - origin, frame


def _decoded(container: Any, stream: Any, rate: float, faults: _Faults) -> Iterator[tuple[float, av.VideoFrame]]:
    """All frames in display order with their time in seconds; undecodable packets are counted and passed over."""
    previous: float | None = None
    packets = container.demux(stream)
    while True:
        try:
            packet = next(packets)
        except StopIteration:
            return
        except (av.error.FFmpegError, OSError):
            faults.count += 1
            return
        try:
            frames = packet.decode()
        except av.error.EOFError:
            return
        except (av.error.FFmpegError, OSError):
            faults.count += 1
            continue
        for frame in frames:
            stamp = frame.pts if frame.pts is not None else frame.dts
            base = frame.time_base or stream.time_base
            if stamp is not None and base:
                seconds = float(stamp * base)
            else:
                seconds = 0.0 if previous is None else previous + 1.0 / (rate or 25.0)
            previous = seconds
            yield seconds, frame


def _shown_seconds(frame: av.VideoFrame) -> float:
    length = getattr(frame, "duration", 0) or 0
    return float(length * frame.time_base) if frame.time_base else 0.0


def _is_short(decoded: int, declared: int, start: float, rate: float) -> bool:
    remaining = declared - start * rate
    return decoded < remaining - max(2.0, 0.05 * remaining)


def _nothing_decoded(path: Path, start: float, declared: int, rate: float) -> str:
    if start > 0:
        length = f"the video is about {declared / rate:.2f} s long" if declared and rate > 0 else "the video is shorter"
        return f"{path} has no frame from start={start:g} s on; {length}"
    return f"{path} holds no frame that can be decoded; copy or download it again, or convert it to .mp4"


def _pixel_aspect(stream: Any) -> float:
    """Width of one pixel over its height; 1 where the file says nothing or nonsense."""
    aspect = float(stream.sample_aspect_ratio or 1)
    return aspect if 0.1 < aspect < 10 else 1.0


def _quarter_turns(frame: av.VideoFrame) -> int:
    """Anticlockwise quarter turns that bring the picture upright (the container's display matrix)."""
    return round((getattr(frame, "rotation", 0) or 0) / 90) % 4
