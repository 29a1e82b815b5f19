"""Scores of files and videos in memory: the motion report and the pictures that show it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from phys_pipeline.errors import ConfigError, MediaError
from phys_pipeline.media import Video, overlay, side_by_side
from phys_pipeline.media.ahead import made_ahead
from phys_pipeline.media.limits import check_video_bytes
from phys_pipeline.media.reading import UnexpectedTimes, VideoStream
from phys_pipeline.media.video import Clip, frames_shown

if TYPE_CHECKING:
    from torch import Tensor

    from phys_pipeline.spectral import MotionReport

Pictures = Callable[[np.ndarray, tuple[int, int]], Iterator[np.ndarray]]

LEAST_FRAMES = 3  # with two frames every motion is coherent
LEAST_SIDE = 8  # pixels
_AHEAD = 64  # pictures decoded beforehand, while windows are scored; small ones, so that this costs a few megabytes

Preset = Literal["calibrated", "paper"]


def check_measurable(name: str, frames: int, height: int, width: int) -> None:
    """MediaError for a clip that can't show whether its motion is coherent."""
    if frames < LEAST_FRAMES:
        count = f"{frames} frame{'s' if frames > 1 else ''}"
        raise MediaError(f"{name} has {count}: motion needs at least {LEAST_FRAMES}; use a longer clip")
    if min(height, width) < LEAST_SIDE:
        raise MediaError(
            f"{name} has {width}x{height} pixels: motion needs at least {LEAST_SIDE}x{LEAST_SIDE}; use a larger clip"
        )


def score_video(video: Clip, *, preset: Preset = "calibrated", original_size: tuple[int, int] | None = None) -> MotionReport:
    """Motion report of a clip, one picture at a time; a variable frame rate is first resampled to its average.

    Args:
        original_size: (height, width) of the clip if ``video`` was reduced while reading.

    Raises:
        MediaError: fewer than 3 frames or a side under 8 pixels, which can't show whether motion is coherent.
        ConfigError: an unknown preset.
    """
    from phys_pipeline.media.scaling import scaled_while_reading

    def pictures(numbers: np.ndarray, size: tuple[int, int]) -> Iterator[np.ndarray]:
        return (scaled_while_reading(video.frames[number], *size) for number in numbers)

    height, width = original_size if original_size is not None else (video.height, video.width)
    check_measurable(video.source or "the video", len(video), height, width)
    return _report(pictures, video, (height, width), preset)


def score_file(
    path: str | os.PathLike[str],
    *,
    preset: Preset = "calibrated",
    start: float = 0.0,
    duration: float | None = None,
    max_frames: int | None = None,
) -> MotionReport:
    """Motion report of a file, scored while it is decoded: memory does not grow with its length.

    Pictures are decoded at the small size at which they are scored. The report is that of the same frames in memory, but for the
    rounding of their reduction. ``start`` and ``duration`` in seconds. Raises MediaError as ``read_video`` and
    :func:`score_video`.
    """
    stream = VideoStream(path, start=start, duration=duration, max_frames=max_frames)
    size = stream.height, stream.width
    try:
        check_measurable(stream.source, len(stream), *size)
        return _report(stream.pictures, stream, size, preset)
    except UnexpectedTimes:
        stream.read_exact_times()
    check_measurable(stream.source, len(stream), *size)
    return _report(stream.pictures, stream, size, preset)


def _report(pictures: Pictures, clip: Clip | VideoStream, size: tuple[int, int], preset: str) -> MotionReport:
    """Report of the frames of ``clip`` at its average rate.

    Args:
        pictures: gives the frames of the asked numbers one by one, reduced to the asked (height, width).
        size: (height, width) to which pixel velocities refer.
    """
    from phys_pipeline.spectral import SpectralConfig
    from phys_pipeline.spectral.report import MotionAnalyser, analysis_size
    from phys_pipeline.spectral.threads import one_torch_thread

    presets = {"calibrated": SpectralConfig.calibrated, "paper": SpectralConfig.paper}
    if preset not in presets:
        raise ConfigError(f"unknown preset {preset!r}: use one of {', '.join(presets)}")
    config = presets[preset]()
    shown = frames_shown(clip.timestamps, clip.fps, clip.fps)
    analyser = MotionAnalyser(len(shown), clip.fps, size, config=config, source=clip.source)
    reduced = analysis_size(clip.height, clip.width)
    check_video_bytes(min(len(shown), config.window + config.stride), *reduced, clip.source or "the video")
    some: list[np.ndarray] = []
    with one_torch_thread():  # the decoder has the other cores
        for picture in made_ahead(pictures(shown[:: analyser.step], reduced), _AHEAD):
            some.append(picture)
            if len(some) == config.stride:
                analyser.push(_planes(some))
                some = []
        if some:
            analyser.push(_planes(some))
        return analyser.finish()


def _planes(pictures: list[np.ndarray]) -> Tensor:
    """Float (3, n, H, W) in [0, 1] of ``uint8 (H, W, 3)`` pictures."""
    import torch

    stacked = torch.from_numpy(np.stack(pictures)).permute(3, 0, 1, 2)
    return stacked.to(torch.float32, memory_format=torch.contiguous_format).div_(255.0)


def scored_comparison(
    videos: Sequence[Video],
    reports: Sequence[Mapping[str, Any]],
    labels: Sequence[str],
    *,
    mode: str = "horizontal",
    show_scores: bool = True,
) -> Video:
    """Two videos in one picture with their scores beside them; one video alone is overlaid only.

    ``wipe`` and ``difference`` compare pixels and therefore carry no score panels. Raises ConfigError for an unknown mode.
    """
    if len(videos) == 1:
        return overlay(videos[0], dict(reports[0]), title=labels[0]) if show_scores else videos[0]
    first, second = videos
    if show_scores and mode in ("horizontal", "vertical"):
        first, second = (overlay(v, dict(r), title=label) for v, r, label in zip(videos, reports, labels, strict=True))
        return side_by_side(first, second, mode=mode, labels=("", ""))
    return side_by_side(first, second, mode=mode, labels=(labels[0], labels[1]))


def score_table(reports: Mapping[str, Mapping[str, Any]]) -> str:
    """Plain text: one row per video; composite and slice losses (0 is coherent motion) and the dynamic degree."""
    columns = ("translation", "rotation", "scaling", "composite")
    heads = ("video", *columns, "dynamic degree", "dominant")
    rows = [
        (name, *(f"{report['loss'][column]:.3f}" for column in columns), f"{report['dynamic_degree']:.3f}", report["dominant"])
        for name, report in reports.items()
    ]
    widths = [max(len(row[column]) for row in (heads, *rows)) for column in range(len(heads))]
    left = {0, len(heads) - 1}  # texts; numbers stand at the right
    lines = []
    for row in (heads, *rows):
        cells = [
            cell.ljust(width) if i in left else cell.rjust(width) for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join([lines[0], "-" * (sum(widths) + 2 * (len(widths) - 1)), *lines[1:]])


def describe(report: Mapping[str, Any]) -> str:
    """A report as a few lines for a terminal."""
    loss, weights, velocity = report["loss"], report["weights"], report["velocity"]
    turning = report["rotation_deg_per_s"]
    size = f"{report['width']}x{report['height']}, {report['frames']} frames, {report['fps']:.4g} fps"
    slices = ", ".join(f"{name} {loss[name]:.3f} (weight {weights[name]:.2f})" for name in ("translation", "rotation", "scaling"))
    still = "  nothing moves\n" if report["is_static"] else ""
    return (
        f"{report['source']}  ({size})\n"
        f"  composite loss {loss['composite']:.3f}  (lower is more coherent; {report['preset']} preset)\n"
        f"  {slices}\n{still}"
        f"  dominant motion: {report['dominant']} (confidence {report['confidence']:.2f}), "
        f"dynamic degree {report['dynamic_degree']:.3f}\n"
        f"  velocity x {velocity['x_px_per_s']:+.1f} y {velocity['y_px_per_s']:+.1f} px/s "
        f"({velocity['x_percent_per_s']:+.1f} {velocity['y_percent_per_s']:+.1f} % of the width/s), "
        f"rotation {turning:+.1f} deg/s, zoom {report['zoom_percent_per_s']:+.1f} %/s"
    )
