"""Training data of the tiny model: a growing pool of encoded synthetic clips, a function of (seed, step) alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from phys_pipeline.atomic import atomic_file
from phys_pipeline.media.synthetic import COLOURS, MOTIONS, REVERSED, SHAPES, is_visible_motion, make_clip, write_caption
from phys_pipeline.models.frame_autoencoder import FrameAutoencoder

_STREAM = 7
_HELD_OUT = 24
PARAPHRASE_SHARE = 0.3
CAPTION_DROPOUT = 0.1

Subject = tuple[str, str, str]  # colour, shape, motion


_ONE_WAY = {
    "moves left": "moves right",
    "moves up": "moves down",
    "rotates counterclockwise": "rotates clockwise",
    "shrinks": "grows",
}


def held_out_subjects() -> list[Subject]:
    """The (colour, shape, motion) triples that no training clip shows, for evaluation; always the same ones."""
    visible = [(c, s, m) for c in COLOURS for s in SHAPES for m in MOTIONS if is_visible_motion(s, m)]
    visible.remove(("red", "square", "moves right"))  # the example of the documentation
    order = np.random.default_rng(20).permutation(len(visible))
    return sorted(visible[i] for i in order[:_HELD_OUT])


@dataclass(frozen=True)
class Batch:
    """``latents`` (B, C, T, h, w) scaled to unit variance, captions, and what the objective draws: all from (seed, step)."""

    latents: torch.Tensor
    captions: list[str]
    noise: torch.Tensor  # (B, C, T, h, w)
    guidance: torch.Tensor  # (B,), times 1000
    generator: torch.Generator


class LatentPool:
    """Encoded clips in chunks on disk and in memory. Early steps draw from the first chunks, later ones from more."""

    def __init__(
        self, work: Path, autoencoder: FrameAutoencoder, *, seed: int, frames: int, side: int, chunk: int, initial: int,
        largest: int, grow_every: int, spread: float = 1.0,
    ) -> None:  # fmt: skip
        self.work, self.autoencoder, self.seed = work, autoencoder, seed
        self.frames, self.side, self.chunk = frames, side, chunk
        self.initial, self.largest, self.grow_every = initial, largest, grow_every
        self._held_out = frozenset(held_out_subjects())
        self.spread = spread
        self._latents: list[torch.Tensor] = []
        self._subjects: list[Subject] = []

    def __len__(self) -> int:
        return len(self._subjects)

    def chunks_at(self, step: int) -> int:
        """How many chunks the batch of ``step`` is drawn from."""
        return min(self.largest, self.initial + step // self.grow_every)

    def grow(self, step: int) -> None:
        """Load or make the chunks that ``step`` needs."""
        while len(self._latents) < self.chunks_at(step):
            latents, subjects = self._chunk(len(self._latents))
            self._latents.append(latents)
            self._subjects += subjects

    @torch.no_grad()
    def _chunk(self, index: int) -> tuple[torch.Tensor, list[Subject]]:
        path = self.work / "pool" / f"{index:04d}.pt"
        if path.exists():
            stored = torch.load(path, weights_only=True)
            return stored["latents"], [tuple(subject) for subject in stored["subjects"]]
        narrowed = () if self.spread == 1.0 else (round(100 * self.spread),)
        rng = np.random.default_rng((_STREAM, self.seed, index, *narrowed))
        latents: list[torch.Tensor] = []
        subjects: list = []
        while len(subjects) < self.chunk:
            clip = make_clip(rng, self.frames, self.side, self.side, spread=self.spread)
            subject = (clip.colour, clip.shape, clip.motion)
            if subject in self._held_out:
                continue
            encoded = self.autoencoder.encode(clip.video[None] * 2 - 1).latent_dist.mode()[0]  # type: ignore[union-attr]
            latents.append((encoded * self.autoencoder.config["scaling_factor"]).half())
            subjects.append(subject)
        stacked = torch.stack(latents)
        with atomic_file(path) as temporary:
            torch.save({"latents": stacked, "subjects": subjects}, temporary)
        return stacked, subjects

    def batch(self, step: int, size: int, one_way: bool = False) -> Batch:
        """The batch of ``step``.

        Half of the clips are played backwards, with the caption that then fits; with ``one_way`` exactly those that then move
        right, down, clockwise or grow.
        """
        self.grow(step)
        rng = np.random.default_rng((_STREAM + 1, self.seed, step))
        generator = torch.Generator().manual_seed(int(rng.integers(2**62)))
        latents: list[torch.Tensor] = []
        captions: list[str] = []
        while len(latents) < size:
            index = int(rng.integers(self.chunks_at(step) * self.chunk))
            colour, shape, motion = self._subjects[index]
            shown = _ONE_WAY.get(motion, motion) if one_way else REVERSED[motion] if rng.random() < 0.5 else motion
            if (colour, shape, shown) in self._held_out:
                continue
            latent = self._latents[index // self.chunk][index % self.chunk].float()
            if shown != motion:
                latent, motion = latent.flip(1), shown
            latents.append(latent)
            caption = write_caption(colour, shape, motion, rng, PARAPHRASE_SHARE)
            captions.append("" if rng.random() < CAPTION_DROPOUT else caption)
        stacked = torch.stack(latents)
        guidance = torch.from_numpy(rng.uniform(1, 8, size).astype(np.float32)) * 1000
        noise = torch.randn(stacked.shape, generator=generator)
        return Batch(stacked, captions, noise, guidance, generator)
