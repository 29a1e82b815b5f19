"""Training data of the tiny model: a growing pool of encoded clips, batches being a function of (seed, step) alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from phys_pipeline.atomic import atomic_file
from phys_pipeline.models.frame_autoencoder import FrameAutoencoder
from training.tiny_sources import ClipSource

_STREAM = 8
CAPTION_DROPOUT = 0.1


@dataclass(frozen=True)
class Batch:
    """``latents`` (B, C, T, h, w) scaled to unit variance, captions, and what the objective draws: all from (seed, step)."""

    latents: torch.Tensor
    captions: list[str]
    noise: torch.Tensor  # (B, C, T, h, w)
    guidance: torch.Tensor  # (B,), times 1000
    generator: torch.Generator


class LatentPool:
    """Encoded clips in chunks on disk, mapped into memory. Early steps draw from the first chunks, later ones from more."""

    def __init__(
        self, work: Path, autoencoder: FrameAutoencoder, source: ClipSource, *, seed: int, chunk: int, initial: int, largest: int,
        grow_every: int,
    ) -> None:  # fmt: skip
        self.work, self.autoencoder, self.source, self.seed = work, autoencoder, source, seed
        self.chunk, self.initial, self.largest, self.grow_every = chunk, initial, largest, grow_every
        self._latents: list[torch.Tensor] = []
        self._labels: list[Any] = []

    def __len__(self) -> int:
        return len(self._labels)

    def chunks_at(self, step: int) -> int:
        """How many chunks the batch of ``step`` is drawn from."""
        return min(self.largest, self.initial + step // self.grow_every)

    def grow(self, step: int) -> None:
        """Load or make the chunks that ``step`` needs."""
        while len(self._latents) < self.chunks_at(step):
            latents, labels = self._chunk(len(self._latents))
            self._latents.append(latents)
            self._labels += labels

    @torch.no_grad()
    def _chunk(self, index: int) -> tuple[torch.Tensor, list[Any]]:
        path = self.work / "pool" / f"{index:04d}.pt"
        if not path.exists():
            latents: list[torch.Tensor] = []
            labels: list[Any] = []
            device = self.autoencoder.device
            for video, label in self.source.chunk(index, self.chunk):
                encoded = self.autoencoder.encode(video[None].to(device) * 2 - 1).latent_dist.mode()[0]  # type: ignore[union-attr]
                latents.append((encoded * self.autoencoder.config["scaling_factor"]).half().cpu())
                labels.append(label)
            with atomic_file(path) as temporary:
                torch.save({"latents": torch.stack(latents), "labels": labels}, temporary)
        stored = torch.load(path, weights_only=True, mmap=True)
        return stored["latents"], stored["labels"]

    def batch(self, step: int, size: int, one_way: bool = False) -> Batch:
        """The batch of ``step``. Half of the clips are played backwards, with the caption that then fits.

        With ``one_way`` exactly those that then move right, down, clockwise or grow.
        """
        self.grow(step)
        rng = np.random.default_rng((_STREAM, self.seed, step))
        generator = torch.Generator().manual_seed(int(rng.integers(2**62)))
        latents: list[torch.Tensor] = []
        captions: list[str] = []
        while len(latents) < size:
            index = int(rng.integers(self.chunks_at(step) * self.chunk))
            shown = self.source.shown(self._labels[index], rng, one_way)
            if shown is None:
                continue
            backwards, caption = shown
            latent = self._latents[index // self.chunk][index % self.chunk].float()
            latents.append(latent.flip(1) if backwards else latent)
            captions.append("" if rng.random() < CAPTION_DROPOUT else caption)
        stacked = torch.stack(latents)
        guidance = torch.from_numpy(rng.uniform(1, 8, size).astype(np.float32)) * 1000
        noise = torch.randn(stacked.shape, generator=generator)
        return Batch(stacked, captions, noise, guidance, generator)
