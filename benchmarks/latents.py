"""What of the loss and of the motion estimates survives on the latents of a video autoencoder?

    python benchmarks/latents.py                     the embedded model's autoencoder: synthetic clips and the sample clips
    python benchmarks/latents.py --latents FOLDER    also real latents: safetensors files with a tensor "latents" (1, C, T, h, w)

Writes docs/results/latents.md, and numbers to out/benchmarks/latents.json. Raw scores go to out/benchmarks/latents.jsonl, from
which an interrupted run goes on. On Linux, MALLOC_MMAP_THRESHOLD_=4000000000 MALLOC_TRIM_THRESHOLD_=8000000000 in the
environment halves the time.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that `benchmarks` is found

import torch
from torch import Tensor

from benchmarks import latents_report as tables
from benchmarks.latents_clips import (
    CELLS,
    FRAMES,
    SIDE,
    STAND_INS,
    WIDTH,
    Encoder,
    LinearCompression,
    compress,
    for_tuning,
    long_clip,
    long_windows,
)
from benchmarks.latents_conditions import Condition, candidates, on_fewer_clips, refinements, reported, tried
from benchmarks.latents_frames import (
    VISIBLE,
    channel_shares,
    crops_of,
    first_frame,
    first_frame_cost,
    judge_real,
    read_latents,
    real_conditions,
)
from benchmarks.latents_motion import SPEEDS, VIEWS, estimates, speed_curve
from benchmarks.latents_scores import score
from benchmarks.pairs import Clip
from benchmarks.scores import ROOT, Row
from phys_pipeline.atomic import atomic_file

CHOSEN: dict[str, object] = {"patches": 3, "keep": 1.0}  # the best of the first tuning table
BASE = "latents / 4 (linear), chosen"
SAMPLES = ROOT / "samples" / "clips"

INTRODUCTION = """# The loss and the estimates on latents

Made by `{command}`. Compare with [discrimination](discrimination.md) and [estimates](estimates.md), which are in pixels.

## Rules

* Autoencoder: the embedded model's (`phys_pipeline/assets/tiny_hunyuan/vae`): 16 channels, 8 x 8 pixels a cell, no
  compression of time. A causal video autoencoder with time stride 4 is **stood in for**, not measured
  (`benchmarks/latents_clips.py`): of each causal group of four frames the first 16 principal components of its 64 channels
  ("linear": {kept:.1f} % of the variance, fitted on the tuning clips), its mean, or its last frame ("every 4th"). Frame 0 is
  alone in all of them.
* Synthetic clips: {frames} frames of {side} x {side} pixels, seeds {first} to {last}; {cells} cells of content (texture three
  times; square, star, bar before a still texture) and motion (translation, rotation, zoom, mixture) take turns, every other
  round with noise. Real clips: windows of {frames} frames of the sample clips at their own rate, {width} pixels wide; the two
  16-frame clips are too short.
* Pairs: nine corruptions in pixels at strengths 0.5 and 1, then encoded; invisible ones (under 1/255) don't count; equal
  scores are wrong. Pixels and latents see the same pairs. Where all {frames} frames are seen, windows of 16 start every 16
  frames.
* Tuning part: a third of the synthetic clips ({tuning}). The tables after the tuning tables don't contain them; no setting was
  chosen on a sample clip or on real latents.
* Shares in %: (95 % Wilson interval; 95 % bootstrap interval over clips). Differences: 95 % bootstrap interval over clips, on
  the same pairs.
"""
FIRST_FRAME_NOTE = """Frame 0 divided by the median of the other frames. Size: root mean square about the channel means.
Roughness: energy of differences between neighbouring cells over energy. Step: size of the difference to the next frame, over
that of the other steps. Median and quartiles over clips."""
COST_NOTE = "Loss of all frames but the last minus loss of all but the first (chosen settings, clean clips, mean over clips):"
ESTIMATES_NOTE = """Median relative error [95 % bootstrap interval], correlation with the truth, share of right signs (Wilson), on
the clips of pure motion."""
SPEED_NOTE = """Textures that pan in {seeds} random directions at each speed. Cells: median relative error of the velocity; median
loss (pixels: preset; latents: chosen settings); clips that score lower than their copy with jitter of half strength."""
CHANNELS_NOTE = """Over channels, smallest / median / largest. "Moves": variance about the channel's temporal mean. Scores with
whitened channels stand in the tables of pairs."""
REAL_NOTE = """There are no pixels behind these latents here, so their copies are broken in the latents (`broken` in
`benchmarks/latents_frames.py`), at strengths 0.5 and 1, on crops of 16 x 16 cells that don't overlap: {crops}. Copies that
differ by less than {visible} standard deviations on average don't count. **Each file is one clip**: the Wilson intervals take
crops as independent, which they are not, and say nothing about other clips."""
LIMITS = """## Limits

* No trained causal autoencoder could be run here; the stand-ins for time stride 4 are linear. Only the two files of real
  latents come from such models, and they are two clips.
* The embedded autoencoder was trained on 64 x 64 frames of shapes and photographs; it is used here at twice that size and more.
* The corruptions are drawn by programs, as in the other benchmarks.
"""


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--latents", type=Path, help="folder of real latents")
    parser.add_argument("--clips", type=Path, default=SAMPLES, help="folder of real clips")
    parser.add_argument("--synthetic", type=int, default=4 * len(CELLS), help="number of synthetic clips")
    parser.add_argument("--seed", type=int, default=0, help="first seed of the synthetic clips")
    parser.add_argument("--windows", type=int, default=2, help="windows of a real clip, at most")
    parser.add_argument("--reported", type=int, default=64, help="synthetic clips outside the tuning part, at most")
    parser.add_argument("--few", type=int, default=12, help="synthetic clips for the conditions that are scored on fewer clips")
    parser.add_argument("--pans", type=int, default=6, help="directions per speed")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--scores", type=Path, default=ROOT / "out" / "benchmarks" / "latents.jsonl", help="raw scores")
    parser.add_argument("--report", type=Path, default=ROOT / "docs" / "results" / "latents.md")
    return parser.parse_args(arguments)


def pairs_section(title: str, rows: Sequence[Row], conditions: Sequence[Condition], clips: Sequence[Clip]) -> list[str]:
    """Tables of the conditions on the clips, synthetic and real ones apart."""
    lines = []
    names = {clip.name for clip in clips}
    rows = [row for row in rows if row.clip in names]
    for source in ("synthetic", "real"):
        own = [clip for clip in clips if clip.source == source]
        if not own:
            continue
        lines += [f"## {title}: {source} clips ({len(own)} windows of {len({clip.name for clip in own})} clips)", ""]
        lines += [*tables.shares_table(rows, conditions, source, BASE), ""]
        lines += ["By corruption, both strengths (Wilson interval):", "", *tables.by_kind(rows, conditions, source), ""]
    return lines


def relabelled(tuned: Sequence[Row], clips: Sequence[Clip]) -> list[Row]:
    """The rows of the chosen settings among the candidates', under the base line's name."""
    label, names = tried(CHOSEN).label, {clip.name for clip in clips}
    return [replace(row, measure=BASE) for row in tuned if row.measure == label and row.clip in names]


def first_frame_section(
    clips: Sequence[Clip], codes: Sequence[Tensor], linear: LinearCompression, real: dict[str, Tensor]
) -> list[str]:
    """Statistics of frame 0, and what it adds to the loss."""
    chosen = Condition("", "linear", CHOSEN)
    held = {
        f"{stand_in} stand-in, {source} clips": [
            (clip.name, compress(code, stand_in, linear)[0])
            for clip, code in zip(clips, codes, strict=True)
            if clip.source == source
        ]
        for stand_in in ("linear", "mean", "fourth")
        for source in ("synthetic", "real")
    }
    held = {label: items for label, items in held.items() if items}
    statistics = {label: [first_frame(latents) for _, latents in items] for label, items in held.items()}
    statistics |= {name: [first_frame(latents)] for name, latents in real.items()}
    lines = ["## The first latent frame", "", FIRST_FRAME_NOTE, "", *tables.first_frame_table(statistics), ""]
    lines += [*tables.sizes_lines(real), ""] if real else []
    lines += [COST_NOTE, ""]
    for label, items in held.items():
        lines.append(tables.cost_line(label, [(name, first_frame_cost(latents, chosen)) for name, latents in items]))
    for name, latents in real.items():
        lines.append(f"* {name}, whole grid: {first_frame_cost(latents, chosen):+.3f}, one clip.")
    return [*lines, ""]


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    torch.set_num_threads(options.threads)
    real = read_latents(options.latents) if options.latents else {}
    seeds = range(options.seed, options.seed + options.synthetic)
    encoder = Encoder()
    tuning = [long_clip(seed)[0] for seed in seeds if for_tuning(seed)]
    linear = LinearCompression([encoder([clip.pixels]) for clip in tuning])
    base = Condition(BASE, "linear", CHOSEN)
    first_round, refined, conditions = candidates(), refinements(CHOSEN), reported(CHOSEN)
    tuned = score(tuning, first_round, encoder, linear, options.scores)
    retuned = score(tuning[: options.few], refined, encoder, linear, options.scores)
    fresh = [seed for seed in seeds if not for_tuning(seed)][: options.reported]
    windows, drawn = long_windows(options.clips, options.windows), [long_clip(seed)[0] for seed in fresh]
    some, others, clips = [*windows, *drawn[: options.few]], drawn[options.few :], [*windows, *drawn]
    extra = on_fewer_clips(CHOSEN)
    rows = score(some, [*conditions, *extra], encoder, linear, options.scores)
    rows += score(others, conditions, encoder, linear, options.scores)
    codes = [encoder([clip.pixels]) for clip in clips]
    found = estimates(fresh, encoder, linear)
    print("estimates are done", file=sys.stderr, flush=True)
    dropped = Condition("", "linear", CHOSEN)
    speeds = speed_curve(
        SPEEDS, range(500, 500 + options.pans),
        {
            VIEWS[0].label: None, VIEWS[1].label: Condition("", "pixels"), VIEWS[2].label: None, VIEWS[4].label: dropped,
            VIEWS[5].label: dropped,
        },
        encoder, linear,
    )  # fmt: skip
    command = (
        f"python benchmarks/latents.py{' --latents FOLDER' if real else ''} --synthetic {options.synthetic} --reported "
        f"{options.reported} --few {options.few} --windows {options.windows} --pans {options.pans}"
    )
    settings = ", ".join(f"{name}={value}" for name, value in CHOSEN.items())
    lines = [
        INTRODUCTION.format(
            command=command, kept=100 * linear.kept, frames=FRAMES, side=SIDE, width=WIDTH, cells=len(CELLS), tuning=len(tuning),
            first=seeds[0], last=seeds[-1],
        ),
        "## Tuning", "",
        f"Time stride 4 (linear), {len(tuning)} clips, other settings as in the preset. Chosen: {settings}.", "",
        *tables.tuning_table(tuned, first_round), "",
        f"Changes of the chosen settings, on the first {options.few} of these clips:", "",
        *tables.tuning_table([*retuned, *relabelled(tuned, tuning[: options.few])], [*refined, base]), "",
        *pairs_section("Pairs", rows, conditions, clips),
        *pairs_section("Other latents and full rate", rows, [base, *extra], some),
        "## Estimates", "",
        ESTIMATES_NOTE, "", *tables.estimates_table(found), "",
        *first_frame_section(clips, codes, linear, real),
        "## Speed and time stride", "", SPEED_NOTE.format(seeds=options.pans), "", *tables.speed_table(speeds), "",
        f"Measured means a median error of at most {100 * tables.MEASURABLE:.0f} %:", "", *tables.limits_of_speed(speeds), "",
        "## Channels", "", CHANNELS_NOTE, "",
    ]  # fmt: skip
    shares = {
        f"{stand_in} stand-in, {source} clips": channel_shares(
            [compress(code, stand_in, linear)[0] for clip, code in zip(clips, codes, strict=True) if clip.source == source]
        )
        for stand_in in STAND_INS
        if stand_in in ("every", "linear")
        for source in dict.fromkeys(clip.source for clip in clips)
    } | {name: channel_shares([latents]) for name, latents in real.items()}
    lines += [*tables.channels_table(shares), ""]
    judged = {name: judge_real(name, latents, real_conditions(CHOSEN)) for name, latents in real.items()}
    if judged:
        crops = ", ".join(f"{name} {len(crops_of(latents))} crops" for name, latents in real.items())
        lines += ["## Real latents", "", REAL_NOTE.format(crops=crops, visible=VISIBLE), "", *tables.real_table(judged), ""]
        lines += [*tables.real_kinds(judged, ("preset", "chosen", "chosen, frame 0 dropped")), ""]
    text = "\n".join([*lines, LIMITS])
    with atomic_file(options.report) as temporary:
        temporary.write_text(text, encoding="utf-8")
    with atomic_file(options.scores.with_suffix(".json")) as temporary:
        numbers = {"estimates": [asdict(row) for row in found], "speeds": [asdict(row) for row in speeds]}
        temporary.write_text(json.dumps(numbers, indent=2), encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
