"""`repaired`: energies of x0-hat off and on the clean clip's own motion, amplitudes kept (ours; docs/training_objectives.md).

The paper's loss judges x0-hat by itself and is lowered by fading, blurring and freezing. Here the motion is that of the clean
clip, energies are counted against the clean clip's, and energy lost costs as much as energy off the motion. Like the paper's it
sees energies alone, no phases: a clip may be shifted or repainted at no cost.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from phys_pipeline.spectral import SpectralConfig
from phys_pipeline.spectral.anchored import clip_energy, motion_band
from phys_pipeline.spectral.blocks import block_power, faded_blocks, half_plane, sum_over_blocks
from phys_pipeline.spectral.lattice import constant

_EDGES = (math.pi / 8, math.pi / 4, math.pi / 2)  # radians per sample between the four bands, octaves


class Clean(NamedTuple):
    """What the clean clips decide. Energies (K, P, 2, bands) of P blocks: on and off the motion."""

    band: Tensor  # (K, P, t, h, w // 2 + 1), 1 on the motion
    least: Tensor
    most: Tensor
    energy: Tensor  # (K,)


class Repaired:
    """Energy gained off the motion, plus energy lost on or off it, per block and octave of spatial frequency, over the clip's.

    With E the energies of x0-hat and E0 those of the clean clip::

        L = sum over blocks and bands of relu(E_off - E0_off) + relu(E0_off - R_off - E_off) + relu(E0_on - R_on - E_on)

    over the energy of the clean clip's moving part and a tenth of its still part's. R = S N / (S + N) is the error spectrum that
    even the best prediction from noise of power N = (sigma / (1 - sigma))^2 has, S the clean clip's mean power in the band
    (Wiener): energy that honest blur takes is no loss. 0 at the clean clip.

    Args:
        config: ``window``, ``stride``, ``patches``, ``minimum_patch_side`` and ``band_sigma`` are used.
        white_noise: the video is what was noised (latents), so R is known; False (decoded pixels): R is 0.
    """

    needs_reference, one_number = True, False

    def __init__(self, config: SpectralConfig, *, white_noise: bool = False) -> None:
        self.config, self.white_noise = config, white_noise

    def of_clean(self, reference: Tensor, sigma: Tensor) -> Clean:
        # reference: (K, C, T, H, W); sigma: (K,)
        mean = reference.mean(dim=2, keepdim=True)
        noise = (sigma / (1 - sigma).clamp_min(1e-3)).square() if self.white_noise else torch.zeros_like(sigma)
        bands, energies, residuals = [], [], []
        for place, fade in self._blocks(reference):
            block = reference[place]
            band = motion_band((block - mean[:, :, :, place[3], place[4]]) * fade, self.config.band_sigma)
            energy = _energies(block_power(block * fade), band, block.shape[4])
            each = block.shape[1] * fade.square().mean()  # power of unit noise in one bin, all channels
            white = noise[:, None, None] * _energies(each.expand_as(band), band, block.shape[4])
            bands.append(band)
            energies.append(energy)
            residuals.append(energy * white / (energy + white).clamp_min(torch.finfo(energy.dtype).tiny))
        most = torch.stack(energies, dim=1)
        return Clean(torch.stack(bands, dim=1), most - torch.stack(residuals, dim=1), most, clip_energy(reference))

    def __call__(self, video: Tensor, clean: Clean) -> Tensor:  # (K, C, T, H, W) -> (K,)
        blocks = self._blocks(video)

        def of_block(index: int, block: Tensor) -> Tensor:  # (K, C, t, h, w)
            energy = _energies(block_power(block * blocks[index][1]), clean.band[:, index], block.shape[4])  # (K, 2, bands)
            lost = torch.relu(clean.least[:, index] - energy).sum(dim=(1, 2))
            return lost + torch.relu(energy - clean.most[:, index])[:, 1].sum(dim=1)

        return sum_over_blocks(video, [place for place, _ in blocks], of_block) / clean.energy

    def _blocks(self, video: Tensor) -> list[tuple[tuple[slice, slice, slice, slice, slice], Tensor]]:
        return list(faded_blocks(video.shape, self.config, video.device, video.dtype))


def _energies(power: Tensor, band: Tensor, width: int) -> Tensor:
    """Energy (K, 2, bands) on and off the motion in each octave of spatial frequency; `width` of the block in samples."""
    # power, band: (K, t, h, w // 2 + 1)
    masks = _masks(power.shape[2], width, power.device, power.dtype)
    on = (power * band).sum(dim=1).flatten(1) @ masks
    return torch.stack([on, power.sum(dim=1).flatten(1) @ masks - on], dim=1)


@constant
def _masks(height: int, width: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Which octave a bin of the half spectrum lies in, times how often it counts: (h (w // 2 + 1), bands)."""
    omega_y, omega_x, twice = half_plane(height, width, device, dtype)
    radius = (omega_y[:, None] ** 2 + omega_x**2).sqrt()
    octave = torch.bucketize(radius, torch.tensor(_EDGES, device=device, dtype=dtype))
    return (torch.nn.functional.one_hot(octave, len(_EDGES) + 1) * twice[:, None]).flatten(0, 1).to(dtype)
