"""Two videos in one picture, on one clock."""

from __future__ import annotations

import math

import numpy as np

from phys_pipeline.errors import ConfigError
from phys_pipeline.media.composed import Composed
from phys_pipeline.media.scaling import enlargement, resized
from phys_pipeline.media.text import BACKGROUND, MUTED, SURFACE, TEXT, Surface
from phys_pipeline.media.video import Clip, Video

MODES = ("horizontal", "vertical", "wipe", "difference")
_SWEEP_SECONDS = 6.0  # the wipe's divider goes right, left and back to the middle
_SWEEP_REACH = 0.42  # of the width, to either side of the middle
_DIFFERENCE_GAIN = 2
_ENDED_BRIGHTNESS = 0.55


def side_by_side(
    a: Video, b: Video, *, mode: str = "horizontal", labels: tuple[str, str] = ("A", "B"), height: int | None = None
) -> Video:
    """Both videos in one, labelled in the corners; an empty label is left out (overlays carry their own titles).

    * ``horizontal``: beside each other at one height; ``vertical``: below each other at one width.
    * ``wipe``: one picture, ``a`` left and ``b`` right of a divider that sweeps slowly from side to side.
    * ``difference``: ``2 |a - b|`` for each colour, on black: black where they agree.

    Shapes are kept: for ``wipe`` and ``difference`` a ``b`` of another shape is fitted into the frame of ``a`` with bars.
    The clock runs at the higher of the two rates; each video shows its latest frame, so neither changes speed. The one
    that ends first holds its last frame, darkened and marked "ended" (in ``wipe`` and ``difference``: held only).

    Args:
        height: rows of each picture (of the wider one for ``vertical``); default the larger of the two, enlarged by a whole
            factor if that is under 360 rows. The result's sides are rounded up to even numbers.

    Raises:
        ConfigError: an unknown mode, a wrong number of labels, a height below 16.
        MediaError: the result is over the memory limit.
    """
    return Compared(a, b, mode=mode, labels=labels, height=height).whole("the comparison")


class Compared(Composed):
    """The clip that :func:`side_by_side` gives, with each picture made when it is asked for; ``gap``: pixels between the two
    instead of a 90th of the height."""

    def __init__(
        self,
        a: Clip,
        b: Clip,
        *,
        mode: str = "horizontal",
        labels: tuple[str, str] = ("A", "B"),
        height: int | None = None,
        gap: int | None = None,
    ) -> None:
        if mode not in MODES:
            raise ConfigError(f"unknown comparison mode {mode!r}; use one of {', '.join(MODES)}")
        if len(labels) != 2 or isinstance(labels, str):
            raise ConfigError(f"labels={labels!r} must be two texts, one for each video")
        if height is not None and height < 16:
            raise ConfigError(f"height={height} must be at least 16 pixels")
        if gap is not None and gap < 0:
            raise ConfigError(f"gap={gap} must be at least 0 pixels")
        clock, sizes = _Clock(a, b), _sizes(a, b, mode, height)
        self._compose = {"horizontal": _beside, "vertical": _below, "wipe": _wipe, "difference": _difference}[mode]
        (rows, columns), (other_rows, other_columns) = sizes
        if gap is None:
            gap = max(2, round(max(rows, other_rows) / 90))
        self._pair = _Pair(a, b, clock, sizes, _chips(labels, sizes, mode), gap)
        if mode == "horizontal":
            columns += gap + other_columns
        elif mode == "vertical":
            rows += gap + other_rows
        self.height, self.width = rows + rows % 2, columns + columns % 2
        self.timestamps, self.fps = clock.times, float(clock.fps)
        self.duration = float(clock.times[-1]) + 1.0 / self.fps
        self.source = f"{a.source} | {b.source}" if a.source or b.source else ""

    def draw(self, number: int, frame: np.ndarray) -> None:
        self._compose(self._pair, number, frame)


class _Clock:
    """Output moments and, for each, the frame of either video that a player would show."""

    def __init__(self, a: Clip, b: Clip) -> None:
        self.fps = max(a.fps, b.fps)
        count = max(1, round(max(a.duration, b.duration) * self.fps))
        if math.isclose(a.fps, b.fps, rel_tol=1e-6):
            count = max(count, len(a), len(b))
        self.times = np.arange(count) / self.fps
        shift = 0.25 / self.fps  # containers round times to milliseconds
        self.shown = [np.searchsorted(video.timestamps, self.times + shift, side="right") - 1 for video in (a, b)]
        self.ended = [self.times > video.duration - shift for video in (a, b)]


class _Pair:
    """Everything a composer needs: frames by output index, sizes, label chips, pixels between the two."""

    def __init__(self, a: Clip, b: Clip, clock: _Clock, sizes: list[tuple[int, int]], chips: list[np.ndarray], gap: int) -> None:
        self.videos, self.clock, self.sizes, self.chips, self.gap = (a, b), clock, sizes, chips, gap
        self._last: list[tuple[int, bool, np.ndarray] | None] = [None, None]
        self._ended_chip: list[np.ndarray] = [_chip("ended", _unit(*size), MUTED) for size in sizes]

    def picture(self, which: int, index: int, *, mark: bool) -> np.ndarray:
        """Video ``which`` at output frame ``index``, scaled to its size; ``mark``: label it, and darken it after its end."""
        shown, ended = int(self.clock.shown[which][index]), bool(self.clock.ended[which][index]) and mark
        last = self._last[which]
        if last is not None and last[:2] == (shown, ended):
            return last[2]
        picture = _contained(self.videos[which].frames[shown], *self.sizes[which])
        if mark:
            picture = picture.copy()
            if ended:
                picture = (picture * _ENDED_BRIGHTNESS).astype(np.uint8)
                _stamp(picture, self._ended_chip[which], "right", "bottom")
            _stamp(picture, self.chips[which], "left", "top")
        self._last[which] = (shown, ended, picture)
        return picture


def _beside(pair: _Pair, index: int, frame: np.ndarray) -> None:
    (height, left), (_, right) = pair.sizes
    gap = pair.gap
    frame[:height, :left] = pair.picture(0, index, mark=True)
    frame[:height, left : left + gap] = BACKGROUND
    frame[:height, left + gap : left + gap + right] = pair.picture(1, index, mark=True)
    frame[height:], frame[:, left + gap + right :] = BACKGROUND, BACKGROUND


def _below(pair: _Pair, index: int, frame: np.ndarray) -> None:
    (top, width), (bottom, _) = pair.sizes
    gap = pair.gap
    frame[:top, :width] = pair.picture(0, index, mark=True)
    frame[top : top + gap, :width] = BACKGROUND
    frame[top + gap : top + gap + bottom, :width] = pair.picture(1, index, mark=True)
    frame[top + gap + bottom :], frame[:, width:] = BACKGROUND, BACKGROUND


def _wipe(pair: _Pair, index: int, frame: np.ndarray) -> None:
    height, width = pair.sizes[0]
    half = max(1, round(height / 360))
    divider = round(width * wipe_position(float(pair.clock.times[index])))
    frame[:height, :divider] = pair.picture(0, index, mark=False)[:, :divider]
    frame[:height, divider:width] = pair.picture(1, index, mark=False)[:, divider:]
    frame[:height, max(0, divider - 2 * half) : divider + 2 * half] = BACKGROUND
    frame[:height, max(0, divider - half) : divider + half] = TEXT
    _stamp(frame[:height, :width], pair.chips[0], "left", "top")
    _stamp(frame[:height, :width], pair.chips[1], "right", "top")
    frame[height:], frame[:, width:] = BACKGROUND, BACKGROUND


def _difference(pair: _Pair, index: int, frame: np.ndarray) -> None:
    height, width = pair.sizes[0]
    first, second = pair.picture(0, index, mark=False), pair.picture(1, index, mark=False)
    apart = np.maximum(first, second) - np.minimum(first, second)
    frame[:height, :width] = np.minimum(apart, 255 // _DIFFERENCE_GAIN) * _DIFFERENCE_GAIN + (apart > 255 // _DIFFERENCE_GAIN)
    _stamp(frame[:height, :width], pair.chips[0], "left", "top")
    frame[height:], frame[:, width:] = BACKGROUND, BACKGROUND


def wipe_position(seconds: float) -> float:
    """Where the divider stands, as a share of the width: in the middle at 0, first to the right."""
    return 0.5 + _SWEEP_REACH * math.sin(2 * math.pi * seconds / _SWEEP_SECONDS)


def _sizes(a: Clip, b: Clip, mode: str, height: int | None) -> list[tuple[int, int]]:
    """Height and width in pixels at which either video is shown."""
    if height is None:
        tallest = a if a.height >= b.height else b
        height = tallest.height * enlargement(tallest.height, tallest.width)
    widths = [max(1, round(video.width * height / video.height)) for video in (a, b)]
    if mode == "horizontal":
        return [(height, widths[0]), (height, widths[1])]
    if mode == "vertical":
        width = max(widths)
        return [(max(1, round(video.height * width / video.width)), width) for video in (a, b)]
    return [(height, widths[0])] * 2


def _contained(picture: np.ndarray, height: int, width: int) -> np.ndarray:
    """Scaled to fit into ``height`` x ``width``; bars where the shape differs by more than rounding."""
    scale = min(height / picture.shape[0], width / picture.shape[1])
    rows, columns = round(picture.shape[0] * scale), round(picture.shape[1] * scale)
    if abs(rows - height) <= 1 and abs(columns - width) <= 1:
        return resized(picture, height, width)
    framed = np.empty((height, width, 3), np.uint8)
    framed[:] = BACKGROUND
    rows, columns = max(1, rows), max(1, columns)
    top, left = (height - rows) // 2, (width - columns) // 2
    framed[top : top + rows, left : left + columns] = resized(picture, rows, columns)
    return framed


def _chips(labels: tuple[str, str], sizes: list[tuple[int, int]], mode: str) -> list[np.ndarray]:
    if mode == "difference":
        labels = (f"2 × |{labels[0]} − {labels[1]}|", "")
    room = 0.46 if mode == "wipe" else 0.92
    unit = min(_unit(*size) for size in sizes)  # one size of letters for both
    return [_chip(str(label), unit, TEXT, room * size[1]) for label, size in zip(labels, sizes, strict=True)]


def _unit(height: int, width: int) -> float:
    """Pixels per layout unit, so that a label is as large on a small picture as on a large one."""
    return max(0.6, min(height / 360, width / 300))


def _chip(label: str, scale: float, colour: tuple[int, int, int], room: float = math.inf) -> np.ndarray:
    """A label on a dark ground, at most ``room`` pixels wide; an empty array for an empty label."""
    label = " ".join(label.split())
    if not label:
        return np.empty((0, 0, 3), np.uint8)
    measure = Surface(1, 1, scale)
    label = measure.fit(label, max(8.0, room / scale - 18), 13, bold=True)
    width = measure.text(0, 0, label, 13, bold=True) + 18
    surface = Surface(round(width * scale), round(25 * scale), scale, SURFACE)
    surface.text(9, 17.2, label, 13, colour, bold=True)
    return np.asarray(surface.image())


def _stamp(picture: np.ndarray, chip: np.ndarray, side: str, edge: str) -> None:
    """Copy ``chip`` into a corner of ``picture``; what doesn't fit is left out."""
    rows, columns = min(chip.shape[0], picture.shape[0]), min(chip.shape[1], picture.shape[1])
    if not rows or not columns:
        return
    margin = min(round(chip.shape[0] * 0.4), (picture.shape[0] - rows) // 2, (picture.shape[1] - columns) // 2)
    top = margin if edge == "top" else picture.shape[0] - rows - margin
    left = margin if side == "left" else picture.shape[1] - columns - margin
    picture[top : top + rows, left : left + columns] = chip[:rows, :columns]
