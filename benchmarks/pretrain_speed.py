"""What does a training step of the tiny model cost on one thread, and what makes it cheaper?

    python benchmarks/pretrain_speed.py [--rounds 5]

Each variant in turn in every round, so that what else the machine does hits all; processor time of the one thread, and the ratio
to the plain step of the same round. Latents are random: times don't depend on them. Writes docs/results/pretrain_speed.md.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that `benchmarks` is found

import torch

from benchmarks.scores import ROOT
from benchmarks.timing import median_interval
from phys_pipeline.atomic import atomic_file
from phys_pipeline.models.frame_autoencoder import FrameAutoencoder
from phys_pipeline.noise_path import RectifiedFlow
from training.pretrain_tiny import draw_sigma, shard_loss
from training.tiny_data import Batch
from training.tiny_model import SHIFT, SIZES, TinyModel
from training.world.clips import world_clip

CAPTION = "a red square moves right, the camera pans left"


def random_batch(size: int, side: int = 8, frames: int = 16) -> Batch:
    generator = torch.Generator().manual_seed(0)
    latents, noise = (torch.randn(size, 16, frames, side, side, generator=generator) for _ in range(2))
    return Batch(latents, [CAPTION] * size, noise, torch.full((size,), 3000.0), generator)


def train_step(model: TinyModel, batch: Batch, *, bf16: bool = False, fused: bool = True) -> Callable[[], None]:
    """A closure that does one whole step: loss, gradients, clipping, optimiser."""
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-6, fused=fused, foreach=False if not fused else None)

    def step() -> None:
        loss = shard_loss(model, batch, draw_sigma(batch, SHIFT), slice(0, len(batch.captions)), bf16=bf16)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad()

    return step


def without_text(model: TinyModel, batch: Batch) -> Callable[[], None]:
    """The step with the text encoders' outputs computed beforehand: what caching them would save, were they frozen."""
    optimiser, path = torch.optim.AdamW(model.transformer.parameters(), lr=1e-6, fused=True), RectifiedFlow()
    with torch.no_grad():
        condition = model.condition(batch.captions)

    def step() -> None:
        sigma = draw_sigma(batch, SHIFT)
        velocity = model.transformer(  # type: ignore[operator]
            hidden_states=path.corrupt(batch.latents, batch.noise, sigma), timestep=path.timestep(sigma), guidance=batch.guidance,
            return_dict=False, **condition,
        )[0]  # fmt: skip
        (velocity - path.target(batch.latents, batch.noise, sigma)).square().mean().backward()
        torch.nn.utils.clip_grad_norm_(model.transformer.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad()

    return step


def forward_only(model: TinyModel, batch: Batch) -> Callable[[], None]:
    def step() -> None:
        with torch.no_grad():
            shard_loss(model, batch, draw_sigma(batch, SHIFT), slice(0, len(batch.captions)))

    return step


def encoding(channels_last: bool) -> Callable[[], None]:
    """The frames of 8 clips through the encoder."""
    model, video = FrameAutoencoder().eval(), torch.rand(8, 3, 16, 64, 64)
    if channels_last:
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def step() -> None:
        with torch.no_grad():
            model.encode(video)

    return step


def making() -> Callable[[], None]:
    """Eight flawed clips of the world."""
    begin = iter(range(0, 10**6, 8))

    def step() -> None:
        first = next(begin)
        for index in range(first, first + 8):
            world_clip(0, index)

    return step


VARIANTS: dict[str, tuple[int, Callable[[], Callable[[], None]]]] = {  # name -> (clips, what to time)
    "step, batch 8": (8, lambda: train_step(TinyModel(SIZES["tiny"], 16), random_batch(8))),
    "forward alone": (8, lambda: forward_only(TinyModel(SIZES["tiny"], 16), random_batch(8))),
    "text encoded beforehand": (8, lambda: without_text(TinyModel(SIZES["tiny"], 16), random_batch(8))),
    "AdamW not fused": (8, lambda: train_step(TinyModel(SIZES["tiny"], 16), random_batch(8), fused=False)),
    "bfloat16 autocast": (8, lambda: train_step(TinyModel(SIZES["tiny"], 16), random_batch(8), bf16=True)),
    "batch 4": (4, lambda: train_step(TinyModel(SIZES["tiny"], 16), random_batch(4))),
    "batch 16": (16, lambda: train_step(TinyModel(SIZES["tiny"], 16), random_batch(16))),
    "8 frames (half the tokens)": (8, lambda: train_step(TinyModel(SIZES["tiny"], 16), random_batch(8, frames=8))),
    "latents of 4x4 pixels (4 times the tokens), batch 2": (
        2, lambda: train_step(TinyModel(SIZES["tiny"], 16), random_batch(2, side=16)),
    ),
    "small model (6 heads)": (8, lambda: train_step(TinyModel(SIZES["small"], 16), random_batch(8))),
    "encode 8 clips": (8, lambda: encoding(False)),
    "encode 8 clips, channels_last": (8, lambda: encoding(True)),
    "make 8 clips of the world": (8, making),
}  # fmt: skip


def report(times: dict[str, list[float]]) -> str:
    lines = ["# The tiny model's training step, measured", "", "Made by `python benchmarks/pretrain_speed.py`. One thread, "]
    lines[-1] += f"{len(next(iter(times.values())))} rounds, processor time; medians with 95 % bootstrap intervals over rounds."
    lines += ["", "| What | ms per clip | 95 % | Ratio to a step of 8 | 95 % |", "|---|---|---|---|---|"]
    plain = [value / 8 for value in times["step, batch 8"]]
    for name, values in times.items():
        clips = VARIANTS[name][0]
        each = [value / clips for value in values]
        middle, low, high = (1000 * value for value in median_interval(each))
        ratio = median_interval([value / base for value, base in zip(each, plain, strict=True)])
        lines.append(f"| {name} | {middle:.1f} | {low:.1f}-{high:.1f} | {ratio[0]:.2f} | {ratio[1]:.2f}-{ratio[2]:.2f} |")
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--report", type=Path, default=ROOT / "docs" / "results" / "pretrain_speed.md")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    prepared: dict[str, Any] = {name: make() for name, (_, make) in VARIANTS.items()}
    for step in prepared.values():
        step()
    times: dict[str, list[float]] = {name: [] for name in prepared}
    for _ in range(options.rounds):
        for name, step in prepared.items():
            began = time.process_time()
            step()
            times[name].append(time.process_time() - began)
    notes = options.report.read_text(encoding="utf-8").partition("\n## Notes") if options.report.exists() else ("", "", "")
    with atomic_file(options.report) as path:
        path.write_text(report(times) + notes[1] + notes[2], encoding="utf-8")
    print(report(times))


if __name__ == "__main__":
    main()
