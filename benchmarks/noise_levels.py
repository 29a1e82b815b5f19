"""Velocity error of tiny models at single noise levels, same clips and noise for each: where a model was not taught.

    python benchmarks/noise_levels.py MODEL... [--clips 32] [--seed 0] [--report FILE]

MODEL are diffusers folders, such as exports of training/pretrain_tiny.py. Clips are unflawed ones that training never reaches.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that `benchmarks` is found

import torch
from torch import Tensor

from phys_pipeline.atomic import atomic_file
from phys_pipeline.evaluation.statistics import mean_bootstrap
from phys_pipeline.families import load_model
from training.world.clips import world_clip
from training.world.folder import SPREAD

LEVELS = (0.1, 0.2, 0.3, 0.5, 0.7, 0.85, 0.95, 0.98)
_FIRST = 3_000_000


@torch.no_grad()
def errors(model: str, clips: int, seed: int) -> tuple[str, Tensor]:  # (levels, clips)
    """The model's steps, as its description tells, and the mean squared velocity error of every level and clip."""
    loaded = load_model(model)
    family, pipeline, found = loaded.family, loaded.pipeline, []
    for number in range(clips):
        clip = world_clip(seed, _FIRST + number, flawed=False, spread=SPREAD)
        latents = family.encode_video(pipeline.vae, clip.video[None])
        noise = torch.randn(latents.shape, generator=torch.Generator().manual_seed(number))
        text, own = family.encode_text(pipeline, [clip.caption], loaded.defaults), []
        for level in LEVELS:
            sigma = torch.tensor([level])
            raw = pipeline.transformer(**family.inputs(family.path.corrupt(latents, noise, sigma), sigma, text))
            own.append((family.prediction(raw, latents) - family.path.target(latents, noise, sigma)).square().mean())
        found.append(torch.stack(own))
    return str(loaded.revision), torch.stack(found, 1)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="MODEL")
    parser.add_argument("--clips", type=int, default=32)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--report", type=Path)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    names = " ".join(Path(model).name for model in options.models)
    command = f"python benchmarks/noise_levels.py {names} --clips {options.clips} --seed {options.seed}"
    lines = ["# Velocity error by noise level", "", f"Made by `{command}`. Intervals draw clips (95 %).", ""]
    lines += ["| Model | Revision | " + " | ".join(f"{level:g}" for level in LEVELS) + " |", "|---|---|" + "---|" * len(LEVELS)]
    for model in options.models:
        revision, values = errors(model, options.clips, options.seed)
        cells = []
        for own in values:
            low, high = mean_bootstrap(own.tolist())
            cells.append(f"{own.mean():.3f} ({low:.3f}-{high:.3f})")
        lines.append(f"| {Path(model).name} | {revision} | " + " | ".join(cells) + " |")
    text = "\n".join(lines) + "\n"
    print(text)
    if options.report:
        with atomic_file(options.report) as path:
            path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
