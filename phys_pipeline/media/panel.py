"""The score panel beside the picture: overall loss, three bars, motion in numbers. Units: 250 wide, 360 high or more."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from phys_pipeline.media.text import MUTED, SURFACE, TEXT, TRACK, Colour, Surface, loss_colour

PANEL_WIDTH = 250.0
PANEL_HEIGHT = 360.0
_MARGIN = 18.0
_SLICES = ("translation", "rotation", "scaling")
_NAMES = {"translation": "Translation", "rotation": "Rotation", "scaling": "Scaling"}


def render_panel(report: dict[str, Any], window: dict[str, Any], title: str, height: int, scale: float) -> np.ndarray:
    """The panel for one timeline entry, ``uint8 (height, round(PANEL_WIDTH * scale), 3)``; ``scale`` pixels a unit."""
    surface = Surface(round(PANEL_WIDTH * scale), height, scale)
    spare = max(0.0, height / scale - PANEL_HEIGHT)
    top, gap = min(spare / 4, 24.0), min(spare / 4, 36.0)
    _headline(surface, top + 13, report, window, title)
    _bars(surface, top + gap + 114, report, window)
    _motion(surface, top + 2 * gap + 221, report, window)
    return np.asarray(surface.image())


def _headline(surface: Surface, y: float, report: dict[str, Any], window: dict[str, Any], title: str) -> None:
    """Title, the clip's composite as a large number, the current window's beside it."""
    right = PANEL_WIDTH - _MARGIN
    surface.text(_MARGIN, y + 11, surface.fit(title, right - _MARGIN, 12.5, bold=True), 12.5, TEXT, bold=True)
    overall, now = report["loss"]["composite"], window["composite"]
    width = surface.text(_MARGIN - 2, y + 66, f"{overall:.2f}", 46, loss_colour(overall), bold=True)
    surface.text(_MARGIN + width + 9, y + 44, "motion loss", 11, TEXT)
    surface.text(_MARGIN + width + 9, y + 62, "now", 11, MUTED)
    surface.text(right, y + 62, f"{now:.2f}", 12.5, loss_colour(now), bold=True, anchor="rs")
    surface.text(_MARGIN, y + 86, "0 coherent", 10, MUTED)
    surface.text(right, y + 86, "1 broken", 10, MUTED, anchor="rs")
    left, length = _MARGIN + 68, right - _MARGIN - 126
    for step in range(24):  # the colour scale, with the clip's place on it
        surface.box(left + step * length / 24, y + 80, length / 24 + 0.4, 4, loss_colour(step / 23))
    x = left + length * min(1.0, max(0.0, overall))
    surface.polygon([(x - 4, y + 73), (x + 4, y + 73), (x, y + 79)], TEXT)


def _bars(surface: Surface, y: float, report: dict[str, Any], window: dict[str, Any]) -> None:
    """One bar for each kind of motion: the current window's loss, a tick at the clip's, its weight in the composite."""
    right = PANEL_WIDTH - _MARGIN
    for index, name in enumerate(_SLICES):
        row = y + index * 34
        leads = report["dominant"] == name
        loss, weight = window[name], report["weights"][name]
        width = surface.text(_MARGIN, row + 10, _NAMES[name], 11.5, TEXT if leads else MUTED, bold=leads)
        surface.text(_MARGIN + width + 7, row + 10, f"weight {weight:.0%}", 9.5, MUTED)
        surface.text(right, row + 10, f"{loss:.2f}", 11.5, TEXT, bold=leads, anchor="rs")
        length = right - _MARGIN
        surface.box(_MARGIN, row + 16, length, 8, TRACK, 4)
        surface.box(_MARGIN, row + 16, max(8.0, length * min(1.0, max(0.0, loss))), 8, loss_colour(loss), 4)
        x = _MARGIN + length * min(1.0, max(0.0, report["loss"][name]))
        surface.box(x - 1, row + 13.5, 2, 13, TEXT, 1)


def _motion(surface: Surface, y: float, report: dict[str, Any], window: dict[str, Any]) -> None:
    """What moves, how fast, and how much of the picture takes part."""
    right = PANEL_WIDTH - _MARGIN
    velocity = window["velocity"]
    vx, vy = velocity["x_percent_per_s"], velocity["y_percent_per_s"]
    turn, zoom = window["rotation_deg_per_s"], window["zoom_percent_per_s"]
    surface.box(_MARGIN - 8, y, right - _MARGIN + 16, 128, SURFACE, 8)
    kind = "static" if report["is_static"] else report["dominant"]
    speed = math.hypot(vx, vy)
    heading = "Hardly any motion to judge" if report["is_static"] else "Dominant motion"
    width = surface.text(_MARGIN, y + 20, heading, 10.5, MUTED)
    if not report["is_static"]:
        surface.text(_MARGIN + width + 5, y + 20, kind, 10.5, TEXT, bold=True)
    rows: list[tuple[str, str, str, Callable[[Surface, float, float, Colour], None]]] = [
        ("translation", "Velocity", f"{speed:.1f} %/s", partial(_arrow, vx=vx, vy=vy)),
        ("rotation", "Rotation", _signed(turn, "°/s"), partial(_curl, rate=turn)),
        ("scaling", "Zoom", _signed(zoom, "%/s"), partial(_spread, rate=zoom)),
    ]
    sizes = (speed, abs(turn), abs(zoom))
    for index, ((row_kind, name, value, icon), size) in enumerate(zip(rows, sizes, strict=True)):
        row, lit = y + 29 + index * 24, row_kind == kind
        if size >= 0.05:
            icon(surface, _MARGIN + 9, row + 8, TEXT if lit else MUTED)
        else:
            surface.dot(_MARGIN + 9, row + 8, 2.2, MUTED)
        surface.text(_MARGIN + 28, row + 12, name, 11.5, TEXT if lit else MUTED, bold=lit)
        surface.text(right, row + 12, value, 11.5, TEXT, bold=lit, anchor="rs")
    row = y + 102
    share = min(1.0, max(0.0, window["dynamic_degree"]))
    surface.text(_MARGIN, row + 12, "Dynamic degree", 10.5, MUTED)
    left = _MARGIN + 96
    surface.box(left, row + 5.5, right - 38 - left, 5, TRACK, 2.5)
    surface.box(left, row + 5.5, max(5.0, (right - 38 - left) * share), 5, MUTED, 2.5)
    surface.text(right, row + 12, f"{share:.2f}", 10.5, MUTED, anchor="rs")


def _signed(value: float, unit: str) -> str:
    """One decimal, a true minus sign, and no sign on zero."""
    text = f"{abs(value):.1f}"
    sign = "" if float(text) == 0 else ("+" if value > 0 else "\N{MINUS SIGN}")
    return f"{sign}{text} {unit}"


def _arrow(surface: Surface, x: float, y: float, colour: Colour, *, vx: float, vy: float) -> None:
    """An arrow on the screen's axes (y down)."""
    length = math.hypot(vx, vy)
    ux, uy = vx / length, vy / length
    surface.line([(x - 8 * ux, y - 8 * uy), (x + 4 * ux, y + 4 * uy)], 2, colour)
    _head(surface, x + 9 * ux, y + 9 * uy, ux, uy, colour)


def _curl(surface: Surface, x: float, y: float, colour: Colour, *, rate: float) -> None:
    """Three quarters of a circle with a head; clockwise if ``rate`` is positive."""
    sign = 1 if rate > 0 else -1
    surface.arc(x, y, 7.5, 150, 390, 2, colour)
    end = math.radians(390 if sign > 0 else 150)
    ex, ey = x + 6.5 * math.cos(end), y + 6.5 * math.sin(end)
    ux, uy = -sign * math.sin(end), sign * math.cos(end)
    _head(surface, ex + 4 * ux, ey + 4 * uy, ux, uy, colour)


def _spread(surface: Surface, x: float, y: float, colour: Colour, *, rate: float) -> None:
    """Two arrows along the diagonal, apart when content grows, together when it shrinks."""
    half = math.sqrt(0.5)
    for side in (1, -1):
        ux, uy = side * half, -side * half
        if rate > 0:
            surface.line([(x + 2 * ux, y + 2 * uy), (x + 6 * ux, y + 6 * uy)], 2, colour)
            _head(surface, x + 11 * ux, y + 11 * uy, ux, uy, colour)
        else:
            surface.line([(x + 7 * ux, y + 7 * uy), (x + 11 * ux, y + 11 * uy)], 2, colour)
            _head(surface, x + 2 * ux, y + 2 * uy, -ux, -uy, colour)


def _head(surface: Surface, x: float, y: float, ux: float, uy: float, colour: Colour) -> None:
    """A triangular arrow head whose point lies at ``(x, y)``, looking along the unit vector."""
    base_x, base_y = x - 6 * ux, y - 6 * uy
    surface.polygon([(x, y), (base_x - 3.6 * uy, base_y + 3.6 * ux), (base_x + 3.6 * uy, base_y - 3.6 * ux)], colour)
