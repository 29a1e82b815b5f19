"""Letters and drawing surface for overlays: DejaVu Sans from matplotlib's data, anti-aliased shapes by supersampling."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

Colour = tuple[int, int, int]

BACKGROUND: Colour = (16, 19, 25)
SURFACE: Colour = (28, 33, 42)
TRACK: Colour = (45, 52, 64)
TEXT: Colour = (238, 241, 245)
MUTED: Colour = (152, 163, 178)
GOOD: Colour = (64, 200, 170)
MIDDLE: Colour = (243, 190, 84)
BAD: Colour = (241, 92, 84)


@lru_cache(maxsize=128)
def font(size: int, bold: bool = False) -> ImageFont.FreeTypeFont:
    """DejaVu Sans with an em of ``size`` pixels."""
    import matplotlib

    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    return ImageFont.truetype(str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / name), max(1, size))


def loss_colour(value: float) -> Colour:
    """Teal at 0, amber at a half, coral at 1: told apart by common colour-blind eyes, too."""
    value = min(1.0, max(0.0, value))
    low, high, part = (GOOD, MIDDLE, value * 2) if value < 0.5 else (MIDDLE, BAD, value * 2 - 1)
    return tuple(round(a + (b - a) * part) for a, b in zip(low, high, strict=True))  # type: ignore[return-value]


def fitted(text: str, width: float, size: int, bold: bool = False) -> str:
    """``text``, shortened with an ellipsis until it is at most ``width`` pixels wide."""
    text = " ".join(text.split())
    if font(size, bold).getlength(text) <= width:
        return text
    while text and font(size, bold).getlength(text + "…") > width:
        text = text[:-1]
    return text.rstrip() + "…"


class Surface:
    """A picture drawn in layout units: 1 unit is ``scale`` pixels. Shapes and letters are drawn larger and shrunk once."""

    def __init__(self, width: int, height: int, scale: float, colour: Colour = BACKGROUND) -> None:
        self.width, self.height = width, height  # pixels
        self._over = 2 if scale < 4 else 1
        self.factor = scale * self._over
        self._image = Image.new("RGB", (width * self._over, height * self._over), colour)
        self._draw = ImageDraw.Draw(self._image)

    def image(self) -> Image.Image:
        if self._over == 1:
            return self._image
        return self._image.reduce(self._over)

    def text(
        self, x: float, y: float, text: str, size: float, colour: Colour = TEXT, *, bold: bool = False, anchor: str = "ls"
    ) -> float:
        """Draw on the baseline ``y`` (anchor "ls", "ms", "rs": ``x`` is the left end, middle, right end); return the width."""
        face = font(round(size * self.factor), bold)
        self._draw.text((x * self.factor, y * self.factor), text, fill=colour, font=face, anchor=anchor)
        return face.getlength(text) / self.factor

    def fit(self, text: str, width: float, size: float, bold: bool = False) -> str:
        return fitted(text, width * self.factor, round(size * self.factor), bold)

    def box(self, x: float, y: float, width: float, height: float, colour: Colour, radius: float = 0.0) -> None:
        if width <= 0 or height <= 0:
            return
        corners = (x * self.factor, y * self.factor, (x + width) * self.factor - 1, (y + height) * self.factor - 1)
        if corners[2] < corners[0] or corners[3] < corners[1]:
            return
        radius = min(radius, width / 2, height / 2)
        self._draw.rounded_rectangle(corners, radius * self.factor, fill=colour)

    def line(self, points: list[tuple[float, float]], width: float, colour: Colour) -> None:
        scaled = [(x * self.factor, y * self.factor) for x, y in points]
        self._draw.line(scaled, fill=colour, width=max(1, round(width * self.factor)), joint="curve")

    def polygon(self, points: list[tuple[float, float]], colour: Colour) -> None:
        self._draw.polygon([(x * self.factor, y * self.factor) for x, y in points], fill=colour)

    def arc(self, x: float, y: float, radius: float, start: float, end: float, width: float, colour: Colour) -> None:
        """Part of a circle, degrees clockwise from the right."""
        f = self.factor
        bounds = ((x - radius) * f, (y - radius) * f, (x + radius) * f, (y + radius) * f)
        self._draw.arc(bounds, start, end, fill=colour, width=max(1, round(width * f)))

    def dot(self, x: float, y: float, radius: float, colour: Colour) -> None:
        f = self.factor
        self._draw.ellipse(((x - radius) * f, (y - radius) * f, (x + radius) * f, (y + radius) * f), fill=colour)
