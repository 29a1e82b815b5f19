"""Pictures that explain a score: energy planes with the fitted line, and the radial centroid over time."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

_SIZE, _DPI = (5.2, 3.9), 110  # inches
_RANGE = 1e-4  # of the largest energy: what is below is black
_LINE = "#d55e00"


@dataclass(frozen=True, eq=False)
class PlanePicture:
    """What is drawn of one plane: ``energy`` (T, K) at ``omega_t`` (T,), radians per frame, and ``columns`` (K,); the line is
    ``omega_t = slope * column`` modulo 2 pi. ``measured`` is the slope of the motion that was measured by other means, if any."""

    energy: np.ndarray
    omega_t: np.ndarray
    columns: np.ndarray
    slope: float
    title: str
    column_label: str
    line_label: str
    measured: float | None = None
    measured_label: str = ""


def draw_plane(plane: PlanePicture, fps: float) -> np.ndarray:
    """``uint8 (H, W, 3)``; the vertical axis is in hertz at ``fps`` frames per second."""
    figure, axes = _axes(plane.title)
    hertz = plane.omega_t * fps / (2 * np.pi)
    top = max(float(plane.energy.max()), np.finfo(np.float32).tiny)
    shades = np.log10(np.maximum(plane.energy / top, _RANGE))
    axes.imshow(
        shades, origin="lower", aspect="auto", cmap="viridis", extent=(*_ends(plane.columns), *_ends(hertz)),
        interpolation="nearest", vmin=np.log10(_RANGE), vmax=0,
    )  # fmt: skip
    columns = np.linspace(*_ends(plane.columns), 400)
    line = _wrapped(plane.slope * columns) * fps / (2 * np.pi)
    axes.plot(columns, line, color="white", linewidth=3.4)
    axes.plot(columns, line, color=_LINE, linewidth=1.8, linestyle="--", label=plane.line_label)
    if plane.measured is not None:
        found = _wrapped(plane.measured * columns) * fps / (2 * np.pi)
        axes.plot(columns, found, color="white", linewidth=1.6, linestyle=":", label=plane.measured_label)
    axes.set(xlabel=plane.column_label, ylabel="temporal frequency, Hz", xlim=_ends(plane.columns), ylim=_ends(hertz))
    axes.legend(loc="upper right", fontsize=8, framealpha=0.9, facecolor="#9aa3b0")
    return _pixels(figure)


def draw_centroid(centroid: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    """``uint8 (H, W, 3)`` of ``centroid`` (T,) over ``seconds`` (T,)."""
    figure, axes = _axes("Radial centroid: falls while things grow, rises while they shrink")
    axes.plot(seconds, centroid, color="#0072b2", linewidth=1.8, marker="o", markersize=3)
    axes.set(xlabel="time, s", ylabel="share of the largest kept frequency")
    axes.grid(alpha=0.3)
    axes.set_ylim(0, max(0.8, 1.1 * float(centroid.max(initial=0))))
    return _pixels(figure)


def _wrapped(line: np.ndarray) -> np.ndarray:
    """Modulo 2 pi, with a gap where it wraps."""
    line = (line + np.pi) % (2 * np.pi) - np.pi
    line[1:][np.abs(np.diff(line)) > np.pi] = np.nan
    return line


def _axes(title: str) -> tuple[Any, Any]:
    from matplotlib.figure import Figure  # without pyplot: any thread may draw

    figure = Figure(figsize=_SIZE, dpi=_DPI, layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(title, fontsize=10)
    axes.tick_params(labelsize=8)
    return figure, axes


def _ends(values: np.ndarray) -> tuple[float, float]:
    """Outer edges of the cells whose middles are ``values``."""
    step = float(values[1] - values[0]) if len(values) > 1 else 1.0
    return float(values[0]) - step / 2, float(values[-1]) + step / 2


def _pixels(figure: Any) -> np.ndarray:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    buffer.seek(0)
    return np.asarray(Image.open(buffer).convert("RGB"))
