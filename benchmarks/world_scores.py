"""The calibrated loss of the world's clips: its value by flaw, and how often a flawed clip scores above an unflawed one.

    python benchmarks/world_scores.py [--clips 1000] [--seed 0]

Writes docs/results/world_scores.md.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that `benchmarks` is found

import numpy as np
import torch

from benchmarks.scores import ROOT
from phys_pipeline.atomic import atomic_file
from phys_pipeline.spectral import SpectralConfig, SpectralMotionLoss
from training.world.clips import world_clip
from training.world.folder import SPREAD

_RESAMPLES = 1000


def share_above(flawed: np.ndarray, clean: np.ndarray) -> float:
    """Share of (flawed, clean) pairs in which the flawed clip has the higher loss; ties count half."""
    return float((flawed[:, None] > clean).mean() + 0.5 * (flawed[:, None] == clean).mean())


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clips", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--report", type=Path, default=ROOT / "docs" / "results" / "world_scores.md")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    loss = SpectralMotionLoss(SpectralConfig.calibrated())
    found: dict[str, list[float]] = defaultdict(list)
    for index in range(options.clips):
        clip = world_clip(options.seed, index, spread=SPREAD)
        if clip.truth.motion != "static":
            found[clip.flaw or "none"].append(float(loss(clip.video[None]).loss))
    values = {flaw: np.array(own) for flaw, own in found.items()}
    clean, rng = values.pop("none"), np.random.default_rng(0)
    command = f"python benchmarks/world_scores.py --clips {options.clips} --seed {options.seed}"
    lines = ["# The calibrated loss on the world's clips", "", f"Made by `{command}`.", ""]
    lines += [
        "Clips of the flawed world with spread 0.25, without those in which nothing moves. Intervals draw clips (95 %).",
        "",
    ]
    lines += [
        "| Flaw | Clips | Loss: 5 % | Median | 95 % | Above an unflawed clip | 95 % interval |",
        "|---|---|---|---|---|---|---|",
    ]
    for flaw, own in [("none", clean), *sorted(values.items(), key=lambda item: np.median(item[1]))]:
        low, middle, high = np.percentile(own, [5, 50, 95])
        cells = f"| {flaw} | {len(own)} | {low:.2f} | {middle:.2f} | {high:.2f} |"
        if flaw == "none":
            lines.append(f"{cells} | |")
            continue
        drawn = [share_above(rng.choice(own, len(own)), rng.choice(clean, len(clean))) for _ in range(_RESAMPLES)]
        least, most = 100 * np.percentile(drawn, [2.5, 97.5])
        lines.append(f"{cells} {100 * share_above(own, clean):.1f} % | {least:.1f}-{most:.1f} % |")
    text = "\n".join(lines) + "\n"
    print(text)
    with atomic_file(options.report) as path:
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
