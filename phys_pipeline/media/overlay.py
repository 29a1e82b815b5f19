"""Put a motion report beside a video: a score panel at the right, a timeline with a moving cursor below."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from phys_pipeline.errors import MediaError
from phys_pipeline.media.composed import Composed
from phys_pipeline.media.panel import PANEL_HEIGHT, PANEL_WIDTH, render_panel
from phys_pipeline.media.scaling import enlargement, resized
from phys_pipeline.media.text import BACKGROUND, TEXT
from phys_pipeline.media.timeline import STRIP_HEIGHT, cursor_column, cursor_rows, render_strip, window_edges
from phys_pipeline.media.video import Clip, Video

_SCHEMA = "phys-pipeline/motion-report"


def overlay(video: Video, report: dict[str, Any], *, title: str | None = None) -> Video:
    """Larger frames: the picture untouched at the left, the scores at the right, the loss over time below.

    The large number is the clip's composite loss; bars, numbers and the cursor follow the current window. Nothing covers
    the picture. Pictures of fewer than 360 rows are enlarged by a whole factor (Lanczos). Sizes are even, so that H.264
    needs no padding.

    Args:
        report: a motion report (schema ``phys-pipeline/motion-report``) of this video.
        title: the panel's first line; default the file name in the report or the video.

    Raises:
        MediaError: not such a report, or a result over the memory limit.
    """
    return Overlaid(video, report, title=title).whole("the overlay")


class Overlaid(Composed):
    """The clip that :func:`overlay` gives, with each picture made when it is asked for."""

    def __init__(self, clip: Clip, report: dict[str, Any], *, title: str | None = None, first: int = 0) -> None:
        """``first``: the picture of the clip at which the report starts."""
        check_report(report)
        self._clip, self._report, self._layout = clip, report, Layout(clip.height, clip.width)
        self.height, self.width = self._layout.height, self._layout.width
        self.timestamps, self.fps, self.source, self.duration = clip.timestamps, clip.fps, clip.source, clip.duration
        self._title = title if title is not None else Path(report.get("source") or clip.source).name or "Motion report"
        self._seconds, self._shown_seconds = clip.timestamps - first / clip.fps, report["duration_s"] if first else clip.duration
        self._windows = windows_shown(report, self._seconds, self._shown_seconds)
        layout = self._layout
        strip_height = layout.height - layout.content_height
        self._strip = render_strip(report["timeline"], self._shown_seconds, layout.width, strip_height, layout.scale)
        self._side = np.empty((layout.content_height, layout.width - layout.picture_width, 3), np.uint8)
        self._side[:] = BACKGROUND
        self._shown = -1

    def draw(self, number: int, frame: np.ndarray) -> None:
        layout, window = self._layout, self._windows[number]
        if window != self._shown:
            timeline = self._report["timeline"]
            panel = render_panel(self._report, timeline[window], self._title, layout.content_height, layout.scale)
            self._side[:, -panel.shape[1] :] = panel
            self._shown = window
        # Each byte of the frame is written once: memory traffic is what limits the speed.
        frame[: layout.picture_top, : layout.picture_width] = BACKGROUND
        bottom = layout.picture_top + layout.picture_height
        picture = resized(self._clip.frames[number], layout.picture_height, layout.picture_width)
        frame[layout.picture_top : bottom, : layout.picture_width] = picture
        frame[bottom : layout.content_height, : layout.picture_width] = BACKGROUND
        frame[: layout.content_height, layout.picture_width :] = self._side
        frame[layout.content_height :] = self._strip
        _draw_cursor(frame[layout.content_height :], self._seconds[number], self._shown_seconds, layout.scale)


def windows_shown(report: dict[str, Any], timestamps: np.ndarray, duration: float) -> np.ndarray:
    """For each moment (T,), in seconds, the number of the report's window that is the current one."""
    edges = window_edges(report["timeline"], duration)
    return np.clip(np.searchsorted(edges, timestamps + 1e-9, side="right") - 1, 0, len(report["timeline"]) - 1)


class Layout:
    """Where picture, panel and strip lie, in pixels, for a video of ``height`` x ``width``."""

    def __init__(self, height: int, width: int) -> None:
        factor = enlargement(height, width)
        self.picture_height, self.picture_width = height * factor, width * factor
        self.scale = max(1.0, min(self.picture_height / PANEL_HEIGHT, self.picture_width / (1.3 * PANEL_WIDTH)))
        self.content_height = max(self.picture_height, round(PANEL_HEIGHT * self.scale))
        self.height = self.content_height + round(STRIP_HEIGHT * self.scale)
        self.height += self.height % 2
        panel_width = round(PANEL_WIDTH * self.scale)
        self.width = self.picture_width + panel_width
        self.width += self.width % 2
        self.picture_top = (self.content_height - self.picture_height) // 2


def _draw_cursor(strip: np.ndarray, seconds: float, duration: float, scale: float) -> None:
    middle, (top, bottom) = cursor_column(seconds, duration, strip.shape[1], scale), cursor_rows(scale)
    half = max(1, round(scale))
    strip[top:bottom, middle - 2 * half : middle + 2 * half] = BACKGROUND
    strip[top:bottom, middle - half : middle + half] = TEXT


def check_report(report: Any) -> None:
    """Raise MediaError unless this is a motion report with a timeline."""
    if not isinstance(report, dict) or report.get("schema") != _SCHEMA:
        raise MediaError(f"the report isn't a {_SCHEMA}; make one with phys_pipeline.analyze(video, fps).to_dict()")
    if not report.get("timeline"):
        raise MediaError("the report has no timeline; make it again with phys_pipeline.analyze")
