"""What is in the training world: how many distinct clips, of which kinds, with which flaws, made how fast.

    python benchmarks/world.py [--clips 20480] [--seed 0]

Every clip is made once. Writes docs/results/world.md.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that `benchmarks` is found

import torch

from benchmarks.scores import ROOT
from phys_pipeline.atomic import atomic_file
from phys_pipeline.evaluation.statistics import wilson
from training.world.clips import world_clip
from training.world.scenes import all_pairs, held_out_pairs, is_held_out


def shares(title: str, counts: Counter[str], total: int) -> list[str]:
    lines = [f"| {title} | Clips | Share | 95 % |", "|---|---|---|---|"]
    for name, count in sorted(counts.items(), key=lambda item: -item[1]):
        low, high = wilson(count, total)
        lines.append(f"| {name} | {count} | {100 * count / total:.1f} % | {100 * low:.1f}-{100 * high:.1f} % |")
    return [*lines, ""]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clips", type=int, default=20480)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--report", type=Path, default=ROOT / "docs" / "results" / "world.md")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    flaws, motions, kinds = Counter[str](), Counter[str](), Counter[str]()
    digests, captions, forbidden = set(), set(), 0
    world_clip(options.seed, 0)  # loads the photographs
    began = time.process_time()
    for index in range(options.clips):
        clip = world_clip(options.seed, index)
        digests.add(hashlib.sha256((clip.video * 255).round().to(torch.uint8).numpy().tobytes()).digest())
        captions.add(clip.caption)
        flaws[clip.flaw or "none"] += 1
        motions[f"{clip.truth.motion}{', moving camera' if clip.scene.camera else ''}"] += 1
        kinds[clip.scene.kind if clip.scene.kind != "event" else f"event: {clip.scene.motions[0]}"] += 1
        forbidden += is_held_out(clip.scene)
    seconds = time.process_time() - began
    command = f"python benchmarks/world.py --clips {options.clips} --seed {options.seed}"
    text = ["# The training world, measured", "", f"Made by `{command}`."]
    text += [f"{options.clips} clips of 16 frames of 64x64: {len(digests)} distinct (8 bits), {len(captions)} captions."]
    text += [f"{options.clips / seconds:.0f} clips per second of processor time on one thread, hashing included. Held out:"]
    text += [
        f"{len(held_out_pairs())} of {len(all_pairs())} pairs of subject and motion, of which {forbidden} clips show one.",
        "",
    ]
    for title, counts in (("Flaw", flaws), ("Motion", motions), ("Kind", kinds)):
        text += shares(title, counts, options.clips)
    with atomic_file(options.report) as path:
        path.write_text("\n".join(text), encoding="utf-8")
    print("\n".join(text))


if __name__ == "__main__":
    main()
