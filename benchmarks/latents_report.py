"""The tables of docs/results/latents.md."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from torch import Tensor

from benchmarks.judging import Outcome, Share, clip_bootstrap, judge, paired_difference, share_right
from benchmarks.latents_conditions import Condition
from benchmarks.latents_frames import KINDS, ChannelShares, FirstFrame, frame_sizes
from benchmarks.latents_motion import KINDS as MOTION_KINDS
from benchmarks.latents_motion import EstimateRow, SpeedRow, fastest
from benchmarks.latents_scores import STRENGTHS
from benchmarks.scores import Row
from phys_pipeline.evaluation.statistics import wilson
from phys_pipeline.media import CORRUPTIONS

MEASURABLE = 0.25  # median relative error up to which a velocity counts as measured


def row_of(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def header(cells: Sequence[str]) -> list[str]:
    return [row_of(cells), row_of(["---"] * len(cells))]


def share_cell(share: Share | None) -> str:
    """Share in %, Wilson interval, clip bootstrap interval."""
    if share is None:
        return ""
    low, high = (100 * end for end in share.wilson)
    first, last = (100 * end for end in share.clips)
    return f"{100 * share.value:.1f} ({low:.1f}-{high:.1f}; {first:.1f}-{last:.1f})"


def points(share: Share | None) -> str:
    return "" if share is None else f"{100 * share.value:+.1f} [{100 * share.clips[0]:+.1f}, {100 * share.clips[1]:+.1f}]"


def outcomes_of(rows: Sequence[Row], label: str, source: str) -> list[Outcome]:
    return judge(row for row in rows if row.measure == label and row.source == source)


def tuning_table(rows: Sequence[Row], conditions: Sequence[Condition]) -> list[str]:
    """One line per candidate, the share at both strengths together."""
    lines = header(["settings", "pairs", "right, % (Wilson; clips)"])
    for condition in conditions:
        share = share_right(outcomes_of(rows, condition.label, "synthetic"))
        lines.append(row_of([condition.label, str(share.total if share else 0), share_cell(share)]))
    return lines


def shares_table(rows: Sequence[Row], conditions: Sequence[Condition], source: str, base: str) -> list[str]:
    """Shares of every condition and the lead of the condition ``base`` over it, on the same pairs."""
    columns = [[outcome for outcome in outcomes_of(rows, base, source) if outcome.strength == strength] for strength in STRENGTHS]
    heads = [f"strength {s:g} (n = {len(column)})" for s, column in zip(STRENGTHS, columns, strict=True)]
    lines = header(["what is scored", *heads, "both", "less the base line, points"])
    reference = outcomes_of(rows, base, source)
    for condition in conditions:
        found = outcomes_of(rows, condition.label, source)
        cells = [share_cell(share_right([outcome for outcome in found if outcome.strength == s])) for s in STRENGTHS]
        lead = "base line" if condition.label == base else points(paired_difference(found, reference))
        lines.append(row_of([condition.label, *cells, share_cell(share_right(found)), lead]))
    return lines


def kinds_table(found: Mapping[str, Sequence[Outcome]], kinds: Sequence[str]) -> list[str]:
    """Share right in % by corruption, with the Wilson interval."""
    first = next(iter(found.values()))
    counts = {kind: sum(outcome.kind == kind for outcome in first) for kind in kinds}
    lines = header(["what is scored", *(f"{kind} (n = {counts[kind]})" for kind in kinds)])
    for label, outcomes in found.items():
        cells = []
        for kind in kinds:
            right = sum(outcome.right for outcome in outcomes if outcome.kind == kind)
            if not counts[kind]:
                cells.append("")
                continue
            low, high = wilson(right, counts[kind])
            cells.append(f"{100 * right / counts[kind]:.0f} ({100 * low:.0f}-{100 * high:.0f})")
        lines.append(row_of([label, *cells]))
    return lines


def by_kind(rows: Sequence[Row], conditions: Sequence[Condition], source: str) -> list[str]:
    return kinds_table({item.label: outcomes_of(rows, item.label, source) for item in conditions}, CORRUPTIONS)


def estimates_table(rows: Sequence[EstimateRow]) -> list[str]:
    counts = {row.kind: row.clips for row in rows}
    lines = header(["seen through", *(f"{kind} (n = {counts[kind]})" for kind in MOTION_KINDS if kind in counts)])
    for view in dict.fromkeys(row.view for row in rows):
        cells = []
        for row in rows:
            if row.view != view:
                continue
            low, high = wilson(row.signs, row.clips)
            cells.append(
                f"{100 * row.median:.1f} % [{100 * row.interval[0]:.1f}, {100 * row.interval[1]:.1f}]; r {row.correlation:.2f}; "
                f"sign {100 * row.signs / row.clips:.0f} % ({100 * low:.0f}-{100 * high:.0f})"
            )
        lines.append(row_of([view, *cells]))
    return lines


def speed_table(rows: Sequence[SpeedRow]) -> list[str]:
    """One line per speed: error, loss and right pairs for each view."""
    views = list(dict.fromkeys(row.view for row in rows))
    lines = header(["px a frame", "cells a latent frame", *views])
    for speed in sorted({row.speed for row in rows}):
        cells = [
            f"{100 * row.error:.0f} %" + ("" if math.isnan(row.loss) else f"; {row.loss:.2f}; {row.right}/{row.clips}")
            for view in views
            for row in rows
            if row.view == view and row.speed == speed
        ]
        lines.append(row_of([f"{speed:g}", f"{speed / 2:.2f}", *cells]))
    return lines


def limits_of_speed(rows: Sequence[SpeedRow]) -> list[str]:
    """Per view the speeds between which the velocity is measured."""
    lines = []
    for view in dict.fromkeys(row.view for row in rows):
        good = [row.speed for row in rows if row.view == view and row.error <= MEASURABLE]
        unbroken = fastest(rows, view, lambda row: row.error <= MEASURABLE)
        span = ", ".join(f"{speed:g}" for speed in good) or "none"
        lines.append(f"* {view}: measured at {span} px a frame" + (f" (without a gap up to {unbroken:g})." if unbroken else "."))
    return lines


def first_frame_table(found: Mapping[str, Sequence[FirstFrame]]) -> list[str]:
    """Median and quartiles over clips of the ratios of frame 0 to the others."""
    lines = header(["latents", "clips", "size", "roughness", "step to the next"])
    for label, values in found.items():
        cells = []
        for name in ("size", "roughness", "step"):
            low, middle, high = np.percentile([getattr(value, name) for value in values], [25, 50, 75])
            cells.append(f"{middle:.2f}" if len(values) == 1 else f"{middle:.2f} ({low:.2f}-{high:.2f})")
        lines.append(row_of([label, str(len(values)), *cells]))
    return lines


def cost_line(label: str, costs: Sequence[tuple[str, float]]) -> str:
    """Mean extra loss of the window with frame 0, over clips."""
    mean = sum(cost for _, cost in costs) / len(costs)
    low, high = clip_bootstrap(costs)
    return f"* {label}: {mean:+.3f} [{low:+.3f}, {high:+.3f}], n = {len(costs)}."


def sizes_lines(real: Mapping[str, Tensor]) -> list[str]:
    """Size of each frame and of each step of the real latents."""
    lines = []
    for name, latents in real.items():
        sizes, steps = frame_sizes(latents)
        lines.append(f"* {name}: sizes {' '.join(f'{size:.2f}' for size in sizes)}; steps {' '.join(f'{s:.2f}' for s in steps)}.")
    return lines


def channels_table(found: Mapping[str, ChannelShares]) -> list[str]:
    lines = header(["latents", "standard deviation", "share of variance that moves", "moving energy in the strongest quarter"])
    for label, shares in found.items():

        def span(values: np.ndarray) -> str:
            return f"{values.min():.2f} / {np.median(values):.2f} / {values.max():.2f}"

        lines.append(row_of([label, span(shares.deviation), span(shares.moving), f"{100 * shares.strongest_quarter:.0f} %"]))
    return lines


def real_table(found: Mapping[str, Mapping[str, Sequence[Outcome]]]) -> list[str]:
    """Share right by condition and latent; ``found``: latent -> condition -> outcomes."""
    names = list(found)
    conditions = list(found[names[0]])
    lines = header(["what is scored", *(f"{name} (n = {len(found[name][conditions[0]])})" for name in names)])
    for condition in conditions:
        cells = []
        for name in names:
            share = share_right(found[name][condition])
            low, high = share.wilson if share else (0.0, 0.0)
            cells.append(f"{100 * share.value:.1f} ({100 * low:.1f}-{100 * high:.1f})" if share else "")
        lines.append(row_of([condition, *cells]))
    return lines


def real_kinds(found: Mapping[str, Mapping[str, Sequence[Outcome]]], conditions: Sequence[str]) -> list[str]:
    """Right pairs by corruption, one line per latent and condition."""
    lines = header(["latents", "what is scored", *KINDS])
    for name, outcomes in found.items():
        for condition in conditions:
            cells = []
            for kind in KINDS:
                pairs = [outcome.right for outcome in outcomes[condition] if outcome.kind == kind]
                low, high = wilson(sum(pairs), len(pairs)) if pairs else (0.0, 0.0)
                cells.append(f"{sum(pairs)} of {len(pairs)} ({100 * low:.0f}-{100 * high:.0f})" if pairs else "0 of 0")
            lines.append(row_of([name, condition, *cells]))
    return lines
