"""How exact are the motion estimates of the report, on clips whose motion is known?

    python benchmarks/estimates.py                        synthetic clips
    python benchmarks/estimates.py --clips FOLDER         also a folder with manifest.csv (file, label, measured motion)

Prints tables and writes them to docs/results/estimates.md and out/benchmarks/estimates.json. The synthetic clips are not
those on which the estimator was written: another generator, other seeds.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from pathlib import Path

import numpy as np

from phys_pipeline.atomic import atomic_file
from phys_pipeline.media.synthetic import object_clip, textured_clip
from phys_pipeline.scoring import score_file
from phys_pipeline.spectral.estimate import estimate_similarity

ROOT = Path(__file__).resolve().parents[1]
SHAPES = ("square", "bar", "triangle", "star")


def draw(kind: str, seed: int) -> tuple[object, dict[str, float]]:
    """A clip of pure translation, rotation or zoom within the aliasing limits, and the truth: speed px, rad or log per frame."""
    rng = np.random.default_rng([seed, 77])
    sign = rng.choice([-1, 1])
    velocity, rotation, zoom = (0.0, 0.0), 0.0, 0.0
    if kind == "translation":
        angle, speed = rng.uniform(0, 2 * np.pi), rng.uniform(0.4, 2.5)
        velocity = (speed * np.cos(angle), speed * np.sin(angle))
    elif kind == "rotation":
        rotation = sign * rng.uniform(0.02, 0.15)
    else:
        zoom = sign * rng.uniform(0.008, 0.045)
    motion = {"velocity": velocity, "rotation": rotation, "zoom": zoom}
    if seed % 2:
        clip = textured_clip(seed=seed, **motion)
    else:
        centre = (31.5 - 7.5 * velocity[0], 31.5 - 7.5 * velocity[1])
        radius = 9.0 if zoom >= 0 else 14.0
        shape = SHAPES[int(rng.integers(len(SHAPES)))]
        clip = object_clip(shape, "red", centre=centre, radius=radius, angle=rng.uniform(0, 6), texture=0.06, seed=seed, **motion)
    return clip.video, {"vx": velocity[0], "vy": velocity[1], "rotation": rotation, "zoom": zoom}


def synthetic(clips: int, start: int) -> list[dict[str, float | str]]:
    """Relative errors and signs, one row per kind of motion."""
    rows: list[dict[str, float | str]] = []
    for kind in ("translation", "rotation", "zoom"):
        errors, signs = [], []
        for seed in range(start, start + clips):
            video, truth = draw(kind, seed)
            motion = estimate_similarity(video)  # type: ignore[arg-type]
            if kind == "translation":
                found, wanted = np.array(motion.velocity.tolist()), np.array([truth["vx"], truth["vy"]])
                errors.append(float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted)))
                signs.append(float(found @ wanted > 0))
            else:
                value = float(motion.rotation if kind == "rotation" else motion.zoom)
                errors.append(abs(value - truth[kind]) / abs(truth[kind]))
                signs.append(float(value * truth[kind] > 0))
        low, high = np.percentile(
            [np.median(np.random.default_rng(b).choice(errors, len(errors))) for b in range(1000)], [2.5, 97.5]
        )
        rows.append(
            {"motion": kind, "clips": clips, "median": float(np.median(errors)), "low": float(low), "high": float(high),
             "p90": float(np.percentile(errors, 90)), "sign": float(np.mean(signs))}
        )  # fmt: skip
    return rows


def labelled(folder: Path) -> list[dict[str, object]]:
    """Reported motion of every clip of a manifest beside its label and measured motion."""
    rows: list[dict[str, object]] = []
    with (folder / "manifest.csv").open(encoding="utf-8") as handle:
        for entry in csv.DictReader(handle):
            report = score_file(folder / entry["file"]).to_dict()
            measured = " / ".join(entry[key] for key in ("tx_pct_per_s", "ty_pct_per_s", "rot_deg_per_s", "scale_pct_per_s"))
            velocity = report["velocity"]
            reported = (
                f"{velocity['x_percent_per_s']:.1f} / {velocity['y_percent_per_s']:.1f} / {report['rotation_deg_per_s']:.1f} / "
            )
            reported += f"{report['zoom_percent_per_s']:.1f}"
            rows.append(
                {"file": entry["file"], "label": entry["label"], "measured": measured, "reported": reported,
                 "dominant": report["dominant"], "confidence": report["confidence"], "loss": report["loss"]["composite"],
                 "dynamic_degree": report["dynamic_degree"]}
            )  # fmt: skip
            print(f"{entry['file']:28s} {entry['label']:28s} {report['dominant']}", file=sys.stderr, flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clips", type=Path, help="folder with manifest.csv")
    parser.add_argument("--count", type=int, default=60, help="synthetic clips per kind of motion")
    parser.add_argument("--seed", type=int, default=1000, help="first seed")
    options = parser.parse_args()
    rows = synthetic(options.count, options.seed)
    command = "python benchmarks/estimates.py" + (" --clips FOLDER" if options.clips else "")
    lines = [
        "# Motion estimates against known motion", "",
        f"Made by `{command}`; 16 frames of 64x64, half textures, half shapes before a still textured background; "
        f"seeds {options.seed} to {options.seed + options.count - 1}; 95 % bootstrap intervals of the median.", "",
        "| motion | clips | median relative error | 90th percentile | right sign |", "|---|---|---|---|---|",
    ]  # fmt: skip
    for row in rows:
        lines.append(
            f"| {row['motion']} | {row['clips']} | {row['median']:.1%} [{row['low']:.1%}, {row['high']:.1%}] | "
            f"{row['p90']:.1%} | {row['sign']:.1%} |"
        )
    clips: list[dict[str, object]] = []
    if options.clips:
        clips = labelled(options.clips)
        lines += [
            "", "Real and generated clips; six of them are samples/clips, the others are not in this repository. "
            "Motion is x / y velocity in % of the width a second, rotation in degrees a second "
            "(clockwise positive), zoom in % a second; \"measured\" is a key-point (KLT, RANSAC) fit, itself an estimate.", "",
            "| clip | label | measured | reported | dominant | confidence | composite loss | dynamic degree |",
            "|---|---|---|---|---|---|---|---|",
        ]  # fmt: skip
        lines += [
            f"| {row['file']} | {row['label']} | {row['measured']} | {row['reported']} | {row['dominant']} | "
            f"{row['confidence']:.2f} | {row['loss']:.3f} | {row['dynamic_degree']:.3f} |"
            for row in clips
        ]
    text = "\n".join(lines) + "\n"
    print(text)
    with atomic_file(ROOT / "docs" / "results" / "estimates.md") as temporary:
        temporary.write_text(text, encoding="utf-8")
    with atomic_file(ROOT / "out" / "benchmarks" / "estimates.json") as temporary:
        temporary.write_text(json.dumps({"synthetic": rows, "clips": clips}, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
