"""What the player is given: two videos on one clock, their scores over time, and the same in words."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from phys_pipeline.errors import MediaError
from phys_pipeline.media import Video, read_video, resample
from phys_pipeline.media.reading import probe
from phys_pipeline.web.engine.settings import AppSettings

_SERIES = ("composite", "translation", "rotation", "scaling", "dynamic_degree")


def player_value(
    files: Mapping[str, Path | None],
    reports: Mapping[str, Mapping[str, Any] | None],
    *,
    labels: tuple[str, str],
    about: str = "",
    video: Video | None = None,
) -> dict[str, Any]:
    """The value of the player as JSON; ``files`` and ``reports`` have "left" and "right", each may be None.

    Args:
        labels: shown below the videos.
        about: what the videos show, for people who can't see them.
        video: gives the clock; default: the files' own.
    """
    sides = ("left", "right")
    file = next((files[side] for side in sides if files[side] is not None), None)
    if video is None and file is not None:
        info = probe(file)
        fps, frames, size = info.fps, info.frames, (info.width, info.height)
    else:
        fps, frames, size = (video.fps, len(video), (video.width, video.height)) if video else (1.0, 1, (3, 2))
    return {
        **{side: _file_data(files[side]) for side in sides},
        "labels": list(labels),
        "about": about,
        "fps": fps,
        "frames": frames,
        "aspect": size[0] / size[1],
        "series": [_series(reports[side]) for side in sides],
    }


def blind_value(files: Mapping[str, Path], text: str, token: str) -> dict[str, Any]:
    """The value for a trial of a blind study: no scores, labels that say the side alone, and sides that stay.

    The player says ``token`` with all it tells about this trial.
    """
    value = player_value(files, {"left": None, "right": None}, labels=("Left", "Right"), about=text)
    return {**value, "blind": True, "token": token}


def _file_data(path: Path | None) -> dict[str, Any] | None:
    """What Gradio takes for a file: it copies it to its cache and gives the page an address."""
    return None if path is None else {"path": str(path), "meta": {"_type": "gradio.FileData"}}


def _series(report: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if report is None:
        return None
    windows = [
        {"start": window["start_s"], "end": window["end_s"], **{name: window[name] for name in _SERIES}}
        for window in report["timeline"]
    ]
    return {
        "windows": windows,
        "overall": {name: report["loss"][name] for name in _SERIES[:4]} | {"dynamic_degree": report["dynamic_degree"]},
        "motion": {
            "x": report["velocity"]["x_percent_per_s"], "y": report["velocity"]["y_percent_per_s"],
            "rotation": report["rotation_deg_per_s"], "zoom": report["zoom_percent_per_s"],
        },
        "dominant": report["dominant"],
    }  # fmt: skip


def read_upload(path: Path, name: str, settings: AppSettings) -> tuple[Video, tuple[int, int], list[str]]:
    """A visitor's video within the limits, its own (height, width), and what was changed, in sentences.

    Raises MediaError, which names the file as the visitor called it, for what is no video.
    """
    notes = []
    try:
        info = probe(path)
        longer = max(info.height, info.width)
        if longer > 8192 or min(info.height, info.width) < 8:
            raise MediaError(f"{name} has {info.width}x{info.height} pixels: use a video from 8x8 to 8192x8192")
        size = None
        if longer > settings.largest_side:
            factor = settings.largest_side / longer
            size = max(8, round(info.height * factor)), max(8, round(info.width * factor))
        duration = None
        if info.duration > settings.max_seconds:
            duration = settings.max_seconds
            notes.append(f"Only the first {duration:g} of {info.duration:.0f} seconds were read.")
        video = read_video(path, duration=duration, max_frames=settings.max_frames, size=size)
    except MediaError as error:
        raise MediaError(str(error).replace(str(path), name)) from None
    if duration is None and len(video) == settings.max_frames < info.frames:
        notes.append(f"Only the first {settings.max_frames} frames were read.")
    upright = (info.height, info.width)
    if size is not None:
        notes.append(f"The video has {info.width}x{info.height} pixels and was reduced to {video.width}x{video.height}.")
    elif (video.height, video.width) != upright:  # turned by a note in the file, or pixels that are not square
        upright = (video.height, video.width)
    steps = video.timestamps[1:] - video.timestamps[:-1]
    if len(steps) > 1 and steps.max() > 1.5 * steps.min():
        notes.append("The frame rate varies; scores are those at the average rate.")
    return Video(video.frames, video.timestamps, video.fps, name), upright, notes


def on_one_clock(videos: tuple[Video, Video]) -> tuple[tuple[Video, Video], list[str]]:
    """Both at the higher of their rates and as long as the shorter one: frame k of one belongs to frame k of the other."""
    notes = []
    fps = max(video.fps for video in videos)
    if abs(videos[0].fps - videos[1].fps) > 0.01:
        notes.append(f"The frame rates differ ({videos[0].fps:.4g} and {videos[1].fps:.4g}); both are shown at {fps:.4g}.")
    first, second = (resample(video, fps) for video in videos)
    frames = min(len(first), len(second))
    if len(first) != len(second):
        notes.append(f"The lengths differ; the first {frames / fps:.1f} seconds of both are compared.")
    alike = tuple(Video.from_frames(video.frames[:frames], fps, video.source) for video in (first, second))
    return (alike[0], alike[1]), notes
