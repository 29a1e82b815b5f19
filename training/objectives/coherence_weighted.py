"""`coherence_weighted`: the denoising loss counts less where the training clip's own motion is incoherent.

Each space-time block of a clip weighs exp(-L / tau), L its spectral motion loss: the data distribution is tilted towards coherent
motion, as reward-weighted regression does (Peters & Schaal 2007; for diffusion models Lee et al. 2023, arXiv:2302.12192). The
target at every place is still the clip's, so nothing can be gained by fading or freezing. A gate lets the most coherent blocks
weigh alike: without it a small tau leaves most of the weight to a few clips (docs/results/coherence_weights.md).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from phys_pipeline.errors import ConfigError
from phys_pipeline.spectral import SpectralConfig
from phys_pipeline.spectral.blocks import fades
from phys_pipeline.spectral.composite import block_losses
from phys_pipeline.spectral.lattice import patch_starts

log = logging.getLogger(__name__)

_CALIBRATION = 32  # samples whose mean weight is 1
_FEW = 0.1  # share of the blocks that would have the same spread if they weighed alike: under it a warning


def calibration_samples(count: int) -> list[int]:
    """Which samples of a data set of this many :meth:`CoherenceWeights.calibrate` is given: up to 32, evenly over it."""
    some = min(_CALIBRATION, count)
    return [place * count // some for place in range(some)]


class _Blocks(NamedTuple):
    """Losses (p, p, windows), NaN for still blocks; windows' first frames; the video's (T, H, W)."""

    loss: Tensor
    starts: list[int]
    size: tuple[int, int, int]


class CoherenceWeights:
    """1 + strength * (w - 1), w = exp(-L(block) / tau) over its mean, joined by the blocks' fades to one weight per place.

    Blocks are the windows and half-overlapping patches of `config`. Still blocks tell nothing of coherence and weigh 1. The mean
    is that of `calibrate`, not of the batch, so that a sample's weight doesn't depend on its neighbours, the step or the number
    of processes. Block losses are computed once per sample and kept in memory (about 18 numbers per window pair).

    Args:
        gate: share of the moving blocks in [0, 1), the most coherent of `calibrate`, that weigh alike: L counts from the loss of
            the last of them on. 0: every loss counts in full.
        decode: latents -> pixels; None scores the latents.
        drop_first: the first latent frame covers one picture where the others cover several; latents are scored without it.
    """

    def __init__(
        self,
        config: SpectralConfig,
        tau: float = 0.1,
        strength: float = 1.0,
        gate: float = 0.0,
        *,
        decode: Callable[[Tensor], Tensor] | None = None,
        drop_first: bool = False,
    ) -> None:
        self.config, self.tau, self.strength, self.gate = config, tau, strength, gate
        self.decode, self.drop_first = decode, drop_first
        self.free = 0.0  # with a gate, the loss up to which blocks weigh alike
        self.mean = 1.0
        self._known: dict[int, _Blocks] = {}

    def calibrate(self, clips: Iterable[tuple[int, Tensor]]) -> None:
        """Set the gate and the mean weight from (sample, latents (C, T, H, W)) pairs: their moving blocks weigh 1 on average.

        Raises ConfigError where tau is so small that no block would weigh anything.
        """
        losses = torch.cat([self._blocks(sample, x0).loss.flatten() for sample, x0 in clips])
        losses = losses[torch.isfinite(losses)]
        if len(losses) == 0:
            return
        if self.gate:
            self.free = float(losses.quantile(self.gate))
        weights = self._weight(losses.double())  # squares of small weights underflow in single precision
        self.mean = float(weights.mean())
        if self.mean <= 0:
            raise ConfigError(f"coherence_tau={self.tau}: every weight is 0; raise it, or set coherence_gate=0.5")
        share = weights.sum().square() / weights.square().sum() / len(weights)
        log.info(
            "coherence weights: largest %.1f, smallest %.3f; as many as %.0f %% of the moving blocks, all alike, would count",
            weights.max() / self.mean, weights.min() / self.mean, 100 * share,
        )  # fmt: skip
        if share < _FEW:
            log.warning("coherence weights: a few blocks carry them; raise coherence_tau, or set coherence_gate=0.5")

    def __call__(self, x0: Tensor, samples: Sequence[int]) -> Tensor:
        """Weights (B, 1, T, H, W) of the data set's samples `samples`."""
        # x0: (B, C, T, H, W)
        maps = [self._map(self._blocks(sample, clip), clip) for sample, clip in zip(samples, x0, strict=True)]
        return torch.stack(maps)[:, None].to(x0.device)

    @torch.no_grad()
    def _blocks(self, sample: int, x0: Tensor) -> _Blocks:  # (C, T, H, W)
        if sample not in self._known:
            video = self.decode(x0[None].float()) if self.decode is not None else x0[None].float()[:, :, int(self.drop_first) :]
            if bool(torch.isfinite(video).all()):
                result, starts = block_losses(video, self.config)
                still = result.moving_energy[0] == 0  # (P, windows)
                loss = result.composite[0].masked_fill(still, math.nan)
            else:
                log.warning("sample %d is not finite and has no coherence weight: it counts in full", sample)
                loss, starts = torch.full((1, 1), math.nan), [0]
            side = math.isqrt(len(loss))
            size = (video.shape[2], video.shape[3], video.shape[4])
            self._known[sample] = _Blocks(loss.unflatten(0, (side, side)).cpu(), starts, size)
        return self._known[sample]

    def _weight(self, loss: Tensor) -> Tensor:
        """Before normalisation; NaN where the loss is."""
        return torch.exp(-((loss - self.free).clamp_min(0) if self.gate else loss) / self.tau)

    def _map(self, blocks: _Blocks, x0: Tensor) -> Tensor:  # (C, T, H, W) -> (T, H, W)
        frames, height, width = x0.shape[1:]
        side = len(blocks.loss)
        window = min(self.config.window, blocks.size[0]) if len(blocks.starts) > 1 else blocks.size[0]
        time = _shares(blocks.size[0], window, blocks.starts)
        if self.drop_first:  # the first latent frame is one picture, and weighs what the next ones do
            time = _pool(time if self.decode is None else time[:, 1:], frames - 1)
            time = torch.cat([time[:, :1], time], dim=1)
        rows, columns = (_shares(length, *patch_starts(length, side)) for length in blocks.size[1:])
        weight = torch.nan_to_num(self._weight(blocks.loss) / self.mean, nan=1.0)
        parts = (weight.float(), _pool(time, frames), _pool(rows, height), _pool(columns, width))
        return 1 + self.strength * (torch.einsum("yxw,wt,yh,xl->thl", *parts) - 1)


def _shares(length: int, size: int, starts: list[int]) -> Tensor:
    """What part each block has in each of `length` samples (blocks, length); columns sum to one."""
    parts = fades(length, size, tuple(starts), torch.device("cpu"), torch.float32).square()
    shares = torch.zeros(len(starts), length)
    for row, start, part in zip(shares, starts, parts, strict=True):
        row[start : start + size] = part
    return shares


def _pool(shares: Tensor, length: int) -> Tensor:  # (blocks, samples) -> (blocks, length)
    return F.adaptive_avg_pool1d(shares[None], length)[0]
