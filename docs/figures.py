"""The figures of docs/method.md: what rigid motion looks like in a spectrum, and how the losses answer to broken motion.

    python docs/figures.py         writes docs/spectra.png and docs/strengths.png

Needs matplotlib (``pip install -e ".[pretrain]"`` or ``pip install matplotlib``).
"""

from __future__ import annotations

import math
from pathlib import Path

import matplotlib
import torch
from torch import Tensor

from phys_pipeline.media.corruptions import CORRUPTIONS, corrupt
from phys_pipeline.media.synthetic import textured_clip
from phys_pipeline.spectral import SpectralConfig, SpectralMotionLoss
from phys_pipeline.spectral.energies import BlockEnergies, Lattice, block_energies, make_lattice
from phys_pipeline.spectral.polar import log_radii
from phys_pipeline.spectral.transforms import patch_spectra

matplotlib.use("Agg")
from matplotlib import pyplot as plt

FOLDER = Path(__file__).resolve().parent
FRAMES, SIDE, SEED = 16, 64, 5
MOTIONS: dict[str, dict[str, object]] = {
    "translation, 1.5 px a frame": {"velocity": (1.5, 0.0)},
    "rotation, 6 degrees a frame": {"rotation": math.radians(6)},
    "zoom, 4 % a frame": {"zoom": 0.04},
}
STRENGTHS = (0.0, 0.125, 0.25, 0.5, 0.75, 1.0)
SEEDS = range(20, 32)


def clip(motion: dict[str, object], seed: int) -> Tensor:
    """(1, 3, T, H, W)."""
    return textured_clip(frames=FRAMES, height=SIDE, width=SIDE, seed=seed, **motion).video[None]  # type: ignore[arg-type]


def energies(video: Tensor, config: SpectralConfig) -> tuple[BlockEnergies, Lattice]:
    lattice = make_lattice(SIDE, SIDE, FRAMES, config, video.device, video.dtype)
    limits = (lattice.geometry.limit_y, lattice.geometry.limit_x)
    return block_energies(patch_spectra(video, 1, limits, config.apodise), (0,), FRAMES, lattice, config), lattice


def spectra() -> None:
    """Energy against temporal frequency over each motion's own coordinate; the line is the motion that was rendered."""
    config = SpectralConfig.calibrated(patches=1, scaling_harmonics=8)
    figure, rows = plt.subplots(2, 3, figsize=(9.6, 5.6), layout="constrained", sharey=True)
    for column, (name, motion) in enumerate(MOTIONS.items()):
        clean = clip(motion, SEED)
        for axes, video, kind in (
            (rows[0, column], clean, "clean"),
            (rows[1, column], corrupt(clean, "jitter", 0.5, seed=0), "jittered"),
        ):
            found, lattice = energies(video, config)
            bins = torch.arange(-(FRAMES // 2), (FRAMES + 1) // 2)
            if column == 0:
                half = found.plane[0].sum(dim=1)  # (Kt, Kx), summed over omega_y; mirrored to negative omega_x
                energy = torch.cat([half.flip(0).flip(1)[:, :-1], half], dim=1)
                where = torch.arange(-lattice.geometry.limit_x, lattice.geometry.limit_x + 1)
                times, slope = torch.round(lattice.omega_t * FRAMES / (2 * math.pi)), -1.5 * FRAMES / SIDE
                label = "horizontal frequency (bins)"
            elif column == 1:
                energy, where = found.turn[0], torch.arange(2, 2 * found.turn.shape[2] + 1, 2)
                times, slope, label = bins, -math.radians(6) * FRAMES / (2 * math.pi), "angular harmonic m"
            else:
                energy, where = found.growth[0], torch.arange(1, found.growth.shape[2] + 1)
                period = log_radii(lattice.geometry, config)[1]
                times, slope, label = bins, 0.04 * FRAMES / period, "log-radius harmonic"
            level = (energy / energy.amax()).clamp_min(1e-3).log10()
            axes.pcolormesh(where, times, level, cmap="magma", vmin=-3, vmax=0, shading="nearest")
            line = slope * where.double()
            axes.plot(where, (line + FRAMES / 2) % FRAMES - FRAMES / 2, ".", color="#7fe0ff", markersize=3)
            axes.set_title(f"{name}: {kind}", fontsize=9)
            axes.set_xlabel(label, fontsize=8)
            axes.tick_params(labelsize=7)
    for axes in rows[:, 0]:
        axes.set_ylabel("temporal frequency (bins)", fontsize=8)
    figure.savefig(FOLDER / "spectra.png", dpi=110)


def strengths() -> None:
    """Loss minus that of the clean clip against the strength of each corruption; mean of the seeds and 95 % of their means."""
    figure, panels = plt.subplots(1, 2, figsize=(9.6, 3.4), layout="constrained")
    for axes, config in zip(panels, (SpectralConfig.paper(), SpectralConfig.calibrated()), strict=True):
        loss = SpectralMotionLoss(config)
        for kind in CORRUPTIONS:
            rises = []
            for seed in SEEDS:
                video = clip({"velocity": (1.2, 0.5), "rotation": 0.03}, seed)
                copies = [corrupt(video, kind, strength, seed=seed) if strength else video for strength in STRENGTHS]
                with torch.no_grad():
                    values = loss(torch.cat(copies), "none").loss
                rises.append(values - values[0])
            rise = torch.stack(rises)
            mean, half = rise.mean(dim=0), 1.96 * rise.std(dim=0) / math.sqrt(len(SEEDS))
            axes.errorbar(STRENGTHS, mean, half, marker="o", markersize=3, linewidth=1, capsize=2, label=kind)
        axes.axhline(0, color="black", linewidth=0.7)
        axes.set_title(f"{config.preset} preset", fontsize=9)
        axes.set_xlabel("strength of the corruption", fontsize=8)
        axes.tick_params(labelsize=7)
    panels[0].set_ylabel("loss minus the clean clip's", fontsize=8)
    figure.legend(*panels[1].get_legend_handles_labels(), loc="outside lower center", fontsize=7, ncols=9)
    figure.savefig(FOLDER / "strengths.png", dpi=110)


if __name__ == "__main__":
    torch.set_num_threads(1)
    spectra()
    strengths()
