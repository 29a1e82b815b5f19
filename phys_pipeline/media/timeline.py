"""The strip below the picture: each window's composite loss as coloured steps over time."""

from __future__ import annotations

from typing import Any

import numpy as np

from phys_pipeline.media.text import MUTED, SURFACE, TRACK, Surface, loss_colour

STRIP_HEIGHT = 74.0  # units
_MARGIN = 18.0
_TOP, _BOTTOM = 13.0, 51.0
_STEPS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600)


def window_edges(timeline: list[dict[str, Any]], duration: float) -> np.ndarray:
    """Moments ``(len + 1,)`` at which the next entry becomes the current one: middles between neighbouring windows' centres."""
    centres = np.array([(entry["start_s"] + entry["end_s"]) / 2 for entry in timeline], np.float64)
    inner = (centres[1:] + centres[:-1]) / 2
    return np.concatenate([[0.0], np.clip(inner, 0.0, duration), [duration]])


def render_strip(timeline: list[dict[str, Any]], duration: float, width: int, height: int, scale: float) -> np.ndarray:
    """``uint8 (height, width, 3)`` without the cursor."""
    surface = Surface(width, height, scale)
    units, edges = width / scale, window_edges(timeline, duration)
    length = units - 2 * _MARGIN
    surface.box(_MARGIN - 8, _TOP - 7, length + 16, _BOTTOM - _TOP + 14, SURFACE, 8)
    surface.box(_MARGIN, (_TOP + _BOTTOM) / 2 - 0.4, length, 0.8, TRACK)
    for entry, left, right in zip(timeline, edges[:-1], edges[1:], strict=True):
        loss = min(1.0, max(0.0, entry["composite"]))
        tall = max(2.5, (_BOTTOM - _TOP) * loss)
        x, end = _MARGIN + length * left / duration, _MARGIN + length * right / duration
        gap = 1.0 if (end - x) > 4 and len(timeline) > 1 else 0.0
        surface.box(x, _BOTTOM - tall, end - x - gap, tall, loss_colour(loss), 2.0 if end - x > 6 else 0.0)
    step = next((step for step in _STEPS if duration / step * 42 <= length), _STEPS[-1])
    for tick in range(int(duration / step + 1e-6) + 1):
        seconds = tick * step
        x = _MARGIN + length * seconds / duration
        anchor = "ls" if tick == 0 else "ms"
        if x + 122 <= units:  # leave room for the legend
            surface.text(x, STRIP_HEIGHT - 4.5, f"{seconds:g} s", 9.5, MUTED, anchor=anchor)
    surface.text(units - _MARGIN, STRIP_HEIGHT - 4.5, "loss over time", 9.5, MUTED, anchor="rs")
    return np.asarray(surface.image())


def cursor_column(seconds: float, duration: float, width: int, scale: float) -> int:
    """The pixel column of the cursor's middle."""
    left, right = _MARGIN * scale, width - _MARGIN * scale
    return round(left + (right - left) * min(1.0, max(0.0, seconds / duration)))


def cursor_rows(scale: float) -> tuple[int, int]:
    """First and last pixel row, counted from the strip's top, between which the cursor is drawn."""
    return round((_TOP - 7) * scale), round((_BOTTOM + 7) * scale)
