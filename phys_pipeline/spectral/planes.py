"""The spectra behind the three slices of one window, for pictures: energy over time and space, and the line that each slice fits.

One patch that is the whole frame, with the calibrated preset; the loss itself looks at patches. Coherent motion lies on a line:
``omega_t = -speed * omega_s`` along the direction of translation, ``omega_t = -m * Omega`` over angular harmonics m,
``omega_t = nu * c * zoom`` over log-radius harmonics nu (paper, the three slices).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from .config import SpectralConfig
from .energies import BlockEnergies, Lattice, block_energies, config_at, make_lattice, spatial_limits
from .lattice import window_power
from .polar import harmonic_orders, log_radii
from .rotation import rotation_loss
from .scaling import radial_centroid, scaling_loss
from .transforms import patch_spectra
from .translation import correlation_velocity, translation_loss

_STILL = 0.05  # pixels per frame: below it a direction means nothing, and the x axis is taken


class Plane(NamedTuple):
    """Energy (T, K) over temporal frequency ``omega_t`` (T,), radians per frame, and ``columns`` (K,); the line of the fit is
    ``omega_t = slope * column``, modulo 2 pi."""

    energy: Tensor
    omega_t: Tensor
    columns: Tensor
    slope: float


class MotionPlanes(NamedTuple):
    """``translation``: columns are spatial frequencies along ``direction`` (x, y), a unit vector, in radians per pixel.
    ``rotation``: columns are angular harmonics m, the slope is minus the radians per frame (clockwise positive).
    ``scaling``: columns are log-radius harmonics nu, the slope is ``2 pi / period`` times the growth per frame.
    """

    translation: Plane
    direction: tuple[float, float]
    rotation: Plane
    scaling: Plane
    period: float


@torch.no_grad()
def motion_planes(frames: Tensor, config: SpectralConfig | None = None) -> MotionPlanes:
    """Planes of one window.

    Args:
        frames: (C, T, H, W), floating point, at least 3 frames of 8x8.
        config: with magnitudes as polar values (calibrated).

    Raises ``ValueError`` for another shape, or the paper's preset, whose lattice has no negative frequencies.
    """
    # frames: (C, T, H, W)
    energies, lattice, config = _energies(frames, config)
    count = frames.shape[1]
    floor = config.energy_floor * window_power(count, frames.device, torch.float32) * energies.still
    cross = energies.cross.sum(dim=1) * lattice.measure
    moved = correlation_velocity(cross, lattice.geometry[:2], (lattice.omega_y, lattice.omega_x))
    velocity = translation_loss(energies.plane, lattice.design, count, floor, config, moved).velocity[0]
    turning = float(rotation_loss(energies.turn, None, energies.turn_floor, config).rotation[0])
    growth = scaling_loss(energies.growth, None, energies.growth_floor, lattice.geometry, config)
    period = log_radii(lattice.geometry, config)[1]
    speed = float(velocity.norm())
    direction = (float(velocity[0]) / speed, float(velocity[1]) / speed) if speed > _STILL else (1.0, 0.0)
    bins = 2 * math.pi / count * torch.arange(-(count // 2), (count + 1) // 2, dtype=torch.float32)
    orders = torch.tensor(harmonic_orders(config), dtype=torch.float32)
    harmonics = torch.arange(1, config.scaling_harmonics + 1, dtype=torch.float32)
    return MotionPlanes(
        _along(energies.plane[0], lattice, direction, -float(velocity @ velocity.new_tensor(direction))),
        direction,
        Plane(energies.turn[0], bins, orders, -turning),
        Plane(energies.growth[0], bins, harmonics, float(growth.zoom[0]) * 2 * math.pi / period),
        period,
    )


@torch.no_grad()
def centroid_over_time(frames: Tensor, config: SpectralConfig | None = None) -> Tensor:
    """Mean ring of each frame's energy (T,), without its mean brightness, as a share of the largest kept frequency.

    It falls while content grows and rises while it shrinks. Still parts count, or a frame near the mean would seem finer than the
    others. Arguments and errors as :func:`motion_planes`.
    """
    # frames: (C, T, H, W)
    config = replace(config if config is not None else SpectralConfig.calibrated(), remove_mean=False)
    level = frames.float().mean(dim=(0, 2, 3), keepdim=True)
    energies, _, config = _energies(frames.float() - level + 0.5, config)  # kept means are taken for a level of one half
    assert energies.rings is not None
    return radial_centroid(energies.rings)[0] / config.rings


def _energies(frames: Tensor, config: SpectralConfig | None) -> tuple[BlockEnergies, Lattice, SpectralConfig]:
    """Energies of all frames as one window and one patch."""
    # frames: (C, T, H, W)
    if frames.dim() != 4 or frames.shape[1] < 3 or min(frames.shape[2:]) < 8:
        raise ValueError(f"expected (C, T, H, W) with at least 3 frames of 8x8, got {tuple(frames.shape)}")
    config = config if config is not None else SpectralConfig.calibrated()
    if config.truncation != "signed" or config.polar != "magnitude":
        raise ValueError("planes are drawn for the calibrated preset")
    video = frames.float()[None]
    height, width = video.shape[3:]
    config = config_at(max(height, width), config)
    lattice = make_lattice(height, width, frames.shape[1], config, video.device, video.dtype)
    spectra = patch_spectra(video, 1, spatial_limits(height, width, config), config.apodise)
    return block_energies(spectra, (0,), frames.shape[1], lattice, config), lattice, config


def _along(energy: Tensor, lattice: Lattice, direction: tuple[float, float], slope: float) -> Plane:
    """The energy (Kt, Ky, Kx) of the half lattice summed over frequencies with the same component along ``direction``.

    Each bin is shared linearly between the two nearest of 2 max(Ly, Lx) + 1 columns; the missing half is the mirror image.
    """
    # energy: (Kt, Ky, Kx)
    along = lattice.omega_x[None, :] * direction[0] + lattice.omega_y[:, None] * direction[1]  # (Ky, Kx)
    reach = max(lattice.geometry.limit_y, lattice.geometry.limit_x, 1)
    largest = float(along.abs().max())
    places = (along.flatten() / largest * reach + reach).clamp(0, 2 * reach)
    low = places.floor().clamp(max=2 * reach - 1)
    shares = torch.zeros(places.numel(), 2 * reach + 1)
    rows = torch.arange(places.numel())
    shares[rows, low.long()] = 1 - (places - low)
    shares[rows, low.long() + 1] += places - low
    half = energy.flatten(1) @ shares  # (Kt, K)
    twice = (energy[:, :, 1:].flatten(1) @ shares.view(*along.shape, -1)[:, 1:].flatten(0, 1)).flip(0, 1)
    return Plane(half + twice, lattice.omega_t, torch.linspace(-largest, largest, 2 * reach + 1), slope)
