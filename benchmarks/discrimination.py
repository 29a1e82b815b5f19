"""Does the loss prefer a clip to its corrupted copy? Both presets, nine corruptions, synthetic and real clips.

    python benchmarks/discrimination.py [--clips FOLDER] [--strength 1.0 0.5]

A pair is right when the corrupted copy has the higher loss. Pairs whose mean absolute change is under 1/255 are left out: nobody
could see the corruption. Prints a table, writes docs/results/discrimination.md and out/benchmarks/discrimination.json. Nothing
was tuned on these synthetic clips; the sample clips were looked at while the loss was written.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
import torch

from phys_pipeline.atomic import atomic_file
from phys_pipeline.media import CORRUPTIONS, corrupt, probe, read_video, resample
from phys_pipeline.media.synthetic import object_clip, textured_clip
from phys_pipeline.spectral import SpectralConfig, SpectralMotionLoss
from phys_pipeline.spectral.report import ANALYSIS_FPS, analysis_size

ROOT = Path(__file__).resolve().parents[1]
VISIBLE = 1 / 255
PRESETS = {"calibrated": SpectralConfig.calibrated(), "paper": SpectralConfig.paper()}


def synthetic_clips(count: int, start: int) -> list[tuple[str, torch.Tensor]]:
    """Translation, rotation, zoom, mixtures; textures, or shapes before a still or moving background; (1, 3, 16, 64, 64)."""
    clips = []
    for seed in range(start, start + count):
        rng = np.random.default_rng([seed, 5])
        kind = ("translation", "rotation", "zoom", "mixture")[seed % 4]
        share = 0.5 if kind == "mixture" else 1.0
        angle, speed = rng.uniform(0, 2 * np.pi), share * rng.uniform(0.7, 2.3) * (kind in ("translation", "mixture"))
        velocity = (speed * math.cos(angle), speed * math.sin(angle))
        rotation = share * rng.choice([-1, 1]) * rng.uniform(0.035, 0.15) * (kind in ("rotation", "mixture"))
        zoom = share * rng.choice([-1, 1]) * rng.uniform(0.012, 0.042) * (kind in ("zoom", "mixture"))
        if (seed // 4) % 2:
            video = textured_clip(velocity=velocity, rotation=rotation, zoom=zoom, seed=seed).video
        else:
            shape = ("square", "bar", "triangle", "star")[int(rng.integers(4))]
            video = object_clip(
                shape, "red", centre=(31.5 - 7.5 * velocity[0], 31.5 - 7.5 * velocity[1]), radius=9.0 if zoom >= 0 else 14.0,
                angle=rng.uniform(0, 6), velocity=velocity, rotation=rotation, zoom=zoom, seed=seed,
                background_velocity=(0.4, -0.2) if (seed // 8) % 2 else (0.0, 0.0),
            ).video  # fmt: skip
        clips.append((f"synthetic {seed}", video[None]))
    return clips


def real_clips(folder: Path, most: int) -> list[tuple[str, torch.Tensor]]:
    """Up to ``most`` windows of 16 frames, spread over each file of a folder, at the size and rate of the scores."""
    clips = []
    for path in sorted(folder.iterdir()):
        if path.suffix.lower() not in (".mp4", ".webm", ".gif", ".mkv", ".webp"):
            continue
        info = probe(path)
        video = read_video(path, size=analysis_size(info.height, info.width))
        step = max(1, min(round(video.fps / ANALYSIS_FPS), len(video) // 16))
        tensor = resample(video, video.fps).to_tensor()[:, :, ::step]
        windows = min(most, tensor.shape[2] // 16)
        for start in np.linspace(0, tensor.shape[2] - 16, windows).round().astype(int).tolist():
            clips.append((f"{path.name} @{start}", tensor[:, :, start : start + 16]))
    return clips


def wilson(right: int, total: int) -> tuple[float, float]:
    """95 % Wilson score interval of a share."""
    z, share = 1.959964, right / total
    middle = (share + z * z / (2 * total)) / (1 + z * z / total)
    half = z / (1 + z * z / total) * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    return middle - half, middle + half


@torch.no_grad()
def count_pairs(clips: list[tuple[str, torch.Tensor]], strength: float) -> dict[str, dict[str, tuple[int, int]]]:
    """Right and counted pairs for each preset and corruption."""
    losses = {name: SpectralMotionLoss(config) for name, config in PRESETS.items()}
    tally: dict[str, dict[str, list[int]]] = {name: defaultdict(lambda: [0, 0]) for name in PRESETS}
    for index, (name, clip) in enumerate(clips):
        print(f"\r{index + 1}/{len(clips)} {name:40s}", end="", file=sys.stderr, flush=True)
        copies = {kind: corrupt(clip, kind, strength, seed=index) for kind in CORRUPTIONS}
        seen = [kind for kind, copy in copies.items() if float((copy - clip).abs().mean()) >= VISIBLE]
        batch = torch.cat([clip, *(copies[kind] for kind in seen)])
        for preset, loss in losses.items():
            scores = loss(batch, "none").loss.tolist()
            for kind, score in zip(seen, scores[1:], strict=True):
                tally[preset][kind][0] += score > scores[0]
                tally[preset][kind][1] += 1
    print(file=sys.stderr)
    return {preset: {kind: (right, total) for kind, (right, total) in kinds.items()} for preset, kinds in tally.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--clips", type=Path, default=ROOT / "samples" / "clips", help="folder of real clips (default: the sample set)"
    )
    parser.add_argument("--synthetic", type=int, default=48, help="synthetic clips")
    parser.add_argument("--seed", type=int, default=2000, help="first seed of the synthetic clips")
    parser.add_argument("--windows", type=int, default=3, help="windows of each real clip")
    parser.add_argument("--strength", type=float, nargs="+", default=[1.0, 0.5], help="strengths of the corruptions")
    parser.add_argument(
        "--override", nargs="+", default=[], metavar="FIELD=VALUE", help="change fields of the calibrated preset; only prints"
    )
    options = parser.parse_args()
    if options.override:
        changes = {field: json.loads(value) for field, value in (text.split("=", 1) for text in options.override)}
        PRESETS.clear()
        PRESETS[" ".join(options.override)] = SpectralConfig.calibrated(**changes)
    sets = {
        "synthetic": synthetic_clips(options.synthetic, options.seed),
        "real": real_clips(options.clips, options.windows),
    }
    lines = [
        "# Does the loss prefer a clip to its corrupted copy?", "",
        f"Made by `python benchmarks/discrimination.py`; {len(sets['synthetic'])} synthetic clips (seeds {options.seed} to "
        f"{options.seed + options.synthetic - 1}), {len(sets['real'])} windows of the sample clips, 16 frames each; share of "
        "pairs in which the corrupted copy scores worse, 95 % Wilson intervals; pairs that change by less than 1/255 on average "
        "are left out. Clips of one set share content, so pairs are not independent and the intervals are optimistic.", "",
        "| clips | strength | preset | all pairs | " + " | ".join(CORRUPTIONS) + " |", "|" + "---|" * (4 + len(CORRUPTIONS)),
    ]  # fmt: skip
    record = []
    for name, clips in sets.items():
        for strength in options.strength:
            for preset, kinds in count_pairs(clips, strength).items():
                right, total = (sum(column) for column in zip(*kinds.values(), strict=True))
                low, high = wilson(right, total)
                cells = [
                    f"{100 * kinds[k][0] / kinds[k][1]:.0f} % of {kinds[k][1]}" if k in kinds else "none seen"
                    for k in CORRUPTIONS
                ]
                share = f"{100 * right / total:.1f} % [{100 * low:.1f}, {100 * high:.1f}] of {total}"
                lines.append(f"| {name} | {strength:g} | {preset} | {share} | " + " | ".join(cells) + " |")
                print(lines[-1], flush=True)
                record.append({"clips": name, "strength": strength, "preset": preset, "pairs": kinds})
    if options.override:
        return
    with atomic_file(ROOT / "docs" / "results" / "discrimination.md") as temporary:
        temporary.write_text("\n".join(lines) + "\n", encoding="utf-8")
    with atomic_file(ROOT / "out" / "benchmarks" / "discrimination.json") as temporary:
        temporary.write_text(json.dumps(record, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
