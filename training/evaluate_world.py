"""Ask a model of the procedural world for what it never saw, and judge each clip beside a clean one of the same scene.

    python training/evaluate_world.py --model out/world/model --report docs/results/world_model.md
    python training/evaluate_world.py --report docs/results/world_judges.md     # the clean clips alone: are the judges right?

A third column holds the clean clips as the model's autoencoder gives them back: what of a fault is the autoencoder's.
Direction, jerk and residual come from `phys-pipeline evaluate`; sharpness is the power of fine detail, and the area of a single
shape on a plain ground is followed by training/tiny_tracker.py. Rows stay in --work, from which an interrupted run goes on.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that `training` and `phys_pipeline` are found

import numpy as np
import torch

from phys_pipeline.atomic import atomic_file
from phys_pipeline.errors import PhysPipelineError
from phys_pipeline.evaluation.evaluator import Evaluator
from phys_pipeline.evaluation.metric import Settings
from phys_pipeline.evaluation.rows import Row
from phys_pipeline.evaluation.sample import VideoSample
from phys_pipeline.evaluation.statistics import mean_bootstrap, wilson
from phys_pipeline.families import get_family
from training.evaluate_tiny import contact_sheet, generate
from training.tiny_tracker import track
from training.world.clips import WorldClip
from training.world.prompts import held_out_clips, labels_of

METRICS = ("direction_accuracy", "sim2_jerk", "sim2_residual", "active_share")
CLEAN, DECODED, MODEL = "clean", "autoencoder", "model"
FPS = 8.0
_FINE = 0.25  # cycles per pixel, half of the highest
_PLAIN = 0.03  # standard deviation of the top border in any colour


def fine_power(video: torch.Tensor) -> float:  # (3, T, H, W) in [0, 1]
    """Power above a quarter of a cycle per pixel, mean over frames: what blur takes away. Hann window, mean removed."""
    grey = video.mean(0)
    height, width = grey.shape[-2:]
    window = torch.hann_window(height, periodic=False)[:, None] * torch.hann_window(width, periodic=False)
    grey = (grey - grey.mean((1, 2), keepdim=True)) * window
    power = torch.fft.fft2(grey).abs().square() / window.square().sum()
    radius = torch.hypot(torch.fft.fftfreq(height)[:, None], torch.fft.fftfreq(width)[None])
    return float(power[:, radius >= _FINE].mean())


def has_plain_ground(clip: WorldClip) -> bool:
    """Whether the tracker's idea of the ground, one colour, fits the clean clip."""
    return clip.scene.kind == "shape" and not clip.scene.camera and float(clip.video[:, 0, :2].std((-2, -1)).max()) < _PLAIN


def area_drift(video: torch.Tensor, clip: WorldClip) -> float | None:
    """Change of the body's area that a trend doesn't explain, as a share; None where the tracker can't follow."""
    if not has_plain_ground(clip):
        return None
    seen = track(video, clip.scene.subject.split()[1])
    return None if seen is None else seen.area_spread


def sample_of(clip: WorldClip, number: int, video: torch.Tensor, column: str) -> VideoSample:
    frames = (video.permute(1, 2, 3, 0).clamp(0, 1) * 255).round().to(torch.uint8).numpy()
    return VideoSample(f"w{number:03d}", column, clip.caption, seed=number, frames=frames, fps=FPS, labels=labels_of(clip))


@torch.no_grad()
def encoded_and_decoded(vae: Any, video: torch.Tensor) -> torch.Tensor:  # (3, T, H, W) in [0, 1]
    """The clip as the autoencoder gives it back, of the same shape."""
    family = get_family("hunyuan_video")
    return family.decode_video(vae, family.encode_video(vae, video[None]))[0]


def stratum_of(clip: WorldClip) -> str:
    """What a row of the table gathers: the body's motion, the camera's, or an event."""
    if clip.scene.kind == "event":
        return "events"
    if clip.scene.camera:
        return f"camera: {clip.truth.motion}"
    return clip.truth.motion


def mean_line(name: str, columns: dict[str, list[float]], order: list[str]) -> str:
    cells = []
    for column in order:
        values = columns[column]
        low, high = mean_bootstrap(values) if values else (float("nan"), float("nan"))
        cells.append(f"{np.mean(values):.3f} ({low:.3f}-{high:.3f}), n {len(values)}" if values else "-")
    return f"| {name} | " + " | ".join(cells) + " |"


def report(clips: list[WorldClip], videos: dict[str, list[torch.Tensor]], rows: list[Row], command: str, about: str) -> str:
    """The Markdown page."""
    order = list(videos)
    lines = ["# Held-out prompts of the world", "", f"Made by `{command}`. {about}", ""]
    lines.append("The clean column holds procedural clips of the same scenes without flaws: what the judges give perfect motion.")
    if DECODED in order:
        lines.append("The autoencoder's holds them encoded and decoded: what of the model's faults is its autoencoder's.")
    lines.append("")
    lines += ["| Direction as asked | " + " | ".join(order) + " |", "|---|" + "---|" * len(order)]
    right: dict[tuple[str, str], list[float]] = defaultdict(list)
    values: dict[str, dict[str, list[float]]] = {key: {column: [] for column in order} for key in METRICS}
    for row in rows:
        if row.value is None:
            continue
        if row.metric == "direction_accuracy":
            clip = clips[int(row.id[1:])]
            for group in ("all", "simple" if clip.scene.simple else "complex", stratum_of(clip)):
                right[group, row.model].append(row.value)
        else:
            values[row.metric][row.model].append(row.value)
    groups = dict.fromkeys(["all", "simple", "complex", *sorted({group for group, _ in right})])
    for group in groups:
        cells = []
        for column in order:
            own = right[group, column]
            low, high = wilson(sum(own), len(own))
            cells.append(f"{sum(own):.0f} / {len(own)} ({100 * low:.0f}-{100 * high:.0f} %)" if own else "-")
        lines.append(f"| {group} | " + " | ".join(cells) + " |")
    lines += ["", "| Mean (95 %) | " + " | ".join(order) + " |", "|---|" + "---|" * len(order)]
    lines += [mean_line(key, values[key], order) for key in METRICS[1:]]
    fine = {column: [fine_power(video) for video in videos[column]] for column in order}
    drift = {
        column: [d for video, clip in zip(videos[column], clips, strict=True) if (d := area_drift(video, clip)) is not None]
        for column in order
    }
    sharpness = {column: [float(np.log(a / b)) for a, b in zip(fine[column], fine[CLEAN], strict=True)] for column in order}
    lines.append(mean_line("log of fine detail over the clean clip's", sharpness, order))
    lines.append(mean_line("area drift", drift, order))
    return "\n".join(lines) + "\n"


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="model folder; without one only the clean clips are judged")
    parser.add_argument("--prompts", type=int, default=128)
    parser.add_argument("--seed", type=int, default=0, help="of the prompts and the noise")
    parser.add_argument("--spread", type=float, default=1.0, help="of the clean clips' places and speeds")
    parser.add_argument("--work", type=Path, default=Path("out/world_evaluation"), help="measured rows")
    parser.add_argument("--report", type=Path, help="Markdown file to write")
    parser.add_argument("--sheet", type=Path, help="contact sheet of the first 24 clips (PNG)")
    options = parser.parse_args(arguments)
    try:
        clips = held_out_clips(options.prompts, options.seed, spread=options.spread)
        videos = {CLEAN: [clip.video for clip in clips]}
        about = f"{len(clips)} prompts, seed {options.seed}."
        if options.model is not None:
            from diffusers import HunyuanVideoPipeline

            pipe = HunyuanVideoPipeline.from_pretrained(options.model).to(torch.float32)
            pipe.set_progress_bar_config(disable=True)
            stored = json.loads((options.model / "phys_pipeline.json").read_text(encoding="utf-8"))
            seeds = [1000 * options.seed + number for number in range(len(clips))]
            videos[DECODED] = [encoded_and_decoded(pipe.vae, clip.video) for clip in clips]
            videos[MODEL] = generate(pipe, [clip.caption for clip in clips], seeds, stored["generation"])
            about += f" Model revision {stored['revision']}, {stored['provenance']['steps']} steps."
        samples = [
            sample_of(clip, number, video, column)
            for column, own in videos.items()
            for number, (clip, video) in enumerate(zip(clips, own, strict=True))
        ]
        rows = Evaluator(METRICS, Settings(flow="dis"), options.work).run(samples)
    except PhysPipelineError as error:
        print(f"evaluate_world: {error}", file=sys.stderr)
        return 2
    command = "python training/evaluate_world.py" + "".join(f" {word}" for word in (arguments or sys.argv[1:]))
    text = report(clips, videos, rows, command, about)
    print(text)
    if options.sheet:
        shown = videos[MODEL if MODEL in videos else CLEAN]
        with atomic_file(options.sheet) as path:
            contact_sheet(shown[:24], [clip.caption for clip in clips[:24]], columns=3).save(path)
    if options.report:
        with atomic_file(options.report) as path:
            path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
