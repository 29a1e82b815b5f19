"""Predicted clean clips of the embedded model: how wrong they are at each noise level, and where each form's gradient points.

The model is the one in phys_pipeline/assets, its clips are drawn from its own world with seeds that its training never used, and
"the clip" below is what its autoencoder makes of it.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from benchmarks.descent import forms, gradient, norm
from phys_pipeline.families.hunyuan_video import HunyuanVideoFamily
from phys_pipeline.media.synthetic import MOTIONS, SyntheticClip, canonical_caption, make_clip
from phys_pipeline.spectral.lattice import apodisation, cut, kept_bins, spatial_spectrum, time_spectrum

SEED = 70000  # of the first clip
BATCH = 8
COMPARED = ("paper", "absolute", "absolute, full gradient", "translation", "anchored")


class World:
    """The embedded model, loaded when first used."""

    def __init__(self) -> None:
        self.family = HunyuanVideoFamily()
        self._vae: Any = None

    @property
    def vae(self) -> Any:
        if self._vae is None:
            self._vae = self.family.load("vae", "tiny").requires_grad_(False)
        return self._vae

    def clip(self, seed: int, shape: str | None = None, motion: str | None = None) -> SyntheticClip:
        return make_clip((seed, 31), shape=shape, motion=motion, spread=0.25)

    def encode(self, pixels: Tensor) -> Tensor:
        """Latents (B, 16, T, h, w) of pixels (B, 3, T, H, W) in [0, 1]."""
        return self.family.encode_video(self.vae, pixels)

    def decode(self, latents: Tensor) -> Tensor:
        """Pixels in [0, 1], with gradient."""
        return self.family.decode_video(self.vae, latents)


def predictions(world: World, sigma: float, count: int) -> list[dict[str, Any]]:
    """A row per clip: energy of the error over that of the clip, losses, and the cosine between descent and the way home."""
    pipeline = world.family.load("pipeline", "tiny")
    rows: list[dict[str, Any]] = []
    for first in range(0, count, BATCH):
        seeds = range(SEED + first, SEED + min(first + BATCH, count))
        clips = [world.clip(seed, motion=MOTIONS[seed % 8]) for seed in seeds]  # the ninth is stillness
        conditioning = world.family.encode_text(pipeline, [canonical_caption(c.colour, c.shape, c.motion) for c in clips])
        x0 = world.encode(torch.stack([clip.video for clip in clips]))
        noise = torch.stack([torch.randn(x0.shape[1:], generator=torch.Generator().manual_seed(seed)) for seed in seeds])
        levels = torch.full((len(clips),), sigma)
        x_t = world.family.path.corrupt(x0, noise, levels)
        with torch.no_grad():
            raw = pipeline.transformer(**world.family.inputs(x_t, levels, conditioning))
            x0_hat = world.family.path.clean(world.family.prediction(raw, x_t), x_t, levels)
            clean, predicted = world.decode(x0), world.decode(x0_hat)
        found = forms(clean)
        home = clean - predicted
        share = whitened_energy(predicted - clean) / whitened_energy(clean)
        values = {name: (found[name](predicted).detach(), found[name](clean).detach()) for name in COMPARED}
        cosines = {}
        for name in COMPARED:
            steep = gradient(found[name], predicted)
            cosines[name] = (-(steep * home).flatten(1).sum(1) / (norm(steep) * norm(home)).flatten().clamp_min(1e-30)).tolist()
        for index, clip in enumerate(clips):
            rows.append({
                "source": "prediction", "sigma": sigma, "clip": f"{seeds[index]}", "motion": clip.motion,
                "error": float(share[index]),
                "loss": {name: float(predicted_loss[index]) for name, (predicted_loss, _) in values.items()},
                "clean loss": {name: float(clean_loss[index]) for name, (_, clean_loss) in values.items()},
                "cosine": {name: cosine[index] for name, cosine in cosines.items()},
            })  # fmt: skip
    return rows


def whitened_energy(video: Tensor) -> Tensor:
    """Energy (B,) that the calibrated loss sees: 3 x 3 faded patches, moving part, kept frequencies, times |omega|^2."""
    # video: (B, C, T, H, W)
    blocks = cut(video - video.mean(dim=2, keepdim=True), 16, 8, 3)[0].flatten(1, 2)  # (B, P, C, t, h, w)
    height, width = blocks.shape[-2:]
    rows, columns = (tuple(kept_bins(side, 0.3)) for side in (height, width))
    faded = blocks.flatten(0, 1) * apodisation(height, width, video.device, video.dtype)
    spectrum = time_spectrum(spatial_spectrum(faded, rows, columns), tuple(range(blocks.shape[3])), dim=2)
    omega_y, omega_x = (2 * math.pi / side * torch.tensor(bins) for side, bins in ((height, rows), (width, columns)))
    whitened = spectrum.abs().square() * (omega_y[:, None] ** 2 + omega_x**2)
    return whitened.unflatten(0, blocks.shape[:2]).sum(dim=(1, 2, 3, 4, 5))
