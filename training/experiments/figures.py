"""The experiment's figure: every arm's effect against the base loss, with what was asked for."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from phys_pipeline.atomic import atomic_file
from training.experiments.effects import Effect, Requirement

_SHOWN = {"ratio": (0.5, 1.5), "points": (-20.0, 20.0)}  # beyond it an interval runs out of its panel
_ACROSS = 4  # panels beside each other
_GOOD, _PLAIN = "#1a9850", "#4d4d4d"


def draw_effects(
    path: str | os.PathLike[str], found: Mapping[str, Mapping[str, Effect | None]], wanted: Sequence[Requirement], ours: str
) -> Path:
    """A panel for each requirement, a line for each arm: estimate and 95 % interval.

    Args:
        path: a ``.png``.
        found: effects by arm and metric, in the order of the lines; ``ours`` is the arm in bold.
        wanted: the panels. Solid line: no effect; shaded: what was asked for.

    Returns:
        the path.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    names = list(found)
    rows = math.ceil(len(wanted) / _ACROSS)
    across = min(_ACROSS, len(wanted))
    figure = Figure(figsize=(2.2 * across + 1.8, rows * (0.21 * len(names) + 0.9)), dpi=100, layout="constrained")
    panels = figure.subplots(rows, across, sharey=True, squeeze=False).flat
    for panel, one in zip(panels, wanted, strict=False):
        low, high = _range([found[name].get(one.metric) for name in names], one)
        asked = (one.bound, high) if one.sign > 0 else (low, one.bound)
        panel.axvspan(*asked, color=_GOOD, alpha=0.12, linewidth=0)
        panel.axvline(one.no_effect, color=_PLAIN, linewidth=0.8)
        for line, name in enumerate(names):
            effect = found[name].get(one.metric)
            if effect is None:
                continue
            colour = _GOOD if one.verdict(effect) == "met" else _PLAIN
            weight = 2.2 if name == ours else 1.2
            if effect.interval is not None:
                panel.plot(effect.interval, [line, line], color=colour, linewidth=weight, solid_capstyle="butt")
                for end, edge, arrow in zip(effect.interval, (low, high), "<>", strict=True):
                    if not low <= end <= high:
                        panel.plot([edge], [line], arrow, color=colour, markersize=4, clip_on=False)
            panel.plot([effect.value], [line], "o", color=colour, markersize=2.5 * weight)
        panel.set_xlim(low, high)
        panel.set_title(f"{one.label}\n{one.text}", fontsize=8)
        panel.tick_params(labelsize=8)
        panel.grid(axis="x", linewidth=0.3)
    for panel in figure.axes[len(wanted) :]:
        panel.set_visible(False)
    for first in figure.axes[::across]:
        first.set_yticks(range(len(names)), names, fontsize=8)
        first.set_ylim(len(names) - 0.5, -0.5)
        for label in first.get_yticklabels():
            label.set_fontweight("bold" if label.get_text() == ours else "normal")
    with atomic_file(path) as temporary:
        FigureCanvasAgg(figure).print_png(str(temporary))
    return Path(path)


def _range(effects: Sequence[Effect | None], wanted: Requirement) -> tuple[float, float]:
    """Of a panel: all estimates, the bound and no effect, and as much of the intervals as fits."""
    least, most = _SHOWN[wanted.kind]
    values = [wanted.bound, wanted.no_effect, *(e.value for e in effects if e is not None)]
    ends = [end for e in effects if e is not None and e.interval is not None for end in e.interval]
    low = min([*values, *(max(end, least) for end in ends)])
    high = max([*values, *(min(end, most) for end in ends)])
    margin = 0.05 * (high - low)
    return low - margin, high + margin
