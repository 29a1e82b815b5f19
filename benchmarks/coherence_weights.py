"""Where the weights of `coherence_weighted` go on the experiment's training clips, by tau and gate.

    python benchmarks/coherence_weights.py [--clips 1200] [--seed 0]

Writes docs/results/coherence_weights.md. Clips are weighed as in training: as the embedded model's autoencoder gives them back.
"""

from __future__ import annotations

import argparse
import copy
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that `benchmarks` and `training` are found

import numpy as np
import torch

from benchmarks.scores import ROOT
from phys_pipeline.atomic import atomic_file
from phys_pipeline.families import load_model
from phys_pipeline.spectral import SpectralConfig
from training.evaluate_world import encoded_and_decoded
from training.objectives.coherence_weighted import CoherenceWeights, calibration_samples
from training.objectives.term import motion_energy
from training.world.clips import world_clip
from training.world.folder import SPREAD

SETTINGS = ((0.2, 0.0), (0.1, 0.0), (0.05, 0.0), (0.02, 0.0), (0.05, 0.5), (0.02, 0.5), (0.02, 0.3))  # tau, gate
_RESAMPLES = 1000


@dataclass(frozen=True)
class Weighed:
    """Clips' mean weights (N,), whether each is flawed (N,), and its motion energy (N,)."""

    weight: np.ndarray
    flawed: np.ndarray
    energy: np.ndarray

    def drawn(self, places: np.ndarray) -> Weighed:
        return Weighed(self.weight[places], self.flawed[places], self.energy[places])

    @property
    def by_kind(self) -> tuple[float, float]:
        """Mean weight of unflawed and of flawed clips."""
        return float(self.weight[~self.flawed].mean()), float(self.weight[self.flawed].mean())

    @property
    def effective(self) -> float:
        """Share of the clips that, all weighing alike, would have these weights' spread (Kish): 1 where all weigh alike."""
        return float(self.weight.sum() ** 2 / (self.weight**2).sum() / len(self.weight))

    @property
    def motion(self) -> float:
        """Motion energy of the unflawed clips as weighed, over that of the same clips all alike: 1 favours no speed."""
        weight, energy = self.weight[~self.flawed], self.energy[~self.flawed]
        return float((weight * energy).sum() / weight.sum() / energy.mean())


def line(tau: float, gate: float, found: Weighed, rng: np.random.Generator) -> str:
    """A row of the table; intervals draw clips."""
    draws = [found.drawn(rng.integers(len(found.weight), size=len(found.weight))) for _ in range(_RESAMPLES)]
    clean, flawed = zip(*(one.by_kind for one in draws), strict=True)
    cells = [
        f"{tau}", f"{gate}", _text(found.by_kind[0], clean), _text(found.by_kind[1], flawed),
        _text(found.effective, [one.effective for one in draws]), f"{found.weight.max():.1f}", f"{found.weight.mean():.2f}",
        _text(found.motion, [one.motion for one in draws]),
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def _text(value: float, draws: Sequence[float]) -> str:
    low, high = np.percentile(draws, [2.5, 97.5])
    return f"{value:.2f} [{low:.2f}, {high:.2f}]"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clips", type=int, default=1200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--report", type=Path, default=ROOT / "docs" / "results" / "coherence_weights.md")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    clips = [world_clip(options.seed, index, spread=SPREAD) for index in range(options.clips)]
    vae = load_model("tiny").pipeline.vae
    videos = [encoded_and_decoded(vae, clip.video) for clip in clips]  # (3, T, H, W)
    first = CoherenceWeights(SpectralConfig.calibrated())  # scores each clip once; its copies share what it knows
    flawed = np.array([bool(clip.flaw) for clip in clips])
    energy = np.array([float(motion_energy(video[None])) for video in videos])
    lines, rng = [], np.random.default_rng(0)
    for tau, gate in SETTINGS:
        weights = copy.copy(first)
        weights.tau, weights.gate = tau, gate
        weights.calibrate((place, videos[place]) for place in calibration_samples(len(videos)))
        means = np.array([float(weights(video[None], [place]).mean()) for place, video in enumerate(videos)])
        lines.append(line(tau, gate, Weighed(means, flawed, energy), rng))
        print(lines[-1], flush=True)
    command = f"python benchmarks/coherence_weights.py --clips {options.clips} --seed {options.seed}"
    text = _PAGE.format(command=command, clips=len(clips), flawed=int(flawed.sum()), lines="\n".join(lines))
    with atomic_file(options.report) as path:
        path.write_text(text, encoding="utf-8")


_PAGE = """# Where the coherence weights go

Made by `{command}`: {clips} training clips of the experiment's world, {flawed} of them
flawed, weighed as `objective=coherence_weighted` does: as the embedded model's autoencoder gives them back, calibrated on 32
clips; mean over each clip's places. Intervals (95 %) draw clips. *Effective share*: so many of the clips, all weighing alike,
would give as noisy a mean (Kish). *Motion*: motion energy of the unflawed clips as weighed, over that of the same clips all
alike.

| tau | gate | unflawed clips' weight | flawed clips' weight | effective share | largest weight | mean weight | motion |
| --- | --- | --- | --- | --- | --- | --- | --- |
{lines}
"""

if __name__ == "__main__":
    main()
