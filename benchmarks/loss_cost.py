"""What the motion loss costs: forward and backward beside a plain FFT, the literal loss and other losses, in one run.

    python benchmarks/loss_cost.py [--repeats 7] [--sizes 16x64x64 ...]
    python benchmarks/loss_cost.py --device cuda        the same on a GPU; prints only
    python benchmarks/loss_cost.py --profile SIZE       where our own time goes, by kind of operation; prints only

float32, two threads, batch of one. (a) the calibrated preset; (b) the paper preset by full FFTs (benchmarks/reference_loss.py);
(c) one torch.fft.fftn and its inverse, no gradient; (d) focal_frequency_loss against a shifted copy; (e) a warping loss on DIS
flow (flow without gradient). The methods run in turn in one process, after a warm-up, and medians are compared; memory is the
largest resident set of a fresh process beyond what it held with the clip made. Prints a table and writes
docs/results/loss_cost.md and out/benchmarks/loss_cost.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

import cv2
import numpy as np
import torch
from focal_frequency_loss import FocalFrequencyLoss
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that `benchmarks` is found

from benchmarks.reference_loss import reference_loss
from benchmarks.timing import median_interval
from phys_pipeline.atomic import atomic_file
from phys_pipeline.spectral import SpectralConfig, SpectralMotionLoss

ROOT = Path(__file__).resolve().parents[1]
SIZES = {  # name: (channels, frames, height, width)
    "16x64x64": (3, 16, 64, 64),
    "16x256x256": (3, 16, 256, 256),
    "49x480x832": (3, 49, 480, 832),
    "16x33x90x160 (latents)": (16, 33, 90, 160),
}
METHODS = {
    "ours": "(a) ours, calibrated",
    "ours without limit": "(a') the same, every kept frequency (`largest_frequency=0`)",
    "paper": "(a'') ours, paper preset",
    "literal": "(b) paper preset by full FFTs",
    "fft": "(c) fftn + inverse",
    "focal": "(d) focal_frequency_loss",
    "warping": "(e) DIS-flow warping loss",
}
TARGET = "49x480x832"
THREADS = 2


def make_clip(size: tuple[int, int, int, int]) -> Tensor:
    """A textured clip that pans and turns a little, (1, C, T, H, W): shifted smooth noise, so that flow has something to do."""
    channels, frames, height, width = size
    noise = torch.randn(1, channels, height // 4 + frames, width // 4 + frames, generator=torch.Generator().manual_seed(0))
    pictures = [
        torch.nn.functional.interpolate(noise[..., t // 4 : t // 4 + height // 4 + 2, t // 2 : t // 2 + width // 4 + 2],
                                        size=(height, width), mode="bicubic")
        for t in range(frames)
    ]  # fmt: skip
    return (0.5 + 0.15 * torch.stack(pictures, dim=2)).clamp(0, 1)


def warping_loss(video: Tensor) -> Tensor:
    """Mean absolute difference of each frame to its successor pulled back along DIS flow."""
    # video: (1, 3, T, H, W)
    grey = (255 * video.detach()[0].mean(dim=0)).byte().cpu().numpy()
    engine = cv2.DISOpticalFlow.create(cv2.DISOPTICAL_FLOW_PRESET_MEDIUM)
    flow = torch.from_numpy(np.stack([engine.calc(a, b, None) for a, b in pairwise(grey)])).to(video.device)  # (T-1, H, W, 2)
    height, width = video.shape[3:]
    y, x = torch.meshgrid(*(torch.arange(side, device=video.device) for side in (height, width)), indexing="ij")
    place = (torch.stack([x, y], dim=-1) + flow + 0.5) * 2 / torch.tensor([width, height], device=video.device) - 1
    frames = video[0].transpose(0, 1)  # (T, 3, H, W)
    pulled = torch.nn.functional.grid_sample(frames[1:], place, padding_mode="border", align_corners=False)
    return (pulled - frames[:-1]).abs().mean()


def make_method(name: str, video: Tensor) -> Callable[[], object] | None:
    """One forward and backward pass (for (c) one transform and back), or None where the method does not apply."""
    calibrated = SpectralMotionLoss(SpectralConfig.calibrated())
    unlimited = SpectralMotionLoss(SpectralConfig.calibrated(largest_frequency=0.0))
    paper = SpectralMotionLoss(SpectralConfig.paper())
    focal = FocalFrequencyLoss()
    target = video.roll(1, dims=-1)
    losses: dict[str, Callable[[Tensor], Tensor]] = {
        "ours": lambda clip: calibrated(clip).loss,
        "ours without limit": lambda clip: unlimited(clip).loss,
        "paper": lambda clip: paper(clip).loss,
        "literal": reference_loss,
        "focal": lambda clip: focal(clip[0].transpose(0, 1), target[0].transpose(0, 1)),
        "warping": warping_loss,
    }
    if name == "fft":
        return lambda: torch.fft.ifftn(torch.fft.fftn(video, dim=(2, 3, 4)), dim=(2, 3, 4))
    if name == "warping" and video.shape[1] != 3:
        return None

    def step() -> None:
        clip = video.detach().requires_grad_(True)
        losses[name](clip).backward()

    return step


def peak_memory(size: str, name: str) -> float:
    """Megabytes of the largest resident set beyond the clip and the program, in a fresh process."""
    command = [sys.executable, str(Path(__file__).resolve()), "--child", size, name]
    answer = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
    return float(answer.stdout)


def child(size: str, name: str) -> None:
    """Run one method once and print the growth of the largest resident set in MB."""
    method = make_method(name, make_clip(SIZES[size]))
    if method is None:
        raise SystemExit(f"{name} does not apply to {size}")
    small = make_method(name, make_clip((SIZES[size][0], 4, 32, 32)))
    if small is not None:
        small()  # loads what the first call loads
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # forget the largest resident set so far
    method()
    print(max(0.0, resident("VmHWM") - before))


def resident(field: str) -> float:
    """Resident set (``VmRSS``) or the largest since it was reset (``VmHWM``), in MB; Linux only."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith(field))


@dataclass(frozen=True)
class Cost:
    """Seconds of each repeat and the growth of the largest resident set in MB."""

    seconds: list[float]
    megabytes: float

    @property
    def median(self) -> float:
        return median_interval(self.seconds)[0]


def wait(device: str) -> None:
    """Until the device has done what it was given."""
    if device != "cpu":
        torch.accelerator.synchronize()


def measure(size: str, repeats: int, device: str = "cpu") -> dict[str, Cost]:
    """Cost of every method that applies, the methods in turn; on a GPU memory is what torch allocated at most."""
    video = make_clip(SIZES[size]).to(device)
    methods = {name: make_method(name, video) for name in METHODS}
    present = {name: method for name, method in methods.items() if method is not None}
    seconds: dict[str, list[float]] = {name: [] for name in present}
    for turn in range(repeats + 1):
        for name, method in present.items():
            wait(device)
            began = time.perf_counter()
            method()
            wait(device)
            if turn:
                seconds[name].append(time.perf_counter() - began)
        print(f"{size}: {turn}/{repeats}", file=sys.stderr, flush=True)
    if device == "cpu":
        return {name: Cost(seconds[name], peak_memory(size, name)) for name in present}
    return {name: Cost(seconds[name], allocated(method)) for name, method in present.items()}


def allocated(method: Callable[[], object]) -> float:
    """Megabytes that one call allocates at most on the GPU, beyond what was held; NaN where torch does not count."""
    if not torch.cuda.is_available():
        return float("nan")
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    method()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / 1e6


def profile(size: str, repeats: int = 5) -> str:
    """Share of each kind of operation in our own forward and backward pass, the largest twelve."""
    method = make_method("ours", make_clip(SIZES[size]))
    assert method is not None
    method()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as record:
        for _ in range(repeats):
            method()
    times = sorted(((event.self_cpu_time_total, event.key, event.count) for event in record.key_averages()), reverse=True)
    total = sum(time for time, _, _ in times)
    lines = [
        f"{total / repeats / 1e3:.0f} ms a pass, profiling included",
        "| operation | share, % | calls a pass |",
        "|---|---|---|",
    ]
    return "\n".join(lines + [f"| {name} | {100 * time / total:.1f} | {count / repeats:g} |" for time, name, count in times[:12]])


def report(results: dict[str, dict[str, Cost]], repeats: int) -> str:
    """The Markdown page."""
    lines = [
        "# Cost of the motion loss", "",
        f"Made by `python benchmarks/loss_cost.py`: forward and backward, float32, batch of one, {THREADS} threads "
        f"({platform.machine()}, torch {torch.__version__}); {repeats} repeats in turn in one process after one that is not "
        "counted; medians with 95 % bootstrap intervals of the time, ratios of medians. Memory: growth of the largest resident "
        "set in a fresh process, gradient included, the clip itself not.",
    ]  # fmt: skip
    for size, methods in results.items():
        lines += ["", f"## {size}", "", "| method | ms | x (c) | x (b) | MB | x (b) |", "|---|---|---|---|---|---|"]
        fft, literal = methods["fft"], methods["literal"]
        for name, cost in methods.items():
            middle, low, high = (1e3 * value for value in median_interval(cost.seconds))
            lines.append(
                f"| {METHODS[name]} | {middle:.1f} [{low:.1f}, {high:.1f}] | {cost.median / fft.median:.2f} | "
                f"{cost.median / literal.median:.2f} | {cost.megabytes:.0f} | {cost.megabytes / literal.megabytes:.2f} |"
            )
    if TARGET in results:
        ours, fft, literal = (results[TARGET][name] for name in ("ours", "fft", "literal"))
        ratios = (ours.median / fft.median, ours.median / literal.median, ours.megabytes / literal.megabytes)
        met = all(ratio <= limit for ratio, limit in zip(ratios, (1.0, 0.25, 0.35), strict=True))
        lines += [
            "", f"Required at {TARGET}: time at most 1.0 x (c) and 0.25 x (b), memory at most 0.35 x (b); measured "
            f"{ratios[0]:.2f}, {ratios[1]:.2f}, {ratios[2]:.2f}. {'Met.' if met else 'Not met.'}",
        ]  # fmt: skip
    latents = "16x33x90x160 (latents)"
    if latents in results:
        middle = 1e3 * results[latents]["ours"].median
        lines += ["", f"Required for latents: under 150 ms; measured {middle:.0f} ms. {'Met.' if middle < 150 else 'Not met.'}"]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--device", default="cpu", help="cpu, cuda or mps")
    parser.add_argument("--profile", choices=SIZES, help="where our own time goes at this size")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(THREADS)
    cv2.setNumThreads(THREADS)
    if options.child:
        child(*options.child)
        return
    if options.profile:
        print(profile(options.profile))
        return
    results = {size: measure(size, options.repeats, options.device) for size in options.sizes}
    text = report(results, options.repeats)
    print(text)
    print(f"{os.cpu_count()} cores", file=sys.stderr)
    if options.device != "cpu":
        return
    if list(results) == list(SIZES):
        with atomic_file(ROOT / "docs" / "results" / "loss_cost.md") as temporary:
            temporary.write_text(text, encoding="utf-8")
    content = {size: {name: asdict(cost) for name, cost in methods.items()} for size, methods in results.items()}
    with atomic_file(ROOT / "out" / "benchmarks" / "loss_cost.json") as temporary:
        temporary.write_text(json.dumps(content, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
