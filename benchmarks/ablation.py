"""What each decision of the calibrated preset is worth: one field changed at a time, on the same pairs.

    python benchmarks/ablation.py [--clips FOLDER]
    python benchmarks/ablation.py --override patches=2      every decision again, from another start; writes no report

Only clips of the tuning part are used (see discrimination.py). Writes docs/results/ablation.md; raw scores go to
out/benchmarks/ablation.jsonl, from which an interrupted run goes on.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that `benchmarks` is found

from benchmarks.discrimination import LOSS, SAMPLES, Results, describe, header, points, row_of
from benchmarks.judging import Outcome, paired_difference, share_right
from benchmarks.pairs import CELLS, STRENGTHS, Clip, held_out, real_clips, synthetic_clip, synthetic_name
from benchmarks.scores import ROOT, Measures, SpectralMeasures, parse_overrides, score_clips
from phys_pipeline.atomic import atomic_file
from phys_pipeline.spectral import SpectralConfig

DECISIONS: tuple[tuple[str, str, tuple[Any, ...]], ...] = (  # what it is, field, values
    ("gate", "energy_weighting", (True, False)),
    ("cube", "truncation", ("signed", "one_sided")),
    ("mean removal", "remove_mean", (True, False)),
    ("apodisation", "apodise", (True, False)),
    ("whitening", "whiten", (0.0, 0.5, 1.0, 1.5)),
    ("normalisation", "normalise", (True, False)),
    ("weighting", "weighting", ("softmin", "coupled")),  # detached has the scores of coupled
    ("polar values", "polar", ("magnitude", "complex")),
    ("slope", "slope", ("grid", "closed_form")),
    ("scaling", "scaling_loss", ("line", "proxies")),
    ("aliasing", "wrap", (True, False)),
    ("patches", "patches", (1, 2, 3, 4)),
    ("window", "window", (8, 16)),
    ("kept temporal frequencies", "keep_time", (0.3, 0.6, 1.0)),
    ("kept spatial frequencies", "keep", (0.2, 0.3, 0.4, 0.5)),
    ("largest spatial frequency", "largest_frequency", (0.0, 16.0)),
    ("temperature", "temperature", (0.05, 0.1, 0.2)),
    ("band width", "band_sigma", (0.4, 0.6, 0.9)),
    ("ring term", "ring_weight", (0.0, 0.25, 0.5)),
    ("pace term", "pace_weight", (0.0, 0.15, 0.3, 0.6)),
    ("phase coherence term", "coherence_weight", (0.0, 0.25, 0.5, 1.0)),
)
INTRODUCTION = """# What each decision of the loss is worth

Made by `{command}`. Each row changes one field of the calibrated preset and keeps the others. Clips, copies and rules are those
of [discrimination](discrimination.md), tuning part only, so that the held-out part stays unseen: {synthetic} synthetic clips,
spread over that part, and at most {windows} windows of each real clip. Differences are percentage points of right pairs against
the preset (above 0: the change gets more pairs right) with 95 % bootstrap intervals over whole clips, on the same pairs.

Rows are not corrected for their number: of {count} changes without effect about {chance:.0f} would have intervals that miss 0.
What changes nothing here may still matter for gradients, as `weighting` and `gradient` do; scores can't tell. A shorter window
comes with half its length as the stride.
"""


def variants(start: SpectralConfig) -> list[tuple[str, str, Any, SpectralConfig]]:
    """Decision, field, value and configuration of every change of one field of ``start``; a window takes its stride along."""
    changes = []
    for decision, field, values in DECISIONS:
        for value in values:
            if value != getattr(start, field):
                follows = {"stride": value // 2} if field == "window" else {}  # else breaks would fall between windows
                changes.append((decision, field, value, replace(start, **{field: value}, **follows)))
    return changes


def table(
    results: Results, source: str, changes: Sequence[tuple[str, str, Any, SpectralConfig]], start: SpectralConfig
) -> list[str]:
    """One row per change, the preset first."""
    own = results.outcomes(LOSS, source, False)
    by_strength = [[outcome for outcome in own if outcome.strength == strength] for strength in STRENGTHS]
    columns = [f"strength {strength:g} (n = {len(part)})" for strength, part in zip(STRENGTHS, by_strength, strict=True)]
    lines = header(["decision", "setting", "right, %", f"difference (n = {len(own)})", *columns])
    lines.append(row_of(["preset", "", right(own), "", *(f"{right(part)} %" for part in by_strength)]))
    for decision, field, value, _ in changes:
        outcomes = results.outcomes(label(field, value), source, False)
        cells = [points(paired_difference(outcomes, own))]
        for strength, part in zip(STRENGTHS, by_strength, strict=True):
            cells.append(points(paired_difference([o for o in outcomes if o.strength == strength], part)))
        lines.append(row_of([decision, f"`{field}` {getattr(start, field)} -> {value}", right(outcomes), *cells]))
    return lines


def right(outcomes: Sequence[Outcome]) -> str:
    share = share_right(outcomes)
    return "no pair" if share is None else f"{100 * share.value:.1f}"


def label(field: str, value: Any) -> str:
    return f"{field}={value}"


def tuning_clips(folder: Path, synthetic: int, seed: int, windows: int) -> tuple[list[Clip], int]:
    """``synthetic`` clips spread over the tuning part, the real clips of that part, and how many windows had cuts."""
    seeds = [number for number in range(seed, seed + 2 * len(CELLS)) if not held_out(synthetic_name(number))]
    chosen = np.linspace(0, len(seeds) - 1, min(synthetic, len(seeds))).round().astype(int).tolist()
    real, cuts = real_clips(folder, windows)
    return [synthetic_clip(seeds[index]) for index in chosen] + [clip for clip in real if not clip.held_out], cuts


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clips", type=Path, default=SAMPLES, help="folder of real clips")
    parser.add_argument("--synthetic", type=int, default=16, help="number of synthetic clips")
    parser.add_argument("--seed", type=int, default=3000, help="first seed of discrimination.py's synthetic clips")
    parser.add_argument("--windows", type=int, default=6, help="windows of a real clip, at most")
    parser.add_argument("--processes", type=int, default=2, help="each with one thread")
    parser.add_argument("--scores", type=Path, default=ROOT / "out" / "benchmarks" / "ablation.jsonl", help="raw scores")
    parser.add_argument("--report", type=Path, default=ROOT / "docs" / "results" / "ablation.md")
    parser.add_argument("--override", nargs="+", default=[], metavar="FIELD=VALUE", help="start from a changed preset; no report")
    options = parser.parse_args(arguments)
    start = SpectralConfig.calibrated(**parse_overrides(options.override))
    changes = variants(start)
    measures: list[Measures] = [SpectralMeasures(LOSS, start, components=False)]
    measures += [SpectralMeasures(label(field, value), config, components=False) for _, field, value, config in changes]
    clips, cuts = tuning_clips(options.clips, options.synthetic, options.seed, options.windows)
    command = (
        f"python benchmarks/ablation.py --clips {'samples/clips' if options.clips == SAMPLES else 'FOLDER'} --synthetic "
        f"{options.synthetic} --seed {options.seed} --windows {options.windows}"
    )
    results = Results(score_clips(clips, measures, options.scores, options.processes), (), cuts, command)
    introduction = INTRODUCTION.format(
        command=command, synthetic=options.synthetic, windows=options.windows, count=len(changes), chance=len(changes) / 20
    )
    lines = [introduction, *(f"* {describe(results, *block)}." for block in results.blocks)]
    for source, _ in results.blocks:
        lines += ["", f"## {source.capitalize()} clips", "", *table(results, source, changes, start)]
    text = "\n".join(lines) + "\n"
    print(text)
    if options.override:
        print(f"started from {' '.join(options.override)}; no report written")
        return
    with atomic_file(options.report) as temporary:
        temporary.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
