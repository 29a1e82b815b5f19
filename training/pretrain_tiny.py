"""Train the embedded tiny HunyuanVideo-architecture model on captioned synthetic clips, from scratch, on a CPU or one GPU.

    python training/pretrain_tiny.py --output phys_pipeline/assets/tiny_hunyuan --work out/pretrain_tiny --steps 7500 --seed 0
    python training/pretrain_tiny.py --output out/smoke/model --work out/smoke --smoke --steps 4
    python training/pretrain_tiny.py --world flawed --output out/world/model --work out/world --minutes 60 [--resume]

First the frame autoencoder is trained, then the transformer and both text encoders on its latents, last the autoencoder's decoder
for a little longer. Add --resume to go on after an interruption; the transformer is then the same to the bit on the same
machine. Progress goes to stderr and WORK/log.jsonl; the averaged model is exported to OUTPUT every few hundred steps, so there is
always one to use. --minutes N stops there with everything saved; --resume goes on. --world flawed or clean trains on the
procedural world of training/world instead of the shapes of phys_pipeline.media.synthetic.

Exit codes: 0 finished or out of minutes, 2 an expected error (one line), 130 interrupted.
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that `training` and `phys_pipeline` are found

import torch

from phys_pipeline.atomic import atomic_file
from phys_pipeline.errors import ConfigError, PhysPipelineError
from phys_pipeline.models.frame_autoencoder import FrameAutoencoder
from phys_pipeline.noise_path import RectifiedFlow
from training.tiny_autoencoder import train_autoencoder
from training.tiny_data import Batch, LatentPool
from training.tiny_deadline import Deadline, OutOfTime
from training.tiny_model import MAX_TEXT_TOKENS, SHIFT, SIZES, TinyModel, describe, save_pipeline, stored_tokenizers
from training.tiny_parallel import ShardedGradients, trapezoid
from training.tiny_sources import WORLDS, clip_source

EARLY_SHIFT = 3.0  # first the look, at moderate noise; then SHIFT, so that the layout gets its share of the steps (16 %, not 2)
UNIFORM_SHARE = 0.125  # of the noise levels; the rest is logit-normal
EMA = 0.999
CARDS = {  # read once, so that an edit can't stop a long run
    world: (Path(__file__).parent / name).read_text(encoding="utf-8")
    for world, name in zip(WORLDS, ("tiny_model_card.md", "world_model_card.md", "world_model_card.md"), strict=True)
}


@dataclass(frozen=True)
class Stage:
    """What the transformer is shown before step ``until``."""

    until: float
    shift: float = SHIFT
    one_way: bool = False  # of each motion and its reverse only one, so that the frame number alone is worth learning
    detail: float = 0.0  # share of the samples whose noise level is not shifted: at SHIFT the low levels hardly occur


@dataclass(frozen=True)
class Preset:
    """Everything that differs between the real run and the smoke test."""

    world: str = "shapes"
    size: str = "tiny"
    frames: int = 16
    side: int = 64
    autoencoder_steps: int = 800
    autoencoder_batch: int = 24
    decoder_steps: int = 600
    chunk: int = 256
    initial_chunks: int = 8
    largest_chunks: int = 16
    grow_every: int = 250
    spread: float = 0.25  # of the clips: the caption alone nearly tells the layout
    stages: tuple[Stage, ...] = (Stage(1000, EARLY_SHIFT, one_way=True), Stage(2000, one_way=True), Stage(float("inf")))
    batch: int = 8
    peak: float = 1.5e-3
    warm_up: int = 200
    log_every: int = 50
    checkpoint_every: int = 250
    export_every: int = 500


REAL = Preset()
WORLD = replace(
    REAL, world="flawed", initial_chunks=16, largest_chunks=80, grow_every=40,  # 20,480 clips after 2,560 steps
    stages=(*REAL.stages[:2], Stage(4500), Stage(float("inf"), detail=0.5)),
)  # fmt: skip
SMOKE = Preset(
    size="smoke", frames=4, side=32, autoencoder_steps=4, autoencoder_batch=8, decoder_steps=2, chunk=8, initial_chunks=1,
    largest_chunks=2, grow_every=2, batch=4, warm_up=2, log_every=1, checkpoint_every=2, export_every=2,
    stages=(Stage(1, EARLY_SHIFT, one_way=True), Stage(2, one_way=True), Stage(float("inf"))),
)  # fmt: skip


def generation_settings(preset: Preset) -> dict[str, Any]:
    """Arguments that the pipeline needs for this model; saved as "generation" in phys_pipeline.json."""
    return {
        "prompt_template": {"template": "{}", "crop_start": 0},
        "max_sequence_length": MAX_TEXT_TOKENS,
        "num_frames": preset.frames,
        "height": preset.side,
        "width": preset.side,
        "fps": 8,
        "num_inference_steps": 20,
        "guidance_scale": 6.0,
        "true_cfg_scale": 2.0,
        "negative_prompt": "",
    }


def stage_at(preset: Preset, step: int) -> Stage:
    """The stage that ``step`` belongs to."""
    return next(stage for stage in preset.stages if step < stage.until)


def shard_loss(model: TinyModel, batch: Batch, sigma: torch.Tensor, part: slice, *, bf16: bool = False) -> torch.Tensor:
    """Mean squared error of the velocity over one part of the batch; ``sigma`` (B,). ``bf16``: the model under autocast."""
    path, device = RectifiedFlow(), next(model.parameters()).device
    latents, noise, level, guidance = (t[part].to(device) for t in (batch.latents, batch.noise, sigma, batch.guidance))
    noisy = path.corrupt(latents, noise, level)
    with torch.autocast(device.type, torch.bfloat16, enabled=bf16):
        velocity = model(noisy, path.timestep(level), batch.captions[part], guidance)
    return (velocity.float() - path.target(latents, noise, level)).square().mean()


def draw_sigma(batch: Batch, stage: Stage) -> torch.Tensor:
    """Noise levels (B,): logit-normal with a uniform part, both shifted; a share of them logit-normal and not shifted."""
    size, path = len(batch.captions), RectifiedFlow()
    usual = path.sample(size, batch.generator, law="logit_normal", shift=stage.shift)
    uniform = path.sample(size, batch.generator, law="uniform", shift=stage.shift)
    sigma = torch.where(torch.rand(size, generator=batch.generator) < UNIFORM_SHARE, uniform, usual)
    if not stage.detail:
        return sigma
    low = path.sample(size, batch.generator, law="logit_normal")
    return torch.where(torch.rand(size, generator=batch.generator) < stage.detail, low, sigma)


class Log:
    """JSON lines; on resuming, records past the checkpoint are dropped."""

    def __init__(self, path: Path, keep: int | None) -> None:
        self.path = path
        records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []
        kept = [r for r in records if keep is not None and (r["stage"] != "transformer" or r["step"] <= keep)]
        path.write_text("".join(json.dumps(record) + "\n" for record in kept), encoding="utf-8")

    def __call__(self, record: dict[str, Any]) -> None:
        rounded = {key: round(value, 8) if isinstance(value, float) else value for key, value in record.items()}
        with self.path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(rounded) + "\n")
        print(" ".join(f"{key}={value:.5g}" if isinstance(value, float) else f"{key}={value}" for key, value in record.items()),
              file=sys.stderr, flush=True)  # fmt: skip


def export(averaged: TinyModel, autoencoder: FrameAutoencoder, output: Path, preset: Preset, provenance: dict[str, Any]) -> None:
    """Write the averaged model as a diffusers folder."""
    megabytes = sum(p.numel() for p in [*averaged.parameters(), *autoencoder.parameters()]) * 2 / 1e6
    template = CARDS[preset.world]
    card = template.format(
        parameters=f"{sum(p.numel() for p in averaged.transformer.parameters()) / 1e6:.1f}",  # type: ignore[attr-defined]
        megabytes=f"{megabytes:.0f}",
        shift=SHIFT,
        early_shift=EARLY_SHIFT,
        early_steps=preset.stages[0].until,
        one_way_steps=max(stage.until for stage in preset.stages if stage.one_way),
        detail_from=max(stage.until for stage in preset.stages[:-1]),
        true_cfg_scale=generation_settings(preset)["true_cfg_scale"],
        **provenance,
        **asdict(preset),
    )
    save_pipeline(averaged, autoencoder, output, generation=generation_settings(preset), card=card, provenance=provenance)


def pretrain(
    output: Path,
    work: Path,
    *,
    steps: int,
    seed: int,
    preset: Preset,
    workers: int,
    resume: bool,
    stop_at: int | None = None,
    device: str = "cpu",
    bf16: bool = False,
    deadline: Deadline | None = None,
) -> None:
    """Run or resume the whole training, up to ``stop_at`` of its ``steps`` if given. ConfigError if WORK holds another run.

    OutOfTime when ``deadline`` has passed; everything is then saved, and the averaged model exported if there is one.
    """
    if device != "cpu" and not torch.cuda.is_available():
        raise ConfigError(f"there is no device {device!r} here: use --device cpu")
    if device != "cpu" and workers != 1:
        raise ConfigError(f"workers={workers} are threads of a CPU: use --workers 1 with --device {device}")
    if steps < 1 or preset.batch % workers:
        raise ConfigError(f"steps={steps}, workers={workers}: use steps >= 1 and workers that divide the batch of {preset.batch}")
    checkpoint = work / "checkpoint.pt"
    settings = work / "settings.json"
    if settings.exists() and not resume:
        raise ConfigError(f"{work} already holds a run: add --resume, or choose another --work")
    work.mkdir(parents=True, exist_ok=True)
    state = torch.load(checkpoint, weights_only=True, map_location=device) if checkpoint.exists() else None
    identity = {
        "seed": seed,
        "world": preset.world,
        "batch": preset.batch,
        "spread": preset.spread,
        "size": describe(SIZES[preset.size]),
        "workers": workers,
        "stages": [asdict(s) for s in preset.stages],
    }
    if settings.exists() and (earlier := json.loads(settings.read_text(encoding="utf-8"))) != identity:
        raise ConfigError(f"{work} was made with other settings: resume with {earlier}, or choose another --work")
    with atomic_file(settings) as path:
        path.write_text(json.dumps(identity) + "\n", encoding="utf-8")
    log = Log(work / "log.jsonl", (state["step"] if state else 0) if resume else None)
    source = clip_source(preset.world, seed, preset.frames, preset.side, preset.spread)

    def train_frames(steps: int, decoder_of: FrameAutoencoder | None) -> FrameAutoencoder:
        return train_autoencoder(
            work, source, steps=steps, seed=seed, decoder_of=decoder_of, batch_size=preset.autoencoder_batch, side=preset.side,
            workers=workers, resume=resume, device=device, deadline=deadline, log=log,
        )  # fmt: skip

    autoencoder = train_frames(preset.autoencoder_steps, None)
    pool = LatentPool(
        work, autoencoder, source, seed=seed, chunk=preset.chunk, initial=preset.initial_chunks, largest=preset.largest_chunks,
        grow_every=preset.grow_every,
    )  # fmt: skip
    tokenizers = stored_tokenizers(work, source.captions)
    model = TinyModel(SIZES[preset.size], autoencoder.config["latent_channels"], seed, tokenizers).train().to(device)
    averaged = copy.deepcopy(model)
    optimiser = torch.optim.AdamW(model.parameters(), lr=preset.peak, betas=(0.9, 0.95), weight_decay=0.01, fused=True)
    begin = 0
    if state is not None:
        model.load_state_dict(state["model"])
        averaged.load_state_dict(state["averaged"])
        optimiser.load_state_dict(state["optimiser"])
        begin = state["step"]
    del state

    live, slow = list(model.parameters()), list(averaged.parameters())
    gradients = ShardedGradients(live, workers)
    width = preset.batch // workers
    total, since = 0.0, time.monotonic()
    last = min(steps, stop_at or steps)
    for step in range(begin, last):
        for group in optimiser.param_groups:
            group["lr"] = trapezoid(step, steps, peak=preset.peak, warm_up=preset.warm_up)
        stage = stage_at(preset, step)
        batch = pool.batch(step, preset.batch, one_way=stage.one_way)
        sigma = draw_sigma(batch, stage)

        def part_loss(part: int, batch: Batch = batch, sigma: torch.Tensor = sigma) -> torch.Tensor:
            return shard_loss(model, batch, sigma, slice(part * width, (part + 1) * width), bf16=bf16)

        loss = gradients(part_loss)
        if loss != loss:
            raise PhysPipelineError(f"the loss is not a number at step {step}: lower the learning rate")
        torch.nn.utils.clip_grad_norm_(live, 1.0)
        optimiser.step()
        with torch.no_grad():
            torch._foreach_lerp_(list[torch.Tensor](slow), list[torch.Tensor](live), 1 - min(EMA, (step + 1) / (step + 10)))
        total += loss
        done = step + 1
        late = deadline is not None and deadline.passed and done < last
        if done % preset.log_every == 0:
            now = time.monotonic()
            log({"stage": "transformer", "step": done, "loss": total / preset.log_every, "lr": optimiser.param_groups[0]["lr"],
                 "clips": len(pool), "seconds_per_step": (now - since) / preset.log_every})  # fmt: skip
            total, since = 0.0, now
        if done % preset.checkpoint_every == 0 or done == last or late:
            record = {"model": model.state_dict(), "averaged": averaged.state_dict(), "optimiser": optimiser.state_dict(),
                      "step": done}  # fmt: skip
            with atomic_file(checkpoint) as path:
                torch.save(record, path)
        if done % preset.export_every == 0 or late:
            export(averaged, autoencoder, output, preset, {"steps": done, "seed": seed})
        if late:
            gradients.close()
            raise OutOfTime
    gradients.close()
    if last == steps:
        autoencoder = train_frames(preset.decoder_steps, autoencoder)
    export(averaged, autoencoder, output, preset, {"steps": last, "seed": seed})


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, help="folder of the exported model; replaced whole")
    parser.add_argument("--work", type=Path, required=True, help="folder for checkpoints, encoded clips and the log")
    parser.add_argument("--steps", type=int, default=7500, help="steps of the transformer (default 7500)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2, help="threads that share a batch (default 2)")
    parser.add_argument("--resume", action="store_true", help="go on from WORK's newest checkpoint")
    parser.add_argument(
        "--stop-at", type=int, metavar="STEP", help="stop early, to go on later with --resume and the same --steps"
    )
    parser.add_argument("--world", choices=WORLDS, default="shapes", help="what the clips show (default: shapes)")
    parser.add_argument("--size", choices=("tiny", "small"), help="2.7 or 5.9 million parameters (default tiny)")
    parser.add_argument("--batch", type=int, help="clips per step (default 8)")
    parser.add_argument("--minutes", type=float, metavar="N", help="stop after N minutes, saved, to go on with --resume")
    parser.add_argument("--device", default="cpu", help='"cuda" for a GPU; then with --workers 1 (default cpu)')
    parser.add_argument("--bf16", action="store_true", help="compute in bfloat16; weights and loss stay in float32")
    parser.add_argument("--smoke", action="store_true", help="a minute model, to test the program")
    options = parser.parse_args(arguments)
    deadline = Deadline(options.minutes)
    preset = SMOKE if options.smoke else REAL if options.world == "shapes" else WORLD
    preset = replace(preset, world=options.world, size=options.size or preset.size, batch=options.batch or preset.batch)
    try:
        pretrain(
            options.output, options.work, steps=options.steps, seed=options.seed, preset=preset, workers=options.workers,
            resume=options.resume, stop_at=options.stop_at, device=options.device, bf16=options.bf16, deadline=deadline,
        )  # fmt: skip
    except OutOfTime:
        print(f"pretrain_tiny: {options.minutes:g} minutes are over, everything is saved; go on with --resume", file=sys.stderr)
    except PhysPipelineError as error:
        print(f"pretrain_tiny: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
