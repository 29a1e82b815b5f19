"""`repaired`: the power spectrum of x0-hat against the clean clip's and its motion, amplitudes kept (ours).

The paper's loss judges x0-hat by itself and is lowered by fading, blurring and freezing. Here the motion is that of the clean
clip, power is counted against the clean clip's, and power that is lost costs too. Like the paper's it sees powers, no phases:
what is moved as a whole costs nothing. Evidence: docs/results/gradient_test_repaired.md.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from phys_pipeline.spectral import SpectralConfig
from phys_pipeline.spectral.anchored import clip_energy, motion_band
from phys_pipeline.spectral.blocks import Place, block_power, faded_blocks, half_plane, sum_over_blocks
from phys_pipeline.spectral.lattice import constant

LOST_WEIGHT = 0.5  # of 0.2 to 1, chosen on the gradient test's tuning seeds
_EDGES = (math.pi / 8, math.pi / 4, math.pi / 2)  # radians per sample between the four octaves of spatial frequency


class Clean(NamedTuple):
    """What the clean clips decide of P blocks, and their energies (K,)."""

    band: Tensor  # (K, P, t, h, w // 2 + 1), 1 on the motion
    power: Tensor  # (K, P, t, h, w // 2 + 1)
    kept: Tensor  # (K, P, h, w // 2 + 1), share of the power that the best prediction has
    energy: Tensor


class Repaired:
    """Power gained off the motion, plus `lost_weight` times power lost: over blocks and frequencies, over the clip's energy.

    With P the power of x0-hat at a frequency, P0 the clean clip's, and b the band around the clean clip's own motion (as in
    `anchored`: 1 on it)::

        L = sum (1 - b) relu(P - P0) + lost_weight relu(g P0 - P),    g = S / (S + N)

    over the energy of the clean clip's moving part and a tenth of its still part's. A prediction from noise of power
    N = (sigma / (1 - sigma))^2 can at best have g P0 (Wiener; S is the clip's mean power in an octave): the expected spectrum of
    the error is subtracted, and honest blur costs nothing. 0 at the clean clip.

    Args:
        config: ``window``, ``stride``, ``patches``, ``minimum_patch_side`` and ``band_sigma`` are used.
        white_noise: the video is what was noised (latents), so N is known; False (decoded pixels): N is 0.
    """

    needs_reference, one_number = True, False

    def __init__(self, config: SpectralConfig, *, lost_weight: float = LOST_WEIGHT, white_noise: bool = False) -> None:
        self.config, self.lost_weight, self.white_noise = config, lost_weight, white_noise

    def of_clean(self, reference: Tensor, sigma: Tensor) -> Clean:
        # reference: (K, C, T, H, W); sigma: (K,)
        mean = reference.mean(dim=2, keepdim=True)
        noise = (sigma / (1 - sigma).clamp_min(1e-3)).square() if self.white_noise else torch.zeros_like(sigma)
        bands, powers, shares = [], [], []
        for place, fade in self._blocks(reference):
            block = reference[place]
            power = block_power(block * fade)
            masks = _octaves(*block.shape[3:], block.device, block.dtype)  # (h, w // 2 + 1, octaves)
            average = torch.einsum("ktyx,yxo->ko", power, masks) / (power.shape[1] * masks.sum(dim=(0, 1)).clamp_min(1))
            white = noise[:, None] * block.shape[1] * fade.square().mean()  # power of the noise in one bin, all channels
            share = torch.where(white > 0, average / (average + white), 1.0)
            bands.append(motion_band((block - mean[:, :, :, place[3], place[4]]) * fade, self.config.band_sigma))
            powers.append(power)
            shares.append(torch.einsum("ko,yxo->kyx", share, masks))
        band, power, kept = (torch.stack(parts, dim=1) for parts in (bands, powers, shares))
        return Clean(band, power, kept, clip_energy(reference))

    def __call__(self, video: Tensor, clean: Clean) -> Tensor:  # (K, C, T, H, W) -> (K,)
        blocks = self._blocks(video)

        def of_block(index: int, block: Tensor) -> Tensor:  # (K, C, t, h, w)
            power, usual = block_power(block * blocks[index][1]), clean.power[:, index]
            gained = (1 - clean.band[:, index]) * torch.relu(power - usual)
            lost = torch.relu(clean.kept[:, index, None] * usual - power)
            twice = half_plane(*block.shape[3:], block.device, block.dtype)[2]
            return ((gained + self.lost_weight * lost) * twice).sum(dim=(1, 2, 3))

        return sum_over_blocks(video, [place for place, _ in blocks], of_block) / clean.energy

    def _blocks(self, video: Tensor) -> list[tuple[Place, Tensor]]:
        return list(faded_blocks(video.shape, self.config, video.device, video.dtype))


@constant
def _octaves(height: int, width: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """1 in the octave of spatial frequency that a bin of the half spectrum lies in, else 0: (h, w // 2 + 1, octaves)."""
    omega_y, omega_x, _ = half_plane(height, width, device, dtype)
    radius = (omega_y[:, None] ** 2 + omega_x**2).sqrt()
    octave = torch.bucketize(radius, torch.tensor(_EDGES, device=device, dtype=dtype))
    return torch.nn.functional.one_hot(octave, len(_EDGES) + 1).to(dtype)
