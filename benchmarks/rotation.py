"""Why does the embedded model turn things so rarely, and what helps? Contrast of turning captions, and short fine-tunings.

    python benchmarks/rotation.py [--steps 100] [--seeds 0 1] [--variants first-frame middle two-tone large]

Contrast: how far apart the mean latents of "rotates clockwise" and "rotates counterclockwise" lie, beside those of "moves right"
and "moves left"; at high noise a denoiser can use nothing else. Fine-tuning: the embedded transformer goes on with turning clips
alone, each variant from the same weights, captions, noise and noise levels; a tracker says how often a sample turns as asked.
Writes docs/results/rotation.md; every run's counts go to out/benchmarks/rotation.jsonl, from which an
interrupted run goes on.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that `benchmarks` is found

import numpy as np
import torch

from benchmarks.scores import ROOT
from phys_pipeline.atomic import atomic_file
from phys_pipeline.evaluation.statistics import wilson
from phys_pipeline.media.synthetic import COLOURS, canonical_caption
from phys_pipeline.noise_path import RectifiedFlow
from training.evaluate_tiny import DEFAULT_MODEL, generate
from training.tiny_tracker import track
from training.world.bodies import Body, paint_body, steady

FRAMES, SIDE, BATCH, RATE = 16, 64, 8, 5e-4
SHAPES = ("square", "bar", "triangle", "star")  # those of the embedded model whose turning shows
SHIFT = 10.0
SPREAD = 0.25
ENOUGH = 0.4  # radians


@dataclass(frozen=True)
class Variant:
    """``middle``: the drawn angle holds half way, not in frame 0. ``pace``: (low, high) rad per frame. ``radius`` in px."""

    middle: bool = False
    two_tone: bool = False
    radius: tuple[float, float] = (8.5, 11.0)
    pace: tuple[float, float] = (0.075, 0.15)


VARIANTS = {
    "first-frame": Variant(),
    "middle": Variant(middle=True),
    "two-tone": Variant(middle=True, two_tone=True),
    "large": Variant(middle=True, two_tone=True, radius=(14.0, 18.0)),
    "large, one tone": Variant(middle=True, radius=(14.0, 18.0)),
    "large, one tone, slower": Variant(middle=True, radius=(14.0, 18.0), pace=(0.035, 0.065)),
}


def turning_clip(variant: Variant, shape: str, colour: str, sense: int, rng: np.random.Generator) -> torch.Tensor:
    """(3, T, H, W): as the embedded model's training drew it, half of them played backwards, but for what ``variant`` says."""

    def draw(low: float, high: float) -> float:
        return (low + high) / 2 + SPREAD * float(rng.uniform((low - high) / 2, (high - low) / 2))

    radius, pace, angle = draw(*variant.radius), draw(*variant.pace), draw(0, 2 * math.pi)
    backwards = rng.random() < 0.5
    turn = pace * sense * (-1 if backwards else 1)
    reach = 1.3 * radius
    x0, y0 = (draw(min(reach, SIDE / 2), max(SIDE - 1 - reach, SIDE / 2)) for _ in range(2))
    at_middle = angle if variant.middle else angle + turn * (FRAMES - 1) / 2
    y, x = np.mgrid[:SIDE, :SIDE].astype(np.float32)
    video = np.full((3, FRAMES, SIDE, SIDE), rng.uniform(0.04, 0.34), np.float32)
    paint_body(
        video, Body(shape, colour, radius, variant.two_tone), steady(FRAMES, (x0, y0), at_middle, rotation=turn), x[None], y[None]
    )
    clip = torch.from_numpy(video)
    return clip.flip(1) if backwards else clip


def moving_clip(sense: int, colour: str, rng: np.random.Generator) -> torch.Tensor:
    """(3, T, H, W): a square that moves right (1) or left (-1), as the embedded model's training drew it."""
    from phys_pipeline.media.synthetic import make_clip

    return make_clip(rng, shape="square", colour=colour, motion="moves right" if sense > 0 else "moves left", spread=SPREAD).video


@torch.no_grad()
def encode(vae: Any, clips: list[torch.Tensor]) -> torch.Tensor:
    return vae.encode(torch.stack(clips) * 2 - 1).latent_dist.mode() * vae.config.scaling_factor


def contrast(vae: Any, name: str, shape: str, clips: int) -> float:
    """Squared distance of the mean latents of both senses, summed over a clip; the mean's own sampling noise taken off."""
    means, noise = [], 0.0
    for sense in (1, -1):
        rng = np.random.default_rng((17, sense + 1))
        drawn = [
            moving_clip(sense, "red", rng) if name == "moves" else turning_clip(VARIANTS[name], shape, "red", sense, rng)
            for _ in range(clips)
        ]
        latents = torch.cat([encode(vae, drawn[i : i + 16]) for i in range(0, clips, 16)])
        means.append(latents.mean(0))
        noise += float(latents.var(0).sum()) / clips
    return max(float((means[0] - means[1]).square().sum()) - noise, 0.0)


def subjects(count: int, rng: np.random.Generator) -> list[tuple[str, str, int]]:
    """``count`` (colour, shape, sense), shapes and senses in turn."""
    return [(str(rng.choice(list(COLOURS))), SHAPES[i % 4], 1 if i // 4 % 2 else -1) for i in range(count)]


def caption(colour: str, shape: str, sense: int) -> str:
    return canonical_caption(colour, shape, "rotates clockwise" if sense > 0 else "rotates counterclockwise")


def load_pipeline() -> tuple[Any, dict[str, Any]]:
    from diffusers import HunyuanVideoPipeline

    pipe = HunyuanVideoPipeline.from_pretrained(DEFAULT_MODEL).to(torch.float32)
    pipe.set_progress_bar_config(disable=True)
    return pipe, json.loads((DEFAULT_MODEL / "phys_pipeline.json").read_text(encoding="utf-8"))["generation"]


def velocity(pipe: Any, texts: list[str], noisy: torch.Tensor, sigma: torch.Tensor) -> torch.Tensor:
    states, pooled, mask = pipe.encode_prompt(texts, prompt_template={"template": "{}", "crop_start": 0}, max_sequence_length=16)
    return pipe.transformer(
        hidden_states=noisy, timestep=RectifiedFlow().timestep(sigma), guidance=torch.full((len(noisy),), 6000.0),
        encoder_hidden_states=states, encoder_attention_mask=mask, pooled_projections=pooled, return_dict=False,
    )[0]  # fmt: skip


def fine_tune(pipe: Any, variant: Variant, steps: int, seed: int) -> float:
    """Train the transformer in place; the last fifth's mean loss."""
    path, losses = RectifiedFlow(), []
    parameters = list(pipe.transformer.parameters())
    optimiser = torch.optim.AdamW(parameters, lr=RATE, betas=(0.9, 0.95), weight_decay=0.01, fused=True)
    pipe.transformer.train()
    for step in range(steps):
        rng = np.random.default_rng((23, seed, step))
        generator = torch.Generator().manual_seed(1000 * seed + step)
        drawn = subjects(BATCH, rng)
        latents = encode(pipe.vae, [turning_clip(variant, shape, colour, sense, rng) for colour, shape, sense in drawn])
        noise = torch.randn(latents.shape, generator=generator)
        sigma = path.sample(BATCH, generator, law="logit_normal", shift=SHIFT)
        texts = ["" if rng.random() < 0.1 else caption(*subject) for subject in drawn]
        error = velocity(pipe, texts, path.corrupt(latents, noise, sigma), sigma) - path.target(latents, noise, sigma)
        loss = error.square().mean()
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        for group in optimiser.param_groups:
            group["lr"] = RATE * min(1.0, (step + 1) / 10, 2 * (steps - step) / steps)
        optimiser.step()
        losses.append(loss.item())
    pipe.transformer.eval()
    return float(np.mean(losses[-max(1, steps // 5) :]))


@torch.no_grad()
def word_gap(pipe: Any, variant: Variant, clips: int = 32) -> float:
    """Ratio of the error with the opposite turning word to that with the right one, at noise level 0.9, same noise."""
    rng, path = np.random.default_rng(31), RectifiedFlow()
    drawn = subjects(clips, rng)
    latents = encode(pipe.vae, [turning_clip(variant, shape, colour, sense, rng) for colour, shape, sense in drawn])
    noise = torch.randn(latents.shape, generator=torch.Generator().manual_seed(7))
    sigma = torch.full((clips,), 0.9)
    noisy, target = path.corrupt(latents, noise, sigma), path.target(latents, noise, sigma)
    right, wrong = (
        float((velocity(pipe, [caption(c, s, sense * sign) for c, s, sense in drawn], noisy, sigma) - target).square().mean())
        for sign in (1, -1)
    )
    return wrong / right


def measure(name: str, steps: int, seed: int, prompts: int) -> dict[str, Any]:
    pipe, settings = load_pipeline()
    torch.manual_seed(seed)
    began = time.monotonic()
    loss = fine_tune(pipe, VARIANTS[name], steps, seed) if steps else float("nan")
    asked = subjects(prompts, np.random.default_rng(41))  # the same prompts and noises for every variant and seed
    clips = generate(pipe, [caption(*subject) for subject in asked], list(range(9000, 9000 + prompts)), settings)
    seen = [track(clip, shape) for clip, (_, shape, _) in zip(clips, asked, strict=True)]
    turns = [0.0 if found is None else found.turn * sense for found, (_, _, sense) in zip(seen, asked, strict=True)]
    return {
        "variant": name, "steps": steps, "seed": seed, "prompts": prompts, "loss": loss, "turns": [round(t, 3) for t in turns],
        "right": sum(t > ENOUGH for t in turns), "wrong": sum(t < -ENOUGH for t in turns), "gap": word_gap(pipe, VARIANTS[name]),
        "minutes": (time.monotonic() - began) / 60,
    }  # fmt: skip


def rows(records: list[dict[str, Any]]) -> list[str]:
    lines = [
        "| Clips | Steps | Seeds | Turns as asked | 95 % | Turns the other way | Word gap |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in dict.fromkeys((r["variant"], r["steps"]) for r in records):
        own = [r for r in records if (r["variant"], r["steps"]) == name]
        right, total = sum(r["right"] for r in own), sum(r["prompts"] for r in own)
        low, high = wilson(right, total)
        lines.append(
            f"| {name[0]} | {name[1]} | {len(own)} | {right} / {total} | {100 * low:.0f}-{100 * high:.0f} % |"
            f" {sum(r['wrong'] for r in own)} | {np.mean([r['gap'] for r in own]):.3f} |"
        )
    return lines


_NOTES = "\n## Notes"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--variants", nargs="*", choices=list(VARIANTS), default=["first-frame", "middle", "two-tone", "large"])
    parser.add_argument("--prompts", type=int, default=24)
    parser.add_argument("--clips", type=int, default=32, help="of each contrast")
    parser.add_argument("--scores", type=Path, default=ROOT / "out" / "benchmarks" / "rotation.jsonl")
    parser.add_argument("--report", type=Path, default=ROOT / "docs" / "results" / "rotation.md")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    vae = load_pipeline()[0].vae
    names = list(VARIANTS)
    contrasts = {name: [contrast(vae, name, shape, options.clips) for shape in SHAPES] for name in names}
    moves = contrast(vae, "moves", "square", options.clips)
    options.scores.parent.mkdir(parents=True, exist_ok=True)
    done = [json.loads(line) for line in options.scores.read_text().splitlines()] if options.scores.exists() else []
    have = {(r["variant"], r["steps"], r["seed"]) for r in done}

    def write() -> None:
        earlier = options.report.read_text(encoding="utf-8") if options.report.exists() else ""
        notes = earlier[earlier.index(_NOTES) :] if _NOTES in earlier else ""
        text = ["# Turning, in the embedded model", "", "Made by `python benchmarks/rotation.py`.", "", "## Contrast", ""]
        text += [f"A square that moves right or left: {moves:.0f}. Squared latent units, {options.clips} clips a sense.", ""]
        text += ["| Turning clips | " + " | ".join(SHAPES) + " |", "|---|" + "---|" * len(SHAPES)]
        text += [f"| {name} | " + " | ".join(f"{value:.0f}" for value in contrasts[name]) + " |" for name in names]
        text += ["", "## Fine-tuning on turning clips", "", *rows(done)]
        with atomic_file(options.report) as path:
            path.write_text("\n".join(text) + "\n" + notes, encoding="utf-8")

    for seed in options.seeds:
        jobs = [(name, options.steps) for name in options.variants]
        for name, steps in [("first-frame", 0), *jobs]:
            if (name, steps, seed) in have or (steps == 0 and any(record["steps"] == 0 for record in done)):
                continue
            record = measure(name, steps, seed, options.prompts)
            print(json.dumps(record), flush=True)
            done.append(record)
            with options.scores.open("a") as stream:
                stream.write(json.dumps(record) + "\n")
            write()
    write()


if __name__ == "__main__":
    main()
