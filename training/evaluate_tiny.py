"""Ask the tiny model for clips, follow the object in each with a tracker, and write down how often it did what was asked.

    python training/evaluate_tiny.py --log out/pretrain_tiny/log.jsonl --report docs/results/pretrain_tiny.md
    python training/evaluate_tiny.py --model out/smoke/model --prompts 8 --sheet sheet.png

The loss curve (.png) and the training log (.jsonl) are written beside the report. Prompts are drawn from --seed: half of them are
combinations of colour, shape and motion that training never showed. Each prompt has its own noise seed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that `training` and `phys_pipeline` are found

import numpy as np
import torch
from PIL import Image, ImageDraw

import phys_pipeline
from phys_pipeline.atomic import atomic_file
from phys_pipeline.evaluation.statistics import wilson
from phys_pipeline.media.synthetic import COLOURS, MOTIONS, SHAPES, canonical_caption, is_visible_motion
from training.tiny_probe import SIGMA, caption_gaps
from training.tiny_sources import Subject, held_out_subjects
from training.tiny_tracker import Track, shows_motion, track

DEFAULT_MODEL = Path(phys_pipeline.__file__).parent / "assets" / "tiny_hunyuan"


@dataclass(frozen=True)
class Trial:
    """One generated clip and what the tracker says of it."""

    subject: Subject
    held_out: bool
    noise_seed: int
    seen: Track | None

    @property
    def motion_right(self) -> bool:
        return self.seen is not None and shows_motion(self.seen, self.subject[2])

    @property
    def colour_right(self) -> bool:
        return self.seen is not None and self.seen.colour == self.subject[0]


def draw_subjects(count: int, seed: int) -> list[tuple[Subject, bool]]:
    """Return ``count`` (subject, held out) pairs: the documentation's example, then held-out and shown ones in turn."""
    rng = np.random.default_rng((99, seed))
    held_out = held_out_subjects()
    shown = [
        (colour, shape, motion)
        for colour in COLOURS
        for shape in SHAPES
        for motion in MOTIONS
        if is_visible_motion(shape, motion) and (colour, shape, motion) not in held_out
    ]
    chosen: list[tuple[Subject, bool]] = [(("red", "square", "moves right"), False)]
    rng.shuffle(held_out)
    while len(chosen) < count:
        if len(chosen) % 2:
            chosen.append((held_out[(len(chosen) // 2) % len(held_out)], True))
        else:
            chosen.append((shown[rng.integers(len(shown))], False))
    return chosen


@torch.no_grad()
def generate(
    pipe: Any, captions: list[str], noise_seeds: list[int], settings: dict[str, Any], batch: int = 8
) -> list[torch.Tensor]:
    """Run the pipeline; one (3, T, H, W) tensor in [0, 1] per caption. A clip depends on its caption and noise seed alone."""
    arguments = {key: value for key, value in settings.items() if key != "fps"}
    clips: list[torch.Tensor] = []
    for start in range(0, len(captions), batch):
        prompts = captions[start : start + batch]
        generators = [torch.Generator().manual_seed(seed) for seed in noise_seeds[start : start + batch]]
        if arguments.get("negative_prompt") is not None:
            arguments["negative_prompt"] = [str(settings["negative_prompt"])] * len(prompts)
        frames = pipe(prompt=prompts, generator=generators, output_type="pt", **arguments).frames  # (B, T, 3, H, W)
        clips += [clip.transpose(0, 1).float().clamp(0, 1) for clip in frames]
    return clips


def contact_sheet(clips: list[torch.Tensor], captions: list[str], columns: int = 2, shown: int = 6) -> Image.Image:
    """Rows of ``shown`` evenly spaced frames per clip (3, T, H, W), with the caption above."""
    _, frames, height, width = clips[0].shape
    rows = -(-len(clips) // columns)
    sheet = Image.new("RGB", (columns * (shown * width + 8), rows * (height + 14)), "white")
    for index, (clip, caption) in enumerate(zip(clips, captions, strict=True)):
        left, top = (index % columns) * (shown * width + 8), (index // columns) * (height + 14)
        ImageDraw.Draw(sheet).text((left + 2, top), caption, fill="black")
        for position, frame in enumerate(np.linspace(0, frames - 1, shown).round().astype(int)):
            pixels = (clip[:, frame].permute(1, 2, 0).numpy() * 255).round().astype(np.uint8)
            sheet.paste(Image.fromarray(pixels), (left + position * width, top + 13))
    return sheet


_STAGES = {
    "autoencoder": (0, "autoencoder", "#1f5fa8"),
    "decoder": (0, "its decoder alone", "#d1700e"),
    "transformer": (1, "transformer", "#1f5fa8"),
}


def plot_loss(records: list[dict[str, Any]], path: Path) -> None:
    """Draw the training log's three stages."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    points = {stage: [(r["step"], r["loss"]) for r in records if r["stage"] == stage] for stage in _STAGES}
    offset = points["autoencoder"][-1][0] if points["autoencoder"] else 0
    points["decoder"] = [(offset + step, loss) for step, loss in points["decoder"]]
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    for stage, (column, label, colour) in _STAGES.items():
        axes[column].plot(
            *zip(*points[stage], strict=True) if points[stage] else ([], []), color=colour, linewidth=1.4, label=label
        )
    for axis, name in zip(axes, ("reconstruction loss", "velocity mean squared error"), strict=True):
        axis.set(xlabel="step", ylabel=name, yscale="log")
        axis.grid(alpha=0.3, which="both")
        axis.legend(frameon=False)
    with atomic_file(path) as temporary:
        figure.savefig(temporary, dpi=110)
    plt.close(figure)


def _line(name: str, trials: list[Trial], right: Callable[[Trial], bool]) -> str:
    hits = sum(map(right, trials))
    low, high = wilson(hits, len(trials))
    share = 100 * hits / len(trials) if trials else 0.0
    return f"| {name} | {hits} / {len(trials)} | {share:.0f} % | {100 * low:.0f}-{100 * high:.0f} % |\n"


_NOTES = "\n## Notes"
_REPORT = """# The tiny model, measured

Made by `python training/evaluate_tiny.py --prompts {count} --seed {seed} --log out/pretrain_tiny/log.jsonl \\
--report docs/results/pretrain_tiny.md`. Model revision {revision}, trained for {steps} steps with seed {training_seed}.
Sampling: {num_inference_steps} steps, true_cfg_scale {true_cfg_scale}, {num_frames} frames of {width}x{height}, one clip per
prompt, each with its own noise seed.

A tracker (colour mask, centroid, area, orientation; no learned parts) says whether a clip shows the motion asked for: at least
6 px of travel, 0.4 rad of turn, or 20 % of growth, in the right direction; "stays still" allows under 3 px, 15 % and 0.4 rad.
The tests check that it is right on clips with known motion. Intervals: Wilson, 95 %.

| Asked | Right | Share | Interval |
| --- | --- | --- | --- |
"""


def _unique(lines: list[str]) -> list[dict[str, Any]]:
    """Parsed log records in order, one per stage and step: the last written, which an interrupted run has gone on from."""
    records = [json.loads(line) for line in lines]
    return list({(record["stage"], record["step"]): record for record in records}.values())


def write_report(
    path: Path,
    trials: list[Trial],
    records: list[dict[str, Any]],
    settings: dict[str, Any],
    header: dict[str, Any],
    gaps: dict[str, float],
) -> None:
    """Write the Markdown report; with a training log, the loss curve and the log beside it.

    What a person wrote under "## Notes" in an earlier report stays.
    """
    earlier = path.read_text(encoding="utf-8") if path.exists() else ""
    notes = earlier[earlier.index(_NOTES) :] if _NOTES in earlier else ""
    text = _REPORT.format(count=len(trials), **header, **settings)
    text += _line("motion, all prompts", trials, lambda t: t.motion_right)
    text += _line("motion, combinations never shown", [t for t in trials if t.held_out], lambda t: t.motion_right)
    text += _line("motion, combinations shown", [t for t in trials if not t.held_out], lambda t: t.motion_right)
    text += _line("colour", trials, lambda t: t.colour_right)
    text += _line("an object in three quarters of the frames", trials, lambda t: t.seen is not None)
    for motion in MOTIONS:
        text += _line(motion, [t for t in trials if t.subject[2] == motion], lambda t: t.motion_right)
    tracks = [t.seen for t in trials if t.seen is not None]
    if tracks:
        wander = np.median([seen.straightness for seen in tracks])
        breathing = 100 * np.median([seen.area_spread for seen in tracks])
        text += f"\nMedian distance of the centroid from a straight, even path: {wander:.2f} px. "
        text += f"Median change of area that a trend doesn't explain: {breathing:.1f} %.\n"
    text += f"\nVelocity error at noise level {SIGMA}, 32 clips that move, same noise: "
    text += ", ".join(f"{name} {error:.4f}" for name, error in gaps.items())
    text += ". A word that\nthe model understands raises the error when it is wrong.\n"
    training = [record for record in records if record["stage"] == "transformer"]
    if training:
        ends = [0, *(record["step"] for record in training)]
        minutes = sum(r["seconds_per_step"] * (r["step"] - begin) for r, begin in zip(training, ends, strict=False)) / 60
        text += f"\nLast logged training loss {training[-1]['loss']:.4f}, after {minutes:.0f} minutes on two CPU cores "
        text += "that other work shared (autoencoder not counted).\nThe transformer's loss steps up where its timestep shift "
        text += "changes: the noise levels it is asked at are then others.\n"
        text += f"\n![loss]({path.stem}.png)\n"
        plot_loss(records, path.with_suffix(".png"))
        with atomic_file(path.with_suffix(".jsonl")) as temporary:
            temporary.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    with atomic_file(path) as temporary:
        temporary.write_text(text + notes, encoding="utf-8")


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=DEFAULT_MODEL, help="model folder (default: the embedded one)")
    parser.add_argument("--prompts", type=int, default=96)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--true-cfg-scale", type=float, help="instead of the model's own setting")
    parser.add_argument("--log", type=Path, help="the training log, for the loss curve")
    parser.add_argument("--report", type=Path, help="Markdown file to write")
    parser.add_argument("--sheet", type=Path, help="contact sheet of the first 24 clips (PNG)")
    parser.add_argument("--trials", type=Path, help="JSON lines with one record per clip")
    options = parser.parse_args(arguments)

    from diffusers import HunyuanVideoPipeline

    pipe = HunyuanVideoPipeline.from_pretrained(options.model).to(torch.float32)
    pipe.set_progress_bar_config(disable=True)
    stored = json.loads((options.model / "phys_pipeline.json").read_text(encoding="utf-8"))
    settings = dict(stored["generation"])
    if options.true_cfg_scale is not None:
        settings["true_cfg_scale"] = options.true_cfg_scale
    subjects = draw_subjects(options.prompts, options.seed)
    captions = [canonical_caption(*subject) for subject, _ in subjects]
    noise_seeds = [1000 * options.seed + index for index in range(len(subjects))]
    clips = generate(pipe, captions, noise_seeds, settings)
    trials = [
        Trial(subject, held_out, seed, track(clip, subject[1]))
        for (subject, held_out), seed, clip in zip(subjects, noise_seeds, clips, strict=True)
    ]
    for trial, caption in zip(trials, captions, strict=True):
        verdict = "right" if trial.motion_right else "wrong" if trial.seen is not None else "nothing seen"
        print(f"{caption:42s} motion {verdict}, colour {trial.seen.colour if trial.seen else '-'}")
    print(
        f"motion right {sum(t.motion_right for t in trials)} / {len(trials)}, colour right {sum(t.colour_right for t in trials)}"
    )
    if options.sheet:
        with atomic_file(options.sheet) as path:
            contact_sheet(clips[:24], captions[:24]).save(path)
    if options.trials:
        with atomic_file(options.trials) as path:
            path.write_text(
                "".join(json.dumps(asdict(t) | {"motion_right": t.motion_right}) + "\n" for t in trials), encoding="utf-8"
            )
    if options.report:
        lines = options.log.read_text(encoding="utf-8").splitlines() if options.log else []
        origin = stored.get("provenance", {})
        header = {
            "seed": options.seed,
            "revision": stored["revision"],
            "steps": origin.get("steps"),
            "training_seed": origin.get("seed"),
        }
        write_report(options.report, trials, _unique(lines), settings, header, caption_gaps(pipe, settings))
    return 0


if __name__ == "__main__":
    sys.exit(main())
