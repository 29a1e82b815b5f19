"""What the training loop adds to a bare loop, and what the motion loss adds to a step.

    python benchmarks/training_overhead.py [--repeats 40]

The embedded model on cached latents of the sample clips (training/configs/tiny.yaml, motion_space=latent), on the CPU in
float32 with one thread. In one process, in turn: (a) a bare loop: noise, forward, mean squared error, backward, AdamW, on
tensors in memory; (b) the trainer without motion loss, with its reading of the cache, seeded noise, gradient clipping and
log; (c) the trainer with the motion loss on every sample; (d) with it below sigma_max=0.7. Then the loss alone, forward and
backward, at the latents of a HunyuanVideo clip of 129 frames of 720x1280, beside the transformer's floating-point operations
by formula. Ratios with 95 % bootstrap intervals. Writes docs/results/training_overhead.md and
out/benchmarks/training_overhead.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that `benchmarks` and `training` are found

from benchmarks.timing import median_interval
from phys_pipeline.atomic import atomic_file
from phys_pipeline.families import find_family
from phys_pipeline.spectral import SpectralConfig, SpectralMotionLoss
from training.config import load_config
from training.filling import prepare_dataset
from training.launch import start_accelerator
from training.loop import Trainer
from training.objective import spectral_config
from training.tracking import RunLog
from training.weights import attach

ROOT = Path(__file__).resolve().parents[1]
WARM_UP = 3
LATENTS = (16, 33, 90, 160)  # of 129 frames of 720x1280
WIDTH, BLOCKS, TEXT = 3072, 60, 256  # HunyuanVideo: 20 double and 40 single blocks
NAMES = {
    "bare": "(a) bare loop",
    "plain": "(b) trainer, motion_weight=0",
    "every": "(c) trainer, motion loss on every sample (sigma_max=1)",
    "usual": "(d) trainer, motion loss below sigma_max=0.7",
}
CHANGES = {
    "plain": ["motion_weight=0"],
    "every": ["motion_space=latent", "sigma_max=1"],
    "usual": ["motion_space=latent", "sigma_max=0.7"],
}


def make_steps(folder: str, form: str) -> dict[str, Callable[[int], object]]:
    """The four loops as functions of the step, each with a model of its own."""
    common = [f"cache_dir={folder}/cache", f"data={ROOT / 'samples' / 'clips'}", "gradient_ratio_every=0", f"motion_form={form}"]
    tiny = ROOT / "training" / "configs" / "tiny.yaml"
    config = load_config(tiny, common)
    accelerator, family = start_accelerator(config), find_family(config.model, config.family)
    dataset, vae = prepare_dataset(config, family, device=accelerator.device)
    steps: dict[str, Callable[[int], object]] = {}
    for name, changes in CHANGES.items():
        own = load_config(tiny, [*common, *changes, f"output_dir={folder}/{name}"])
        trainer = Trainer(own, accelerator, find_family(own.model, own.family), dataset, vae, spectral_config(own))
        records = RunLog(own.output_dir, start_step=0, max_steps=own.max_train_steps, show_bar=False)
        steps[name] = lambda step, trainer=trainer, records=records: records.write(step + 1, trainer.step(step))

    model = family.load("transformer", config.model)
    parameters = attach(model, config, family)
    model.train()
    optimizer = torch.optim.AdamW(parameters, lr=config.learning_rate, weight_decay=config.weight_decay)
    batch = config.train_batch_size
    clean = torch.stack([dataset.clean(i) for i in range(len(dataset))])  # (N, C, T, H, W)
    rows = [dataset.conditioning(i) for i in range(len(dataset))]

    def bare(step: int) -> None:
        places = [(step * batch + i) % len(clean) for i in range(batch)]
        x0, sigma = clean[places], torch.rand(batch)
        noise = torch.randn_like(x0)
        s = sigma.view(-1, 1, 1, 1, 1)
        text = {name: torch.stack([rows[i][name] for i in places]) for name in rows[0]}
        velocity = model(**family.inputs((1 - s) * x0 + s * noise, sigma, text))[0]
        F.mse_loss(velocity, noise - x0).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return {"bare": bare, **steps}


def measure(repeats: int, form: str) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Seconds of each step of each loop, the loops in turn; then the same in CPU time."""
    with tempfile.TemporaryDirectory() as folder:
        steps = make_steps(folder, form)
        seconds: dict[str, list[float]] = {name: [] for name in steps}
        busy: dict[str, list[float]] = {name: [] for name in steps}
        for turn in range(repeats + WARM_UP):
            for name, step in steps.items():
                began, idle = time.perf_counter(), time.process_time()
                step(turn)
                if turn >= WARM_UP:
                    seconds[name].append(time.perf_counter() - began)
                    busy[name].append(time.process_time() - idle)
    return seconds, busy


def loss_seconds(repeats: int) -> list[float]:
    """Forward and backward of the loss on latents of a real HunyuanVideo clip."""
    loss = SpectralMotionLoss(SpectralConfig.calibrated())
    generator = torch.Generator().manual_seed(0)
    latents = torch.randn(1, *LATENTS, generator=generator)
    reference = torch.randn(1, *LATENTS, generator=generator)
    seconds = []
    for turn in range(repeats + 1):
        began = time.perf_counter()
        clip = latents.clone().requires_grad_(True)
        loss(clip, reference=reference).loss.backward()
        if turn:
            seconds.append(time.perf_counter() - began)
    return seconds


def transformer_operations() -> tuple[float, float]:
    """Floating-point operations of one forward pass of HunyuanVideo: in linear layers, in attention.

    24 d^2 for each token and block (12 d^2 weights: query, key, value, output 4, feed-forward 8), 4 N^2 d for each block.
    """
    _, frames, height, width = LATENTS
    tokens = frames * (height // 2) * (width // 2) + TEXT
    return 24.0 * WIDTH**2 * tokens * BLOCKS, 4.0 * tokens**2 * WIDTH * BLOCKS


def report(seconds: dict[str, list[float]], busy: dict[str, list[float]], loss: list[float], form: str) -> str:
    """The Markdown page."""
    n = len(seconds["bare"])
    lines = [
        "# What training costs beside a bare loop", "",
        f"Made by `python benchmarks/training_overhead.py --repeats {n} --form {form}`: the embedded model (batch of 2, 16 "
        "frames of 64x64, motion loss on latents), float32, one thread "
        f"({platform.machine()}, torch {torch.__version__}); the loops in turn in one process, {n} steps each after "
        f"{WARM_UP} that are not counted; medians, the median of paired ratios for the loop and ratios of total times "
        "for the loss, with 95 % bootstrap intervals.",
        "", "| loop | ms a step |", "|---|---|",
    ]  # fmt: skip
    for name, label in NAMES.items():
        middle, low, high = (1e3 * value for value in median_interval(seconds[name]))
        lines.append(f"| {label} | {middle:.1f} [{low:.1f}, {high:.1f}] |")
    speed = ratio(seconds["bare"], seconds["plain"])
    lines += [
        "", "| ratio | measured | wanted | |", "|---|---|---|---|",
        f"| steps per second, trainer without motion loss / bare loop, (a) / (b) | {shown(speed)} | at least 0.95 | "
        f"{verdict(speed[0] >= 0.95)} |",
        f"| the same in CPU time | {shown(ratio(busy['bare'], busy['plain']))} | | |",
    ]  # fmt: skip
    for name, text in (("every", "motion loss on every sample, (c) / (b)"), ("usual", "motion loss below sigma_max, (d) / (b)")):
        cost, work = ratio_of_totals(seconds[name], seconds["plain"]), ratio_of_totals(busy[name], busy["plain"])
        lines.append(f"| time of a step, {text} | {shown(cost)} | at most 1.05 | {verdict(cost[0] <= 1.05)} |")
        lines.append(f"| the same in CPU time | {shown(work)} | | |")
    linear, attention = transformer_operations()
    step = 2 * (linear + attention)
    middle, low, high = (1e3 * value for value in median_interval(loss))
    tokens = LATENTS[1] * LATENTS[2] * LATENTS[3] // 4 + TEXT
    lines += [
        "", "The bare loop reads no file, clips no gradient, logs nothing and draws its noise from the global generator; its "
        "AdamW is torch's default, the trainer's is fused. CPU time leaves out what other work on the machine takes.",
        "", "## At HunyuanVideo's size", "",
        f"Latents {'x'.join(map(str, LATENTS))} (129 frames of 720x1280), batch of one. The loss of a noise tensor with a clean "
        f"reference, forward and backward, on one CPU thread: {middle:.0f} ms [{low:.0f}, {high:.0f}] (n = {len(loss)}). The "
        f"transformer's forward pass by formula: {linear / 1e15:.2f} PFLOP in linear layers (24 d^2 N L) and "
        f"{attention / 1e15:.2f} in attention (4 N^2 d L), with d = {WIDTH}, L = {BLOCKS} blocks and N = {tokens:,} tokens; a "
        f"LoRA step is at least twice that (no gradients of frozen weights), {step / 1e15:.0f} PFLOP, three times with gradient "
        f"checkpointing. A device that sustains 400 TFLOP/s needs {step / 4e14:.0f} s for twice: were the loss left on one CPU "
        f"thread, it would add {100 * middle / 1e3 / (step / 4e14):.1f} %. The transformer was not run at this size.",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def ratio(above: list[float], below: list[float]) -> tuple[float, float, float]:
    """Median of paired ratios and its interval."""
    return median_interval([a / b for a, b in zip(above, below, strict=True)])


def ratio_of_totals(above: list[float], below: list[float]) -> tuple[float, float, float]:
    """Ratio of the summed times and its 95 % interval (2,000 paired resamples): only some steps of (d) carry the motion loss."""
    pairs, rng = np.array([above, below]), np.random.default_rng(0)
    drawn = [pairs[:, rng.integers(len(above), size=len(above))].sum(axis=1) for _ in range(2000)]
    low, high = np.percentile([a / b for a, b in drawn], [2.5, 97.5])
    return float(pairs[0].sum() / pairs[1].sum()), float(low), float(high)


def shown(value: tuple[float, float, float]) -> str:
    return f"{value[0]:.3f} [{value[1]:.3f}, {value[2]:.3f}]"


def verdict(met: bool) -> str:
    return "met" if met else "not met"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=40)
    parser.add_argument("--form", default="excess", help="motion_form of (c) and (d)")
    options = parser.parse_args()
    os.environ["ACCELERATE_USE_CPU"] = "true"
    torch.set_num_threads(1)
    (seconds, busy), loss = measure(options.repeats, options.form), loss_seconds(5)
    text = report(seconds, busy, loss, options.form)
    print(text)
    for file, content in (
        (ROOT / "docs" / "results" / "training_overhead.md", text),
        (ROOT / "out" / "benchmarks" / "training_overhead.json", json.dumps({**seconds, "cpu": busy, "loss": loss})),
    ):
        with atomic_file(file) as temporary:
            temporary.write_text(content, encoding="utf-8")


if __name__ == "__main__":
    main()
