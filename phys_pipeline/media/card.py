"""Scores drawn into the picture itself, as a card in a corner or along an edge, and a still picture of one or more reports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from phys_pipeline.errors import ConfigError
from phys_pipeline.media.overlay import check_report, windows_shown
from phys_pipeline.media.panel import PANEL_HEIGHT, PANEL_WIDTH, render_panel
from phys_pipeline.media.text import MUTED, SURFACE, TEXT, TRACK, Surface, loss_colour
from phys_pipeline.media.timeline import STRIP_HEIGHT, render_strip

if TYPE_CHECKING:
    from torch import Tensor

STYLES = ("panel", "bar", "minimal")
POSITIONS = ("top left", "top", "top right", "bottom left", "bottom", "bottom right")
_UNITS = {"panel": (206.0, 112.0), "bar": (206.0, 40.0), "minimal": (122.0, 30.0)}  # width, height
_GRAPH = 34.0  # units more height for the curve
_PLOT_SCALE = 2.0


def draw_scores(
    images: Tensor,  # (B, H, W, C)
    report: dict[str, Any],
    *,
    style: str = "panel",
    position: str = "top right",
    graph: bool = True,
    label: str = "",
    size: float = 18.0,
    opacity: float = 0.8,
    first: int = 0,
    each: Callable[[], None] | None = None,
) -> Tensor:
    """A copy of the pictures with a card that shows the loss of the clip and of the moment; nothing else is touched.

    Args:
        report: the motion report of these pictures; it tells their rate.
        graph: add the loss over time, with a cursor at the current frame.
        size: of the card without its graph, in percent of the picture's height; a card never covers more than the picture.
        first: the picture at which the report starts.
        each: called before every picture.

    Raises:
        ConfigError: an unknown style or position. MediaError: not a motion report.
    """
    import torch

    check_report(report)
    if style not in STYLES:
        raise ConfigError(f"unknown style {style!r}; use one of {', '.join(STYLES)}")
    if position not in POSITIONS:
        raise ConfigError(f"unknown position {position!r}; use one of {', '.join(POSITIONS)}")
    times = (np.arange(len(images)) - first) / report["fps"]
    windows = windows_shown(report, times, report["duration_s"])
    drawn = images.clone()
    cards: dict[int, np.ndarray] = {}
    height, width = images.shape[1:3]
    for picture, window, seconds in zip(drawn, windows, times, strict=True):
        if each is not None:
            each()
        if int(window) not in cards:
            cards = {int(window): _card(report, int(window), style, graph, label, size, height, width)}
        card = _with_cursor(cards[int(window)], report, float(seconds), style, graph)
        rows, columns = card.shape[:2]
        top, left = _corner(position, height - rows, width - columns)
        region = picture[top : top + rows, left : left + columns, :3]
        ground = torch.from_numpy(card).to(images.device, images.dtype) / 255.0
        region.mul_(1.0 - opacity).add_(ground[..., : region.shape[-1]], alpha=opacity)
    return drawn


def score_plot(reports: Sequence[dict[str, Any]], titles: Sequence[str]) -> np.ndarray:
    """One picture, ``uint8 (H, W, 3)``: for each report a column with its panel and its loss over time."""
    columns = []
    for report, title in zip(reports, titles, strict=True):
        check_report(report)
        height, width = round(PANEL_HEIGHT * _PLOT_SCALE), round(PANEL_WIDTH * _PLOT_SCALE)
        whole = {**report["timeline"][0], **_of_clip(report)}
        panel = render_panel(report, whole, title, height, _PLOT_SCALE)
        strip = render_strip(report["timeline"], report["duration_s"], width, round(STRIP_HEIGHT * _PLOT_SCALE), _PLOT_SCALE)
        columns.append(np.concatenate([panel, strip]))
    return np.concatenate(columns, axis=1)


def _of_clip(report: dict[str, Any]) -> dict[str, Any]:
    """What a panel shows of a window, of the whole clip instead."""
    velocity = {key: report["velocity"][key] for key in ("x_percent_per_s", "y_percent_per_s")}
    names = ("rotation_deg_per_s", "zoom_percent_per_s", "dynamic_degree")
    return {**report["loss"], "velocity": velocity, **{name: report[name] for name in names}}


def _card(
    report: dict[str, Any], window: int, style: str, graph: bool, label: str, size: float, height: int, width: int
) -> np.ndarray:
    wide, tall = _UNITS[style]
    scale = size / 100 * height / tall
    tall += _GRAPH if graph else 0.0
    scale = min(scale, height / tall, width / wide)
    surface = Surface(max(1, int(wide * scale)), max(1, int(tall * scale)), scale, SURFACE)
    now, overall = report["timeline"][window], report["loss"]["composite"]
    title = label or "motion loss"
    if style == "minimal":
        surface.text(8, 20, surface.fit(title, 72, 11, bold=True), 11, MUTED, bold=True)
        surface.text(wide - 8, 21, f"{overall:.2f}", 15, loss_colour(overall), bold=True, anchor="rs")
    else:
        surface.text(10, 20, surface.fit(title, 104, 12, bold=True), 12, TEXT, bold=True)
        surface.text(wide - 10, 21, f"{overall:.2f}", 18, loss_colour(overall), bold=True, anchor="rs")
        surface.text(wide - 52, 20, f"now {now['composite']:.2f}", 10, MUTED, anchor="rs")
        rows = ("translation", "rotation", "scaling") if style == "panel" else ("composite",)
        for place, name in enumerate(rows):
            y = 40 + 24 * place if style == "panel" else 29
            left = 10.0
            if style == "panel":
                surface.text(10, y + 4, name, 10, MUTED)
                left = 76.0
            length, share = wide - 10 - left, min(1.0, max(0.0, now[name]))
            surface.box(left, y - 3, length, 6, TRACK, 3)
            surface.box(left, y - 3, max(6.0, length * share), 6, loss_colour(share), 3)
    if graph:
        _curve(surface, report, wide, tall)
    return np.asarray(surface.image()).copy()


def _curve(surface: Surface, report: dict[str, Any], wide: float, tall: float) -> None:
    """The loss of each window over time, along the lower edge."""
    left, length, top, bottom = 10.0, wide - 20.0, tall - _GRAPH + 4, tall - 8
    timeline = report["timeline"]
    surface.box(left, bottom, length, 1, TRACK)
    points = [
        (
            left + length * (entry["start_s"] + entry["end_s"]) / 2 / report["duration_s"],
            bottom - (bottom - top) * min(1.0, max(0.0, entry["composite"])),
        )
        for entry in timeline
    ]
    if len(points) == 1:
        points = [(left, points[0][1]), (left + length, points[0][1])]
    surface.line(points, 1.6, loss_colour(report["loss"]["composite"]))


def _with_cursor(card: np.ndarray, report: dict[str, Any], seconds: float, style: str, graph: bool) -> np.ndarray:
    """The card with the line that marks the moment in its curve."""
    if not graph:
        return card
    wide, tall = _UNITS[style]
    scale = card.shape[1] / wide
    share = min(1.0, max(0.0, seconds / report["duration_s"]))
    middle = round((10 + (wide - 20) * share) * scale)
    top, half = round((tall + 2) * scale), max(1, round(0.6 * scale))
    marked = card.copy()
    marked[top : round((tall + _GRAPH - 6) * scale), max(0, middle - half) : middle + half] = TEXT
    return marked


def _corner(position: str, free_rows: int, free_columns: int) -> tuple[int, int]:
    """Top and left of the card, a small margin from the edges where there is room."""
    margin = 12
    edge_rows, edge_columns = min(margin, free_rows // 2), min(margin, free_columns // 2)
    top = edge_rows if position.startswith("top") else free_rows - edge_rows
    left = free_columns // 2
    if position.endswith("left"):
        left = edge_columns
    elif position.endswith("right"):
        left = free_columns - edge_columns
    return top, left
