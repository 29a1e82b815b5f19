"""Polar and log-polar harmonics of a spectrum on the half lattice, as dense linear maps built once per shape.

Resampling (bilinear), whitening and the DFT over angle or log-radius are linear, so each is one matrix from the kept bins to
harmonics. A bin with ``kx < 0`` is read from its mirror image, conjugated where values are complex.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from .config import SpectralConfig
from .lattice import constant, dft_matrix, hann, largest_radius, polar_table
from .transforms import multiplicity

_CPU = torch.device("cpu")


class PolarGeometry(NamedTuple):
    """What the polar slices need to know of the lattice: patch size and largest kept bins."""

    height: int
    width: int
    limit_y: int
    limit_x: int

    @property
    def largest_radius(self) -> float:
        return largest_radius(self.height, self.width, self.limit_y, self.limit_x)


def ring_radii(geometry: PolarGeometry, config: SpectralConfig) -> tuple[float, ...]:
    """Linear ring radii in bins; the paper starts at R / N_r, the calibrated preset where the lattice can be interpolated."""
    outer = geometry.largest_radius
    inner = outer / config.rings if config.polar == "complex" else min(config.inner_radius, outer)
    return tuple(torch.linspace(inner, outer, config.rings, dtype=torch.float64).tolist())


def log_radii(geometry: PolarGeometry, config: SpectralConfig) -> tuple[tuple[float, ...], float]:
    """Log-spaced radii in bins and the period of their DFT in log-radius."""
    outer = geometry.largest_radius
    inner = min(config.inner_radius, outer / 1.5)
    radii = torch.linspace(math.log(inner), math.log(outer), config.radii, dtype=torch.float64).exp()
    return tuple(radii.tolist()), math.log(outer / inner) * config.radii / (config.radii - 1)


def harmonic_orders(config: SpectralConfig) -> tuple[int, ...]:
    """Angular harmonics used. Magnitudes are point-symmetric, so only even orders exist, and real, so m > 0 is enough."""
    if config.polar == "magnitude":
        return tuple(range(2, config.angles // 4 + 1, 2))
    return tuple(order for order in range(-(config.angles // 2), (config.angles + 1) // 2) if order != 0)


@lru_cache(maxsize=16)
def angle_grid(config: SpectralConfig) -> tuple[float, ...]:
    """Angles from +x towards +y (clockwise on the screen): half a turn for magnitudes, a full turn for complex values."""
    count, turn = (config.angles // 2, math.pi) if config.polar == "magnitude" else (config.angles, 2 * math.pi)
    return tuple(turn * index / count for index in range(count))


def _resampling(geometry: PolarGeometry, radii: tuple[float, ...], config: SpectralConfig) -> tuple[Tensor, Tensor]:
    """Bilinear weights (K, R, A) of the half lattice's own bins and of their mirror images, whitened by radius."""
    indices, weights = polar_table(*geometry, radii, angle_grid(config), _CPU, torch.float64)  # (4, R, A)
    limit_y, limit_x = geometry.limit_y, geometry.limit_x
    row, column = indices // (2 * limit_x + 1) - limit_y, indices % (2 * limit_x + 1) - limit_x
    mirrored = column < 0
    sign = torch.where(mirrored, -1, 1)
    target = (sign * row + limit_y) * (limit_x + 1) + sign * column  # (4, R, A)
    weights = weights * torch.tensor(radii, dtype=torch.float64)[:, None] ** config.whiten
    count = (2 * limit_y + 1) * (limit_x + 1)
    own, mirror = torch.zeros(2, count, indices[0].numel(), dtype=torch.float64)
    samples = torch.arange(indices[0].numel()).expand(4, -1)
    for part, chosen in ((own, ~mirrored), (mirror, mirrored)):
        part.index_put_((target.flatten(1), samples), (weights * chosen).flatten(1), accumulate=True)
    shape = (count, *indices.shape[1:])
    return own.view(shape), mirror.view(shape)


@constant
def _angular_map(geometry: PolarGeometry, config: SpectralConfig, mirrored: bool) -> Tensor:
    """Map (K, R * m), complex, of bins, or of their mirror images, to angular harmonics on rings."""
    parts = _resampling(geometry, ring_radii(geometry, config), config)
    orders = harmonic_orders(config)
    angles = parts[0].shape[2]
    period = tuple(order // 2 for order in orders) if config.polar == "magnitude" else orders
    transform = dft_matrix(angles, period, False, _CPU, torch.float64) / angles  # (m, A)
    return (parts[mirrored].to(transform.dtype) @ transform.T).flatten(1)


@constant
def _log_radius_map(geometry: PolarGeometry, config: SpectralConfig) -> Tensor:
    """Map (K, A * nu), complex, of bin magnitudes to log-radius harmonics at each angle, under a Hann window over log-radius."""
    own, mirror = _resampling(geometry, log_radii(geometry, config)[0], config)
    orders = tuple(range(1, config.scaling_harmonics + 1))
    transform = dft_matrix(config.radii, orders, False, _CPU, torch.float64) * hann(config.radii, _CPU, torch.float64)
    return torch.einsum("nr,kra->kan", transform, (own + mirror).to(transform.dtype)).flatten(1)


@constant
def _magnitude_map(
    geometry: PolarGeometry, config: SpectralConfig, device: torch.device, dtype: torch.dtype
) -> tuple[Tensor, tuple[int, int]]:
    """Both maps for magnitudes as one real matrix (K, 2 J), and the number of values per angular and per log-radius harmonic.

    Real and imaginary parts are side by side, angular harmonics first. Of a magnitude the mirror image is the same. With complex
    polar values the log-radius map alone.
    """
    growth = _log_radius_map(geometry, config).unflatten(1, (-1, config.scaling_harmonics))
    maps = [_same_energy(growth)]
    if config.polar == "magnitude":
        turn = _angular_map(geometry, config, False) + _angular_map(geometry, config, True)
        maps.insert(0, _same_energy(turn.unflatten(1, (-1, len(harmonic_orders(config))))))
    matrix = torch.view_as_real(torch.cat([part.flatten(1) for part in maps], dim=1)).flatten(1)
    return matrix.to(dtype).to(device), (maps[0].shape[1] if len(maps) == 2 else 0, maps[-1].shape[1])


def _same_energy(maps: Tensor) -> Tensor:
    """The smallest maps (K, r, h) with the same energy of each harmonic h, summed over r, for every input.

    On a small lattice most rings or angles repeat the others: the right singular vectors of nonzero singular values will do.
    """
    # maps: (K, R, h)
    if maps.shape[0] >= maps.shape[1]:
        return maps
    left, sizes, _ = torch.linalg.svd(maps.permute(2, 0, 1), full_matrices=False)  # (h, K, K), (h, K)
    rank = int((sizes > 1e-14 * sizes.max()).sum(dim=1).max())
    return (left * sizes[:, None])[..., :rank].permute(1, 2, 0)


def magnitude_harmonics(values: Tensor, geometry: PolarGeometry, config: SpectralConfig) -> Tensor:
    """Polar harmonics (..., J), complex, of magnitudes (..., K) on the half lattice, or of their temporal transform, which is
    complex; see :func:`split_harmonics`. Their energies are those of all rings and angles."""
    # values: (..., K)
    matrix, _ = _magnitude_map(geometry, config, values.device, values.real.dtype)
    if values.is_complex():
        return values @ torch.view_as_complex(matrix.unflatten(1, (-1, 2)))
    return torch.view_as_complex((values @ matrix).unflatten(-1, (-1, 2)))


def complex_harmonics(values: Tensor, geometry: PolarGeometry, config: SpectralConfig) -> Tensor:
    """Angular harmonics of complex bins (..., K), as printed: (..., R * m)."""
    # values: (..., K)
    own, mirror = (_angular_map(geometry, config, mirrored).to(values) for mirrored in (False, True))
    return values @ own + values.conj() @ mirror


def split_harmonics(values: Tensor, geometry: PolarGeometry, config: SpectralConfig) -> tuple[Tensor, Tensor]:
    """What :func:`magnitude_harmonics` puts side by side (..., J): angular (..., R, m) and log-radius harmonics (..., A, nu).

    R and A are the numbers of rings and angles, or fewer where fewer have the same energy.
    """
    # values: (..., J)
    _, (rings, angles) = _magnitude_map(geometry, config, values.device, values.real.dtype)
    orders, harmonics = len(harmonic_orders(config)), config.scaling_harmonics
    turn, growth = values.split([rings * orders, angles * harmonics], dim=-1)
    return turn.view(*turn.shape[:-1], rings, orders), growth.view(*growth.shape[:-1], angles, harmonics)


def ring_energy(power: Tensor, geometry: PolarGeometry, config: SpectralConfig) -> Tensor:
    """Energy in soft concentric rings (..., R) of the power (..., K) on the half lattice. Paper: sigmoid edges, sharpness 20."""
    # power: (..., K)
    return power @ _ring_masks(geometry, config, power.device, power.dtype)


@constant
def _ring_masks(geometry: PolarGeometry, config: SpectralConfig, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Soft concentric rings on the half lattice with sigmoid edges: (K, R). A bin counts as often as it stands for one."""
    shorter = min(geometry.height, geometry.width)
    y = torch.arange(-geometry.limit_y, geometry.limit_y + 1, dtype=torch.float64) * shorter / geometry.height
    x = torch.arange(geometry.limit_x + 1, dtype=torch.float64) * shorter / geometry.width
    radius = torch.sqrt(y[:, None] ** 2 + x[None, :] ** 2).flatten()[:, None] / geometry.largest_radius
    edges = torch.linspace(0, 1, config.rings + 1, dtype=torch.float64)
    sharpness = config.ring_sharpness * config.rings
    masks = torch.sigmoid(sharpness * (radius - edges[:-1])) * torch.sigmoid(sharpness * (edges[1:] - radius))
    counts = multiplicity(geometry.limit_y, geometry.limit_x, _CPU, torch.float64).reshape(-1, 1)
    return (masks * counts).to(dtype).to(device)
