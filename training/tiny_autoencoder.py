"""Train the tiny model's FrameAutoencoder on frames of the synthetic world and on crops of a few bundled photographs."""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from phys_pipeline.atomic import atomic_file
from phys_pipeline.models.frame_autoencoder import FrameAutoencoder
from training.tiny_deadline import Deadline, OutOfTime
from training.tiny_parallel import ShardedGradients, warmed_cosine
from training.tiny_sources import ClipSource

logger = logging.getLogger(__name__)

_DECODER_OFFSET = 500_000  # of the steps of the decoder's own training, so that it sees other frames
_STREAM = 1_000_003  # keeps this trainer's seeds apart from those of the clips the transformer sees
LATENT_NOISE = 0.1  # added while training, relative to each channel's spread, so that the decoder forgives the sampler's errors
PHOTO_SHARE = 0.25


def bundled_photographs() -> list[np.ndarray]:
    """Return the natural photographs that scikit-image and scikit-learn install, float32 (H, W, 3) in [0, 1]; [] without them."""
    photos: list[np.ndarray] = []
    try:
        from skimage import data

        photos += [getattr(data, name)() for name in ("astronaut", "chelsea", "coffee", "rocket")]
        photos.append(data.stereo_motorcycle()[0])
    except (ImportError, OSError) as error:
        logger.warning("training without scikit-image's photographs: %s", error)
    try:
        from sklearn.datasets import load_sample_images

        photos += list(load_sample_images().images)
    except (ImportError, OSError) as error:
        logger.warning("training without scikit-learn's photographs: %s", error)
    return [np.asarray(photo[..., :3], np.float32) / 255 for photo in photos]


def _photo_crop(photos: list[np.ndarray], side: int, rng: np.random.Generator) -> torch.Tensor:
    photo = photos[rng.integers(len(photos))]
    window = int(rng.integers(side, min(5 * side, *photo.shape[:2]) + 1))
    top, left = (int(rng.integers(0, length - window + 1)) for length in photo.shape[:2])
    crop = torch.from_numpy(photo[top : top + window, left : left + window].copy()).permute(2, 0, 1)[None]
    if rng.random() < 0.5:
        crop = crop.flip(-1)
    return nn.functional.interpolate(crop, size=(side, side), mode="bilinear", antialias=True, align_corners=False)[0]


def _batch(step: int, seed: int, size: int, side: int, photos: list[np.ndarray], source: ClipSource) -> torch.Tensor:
    """Return (size, 3, 1, side, side) in [0, 1]; a function of (seed, step) alone. Four frames are taken from each clip."""
    rng = np.random.default_rng((_STREAM, seed, step))
    frames: list[torch.Tensor] = []
    while len(frames) < size:
        if photos and rng.random() < PHOTO_SHARE:
            frames += [_photo_crop(photos, side, rng) for _ in range(4)]
        else:
            frames += list(source.frames(rng, 4).transpose(0, 1))
    return torch.stack(frames[:size])[:, :, None]


def _reconstruction_loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:  # both (B, 3, T, H, W)
    error = output - target
    edges = error.diff(dim=-1).abs().mean() + error.diff(dim=-2).abs().mean()
    return error.abs().mean() + 2.0 * error.square().mean() + 0.5 * edges


@torch.no_grad()
def equalise_latents(model: FrameAutoencoder, latents: torch.Tensor) -> None:  # (N, C, T, h, w)
    """Give every channel zero mean and the same spread over ``latents``, in place, without changing what is decoded.

    The change is folded into the encoder's last and the decoder's first 1x1 convolution; ``scaling_factor`` becomes one over
    the common spread, so that scaled latents have unit variance.
    """
    mean, std = latents.mean(dim=(0, 2, 3, 4)), latents.std(dim=(0, 2, 3, 4)).clamp_min(1e-6)
    common = std.log().mean().exp()
    gain = std / common
    last, first = model.encoder[-1], model.decoder[0]
    assert isinstance(last, nn.Conv2d) and isinstance(first, nn.Conv2d) and last.bias is not None and first.bias is not None
    last.weight /= gain[:, None, None, None]
    last.bias.copy_((last.bias - mean) / gain)
    first.bias += (first.weight * mean[None, :, None, None]).sum(dim=(1, 2, 3))
    first.weight *= gain[None, :, None, None]
    model.register_to_config(scaling_factor=float(1 / common))


def train_autoencoder(
    work: Path,
    source: ClipSource,
    *,
    steps: int,
    seed: int,
    decoder_of: FrameAutoencoder | None = None,
    batch_size: int = 24,
    side: int = 64,
    workers: int = 2,
    resume: bool = False,
    device: str = "cpu",
    deadline: Deadline | None = None,
    log: Callable[[dict[str, Any]], None],
) -> FrameAutoencoder:
    """Train from scratch or, given ``decoder_of``, only that model's decoder for longer (its latents stay as they are).

    Loads a finished one from ``work``/autoencoder or ``work``/decoder when resuming. ``log`` takes one record per 50 steps.
    OutOfTime when ``deadline`` has passed; the state is then saved.
    """
    stage = "autoencoder" if decoder_of is None else "decoder"
    final, state_path = work / stage, work / f"{stage}_state.pt"
    if resume and (final / "config.json").exists():
        return FrameAutoencoder.from_pretrained(final).eval().to(device)
    torch.manual_seed(seed)
    model = (FrameAutoencoder() if decoder_of is None else copy.deepcopy(decoder_of)).to(device)  # type: ignore[arg-type]
    trained, peak, offset = (model, 2e-3, 0) if decoder_of is None else (model.decoder, 1e-3, _DECODER_OFFSET)
    model.train().requires_grad_(False)
    trained.requires_grad_(True)
    parameters = list(trained.parameters())
    optimiser = torch.optim.AdamW(parameters, lr=peak, betas=(0.9, 0.99), weight_decay=1e-4)
    gradients = ShardedGradients(parameters, workers)
    begin = 0
    if resume and state_path.exists():
        state = torch.load(state_path, weights_only=True, map_location=device)
        model.load_state_dict(state["model"])
        optimiser.load_state_dict(state["optimiser"])
        begin = state["step"]
    photos, started, total = bundled_photographs(), time.monotonic(), 0.0
    for step in range(begin, steps):
        for group in optimiser.param_groups:
            group["lr"] = warmed_cosine(step, steps, peak=peak, warm_up=max(1, steps // 10))
        pixels = (_batch(offset + step, seed, batch_size, side, photos, source) * 2 - 1).to(device)
        noise_seed = torch.Generator().manual_seed(seed * _STREAM + offset + step)
        noise = torch.randn(batch_size, model.config["latent_channels"], 1, side // 8, side // 8, generator=noise_seed).to(device)
        parts = list(zip(pixels.chunk(workers), noise.chunk(workers), strict=True))

        def shard_loss(shard: int, parts: list[tuple[torch.Tensor, torch.Tensor]] = parts) -> torch.Tensor:
            pixels, noise = parts[shard]
            latents = model.encode(pixels).latent_dist.mode()  # type: ignore[union-attr]
            spread = latents.detach().std(dim=(0, 2, 3, 4), keepdim=True)
            decoded = model.decode(latents + LATENT_NOISE * spread * noise).sample  # type: ignore[union-attr]
            return _reconstruction_loss(decoded, pixels)  # type: ignore[arg-type]

        loss = gradients(shard_loss)
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimiser.step()
        total += loss
        if (step + 1) % 50 == 0 or step + 1 == steps:
            count = (step % 50) + 1
            log({"stage": stage, "step": step + 1, "loss": total / count, "lr": optimiser.param_groups[0]["lr"],
                 "seconds_per_step": (time.monotonic() - started) / (step + 1 - begin)})  # fmt: skip
            total = 0.0
        late = deadline is not None and deadline.passed and step + 1 < steps
        if (step + 1) % 200 == 0 or late:
            with atomic_file(state_path) as path:
                state = {"model": model.state_dict(), "optimiser": optimiser.state_dict(), "step": step + 1}
                torch.save(state, path)
        if late:
            gradients.close()
            raise OutOfTime
    model.eval().requires_grad_(True)
    if decoder_of is None:
        with torch.no_grad():
            sample = torch.cat([_batch(steps + i, seed, 64, side, [], source) for i in range(8)]) * 2 - 1
            equalise_latents(model, model.encode(sample.to(device)).latent_dist.mode())  # type: ignore[union-attr]
    gradients.close()
    model.save_pretrained(final)
    return model
