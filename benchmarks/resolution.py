"""Does the loss need the high frequencies of large pictures? Pairs right with and without ``largest_frequency``, by size.

    python benchmarks/resolution.py [--clips FOLDER]

Real clips of the tuning part (see discrimination.py) whose longer side reaches the largest size, at several sizes. Writes
docs/results/resolution.md; raw scores go to out/benchmarks/resolution.jsonl, from which an interrupted run goes on.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that `benchmarks` is found

from benchmarks.discrimination import SAMPLES, header, points, row_of
from benchmarks.judging import judge, paired_difference, share_right
from benchmarks.pairs import real_clips
from benchmarks.scores import ROOT, Measures, SpectralMeasures, score_clips
from phys_pipeline.atomic import atomic_file
from phys_pipeline.spectral import SpectralConfig

SIDES = (160, 320, 480)  # pixels of the longer side
LIMITS = (0.0, 48.0, 24.0)  # cycles per longer side; 0: none


def label(limit: float) -> str:
    return f"{limit:g}" if limit else "none"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clips", type=Path, default=SAMPLES, help="folder of real clips")
    parser.add_argument("--windows", type=int, default=3, help="windows of a clip, at most")
    parser.add_argument("--sides", type=int, nargs="+", default=list(SIDES))
    parser.add_argument("--processes", type=int, default=2, help="each with one thread")
    parser.add_argument("--scores", type=Path, default=ROOT / "out" / "benchmarks" / "resolution.jsonl", help="raw scores")
    parser.add_argument("--report", type=Path, default=ROOT / "docs" / "results" / "resolution.md")
    options = parser.parse_args(arguments)
    measures: list[Measures] = [
        SpectralMeasures(label(limit), SpectralConfig.calibrated(largest_frequency=limit), components=False) for limit in LIMITS
    ]
    largest = max(options.sides)
    names, lines, pairs = set(), [], []
    for side in options.sides:
        clips, _ = real_clips(options.clips, options.windows, side)
        large = {clip.name for clip in real_clips(options.clips, 1, largest)[0] if max(clip.pixels.shape[1:3]) == largest}
        clips = [clip for clip in clips if not clip.held_out and clip.name in large]
        if not clips:
            raise SystemExit(f"no clip of the tuning part in {options.clips} has {largest} pixels; give other --sides or --clips")
        names |= {clip.name for clip in clips}
        rows = score_clips(clips, measures, options.scores, options.processes)
        outcomes = {label(limit): judge(row for row in rows if row.measure == label(limit)) for limit in LIMITS}
        own = outcomes[label(LIMITS[0])]
        pairs.append(len(own))
        for limit in LIMITS:
            share = share_right(outcomes[label(limit)])
            if share is None:
                raise SystemExit("no corrupted copy of these clips differs visibly: give other --clips")
            low, high = share.wilson
            difference = points(paired_difference(outcomes[label(limit)], own)) if limit else ""
            lines.append(
                row_of(
                    [
                        str(side),
                        label(limit),
                        f"{100 * share.value:.1f} [{100 * low:.1f}, {100 * high:.1f}]",
                        str(share.total),
                        difference,
                    ]
                )
            )
    command = f"python benchmarks/resolution.py --clips {'samples/clips' if options.clips == SAMPLES else 'FOLDER'}"
    text = "\n".join(
        [
            "# High frequencies of large pictures", "",
            f"Made by `{command}`: {len(names)} real clips of the tuning part ({', '.join(sorted(names))}), at most "
            f"{options.windows} windows each; corruptions and rules of [discrimination](discrimination.md), all three strengths. "
            "Shares of right pairs with 95 % Wilson intervals; differences to no limit in percentage points with 95 % bootstrap "
            "intervals over whole clips. `largest_frequency` is in cycles per longer side of the frame; at 160 pixels the kept "
            "share of 0.3 ends at 24 cycles, so that the rows are one there.", "",
            *header(["longer side", "largest frequency", "right, %", "n", "difference"]), *lines,
        ]
    ) + "\n"  # fmt: skip
    print(text)
    with atomic_file(options.report) as temporary:
        temporary.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
