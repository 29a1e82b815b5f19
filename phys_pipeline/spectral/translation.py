"""Translation slice: a translating patch has its energy on the plane omega_t + v . omega_xy = 0.

Paper, "Translational Motion Loss".
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from .config import SpectralConfig
from .lattice import complex_dtype, constant


class TranslationResult(NamedTuple):
    """Loss (N,), velocity (N, 2) in samples per frame (x right, y down), both per block."""

    loss: Tensor
    velocity: Tensor


class PlaneDesign(NamedTuple):
    """What the plane is fitted on, over all F bins of a block: see :func:`plane_design`.

    ``columns`` (F, 2 or 3): omega_x, omega_y and, where the plane needn't pass the origin, ones; ``products`` (F, 4 or 9) of each
    two of them; ``target`` (F,) = -omega_t; ``counts`` (F,), how often a bin counts, or None. All in a unit of ``unit`` radians.
    """

    columns: Tensor
    products: Tensor
    target: Tensor
    counts: Tensor | None
    unit: float


def plane_design(omega: tuple[Tensor, Tensor, Tensor], config: SpectralConfig, counts: Tensor | None = None) -> PlaneDesign:
    """Design of the plane fit.

    Args:
        omega: omega_t (Kt,), omega_y (Ky,), omega_x (Kx,) in radians per sample.
        counts: (Ky, Kx) for a half lattice of a point-symmetric spectrum: how often a bin counts. Its plane passes the origin.
    """
    unit = 1.0 if config.normalise else math.pi
    omega_t, omega_y, omega_x = torch.meshgrid(*(axis / unit for axis in omega), indexing="ij")
    columns = torch.stack([omega_x, omega_y] if counts is not None else [omega_x, omega_y, torch.ones_like(omega_x)], dim=-1)
    columns = columns.flatten(0, 2)
    repeated = None if counts is None else counts.flatten().repeat(len(omega[0]))
    return PlaneDesign(columns, _products(columns), -omega_t.flatten(), repeated, unit)


def _products(columns: Tensor) -> Tensor:
    """Products of each two columns of a design: (F, P) -> (F, P^2)."""
    return (columns[:, :, None] * columns[:, None, :]).flatten(1)


def soft_gate(energy: Tensor, config: SpectralConfig) -> Tensor:
    """Soft gate g = sigmoid(f (E / Emax - tau_E)), (N, F)."""
    # energy: (N, F)
    largest = energy.amax(dim=1, keepdim=True)
    relative = energy * (config.gate_sharpness / torch.where(largest > 0, largest, 1.0))
    return torch.sigmoid(relative - config.gate_sharpness * config.gate_threshold)


def energy_weights(energy: Tensor, config: SpectralConfig) -> Tensor:
    """Weights g E (or g alone, as printed) with the soft gate g; (N, F), not normalised."""
    # energy: (N, F)
    gate = soft_gate(energy.detach() if config.gradient == "numerator" else energy, config)
    return gate * energy if config.energy_weighting else gate


def weighted_plane(weights: Tensor, design: Tensor, target: Tensor, ridge: float) -> Tensor:
    """Ridge weighted least squares of ``target`` (N, F) on ``design`` (F, P) for unit-sum weights (N, F); returns (N, P)."""
    return _weighted_plane(weights, design, _products(design), target, ridge)


def _weighted_plane(weights: Tensor, design: Tensor, products: Tensor, target: Tensor, ridge: float) -> Tensor:
    # weights, target: (N, F); design: (F, P); products: (F, P^2)
    parameters = design.shape[1]
    normal = (weights @ products).unflatten(-1, (parameters, parameters))
    moment = (weights * target) @ design
    normal = normal + _ridge(parameters, max(ridge, 1e-9), design.device, design.dtype)
    factor, failed = torch.linalg.cholesky_ex(normal)
    solution = torch.cholesky_solve(moment[..., None], factor)[..., 0]
    if bool(failed.any()):  # pragma: no cover - the ridge keeps the normal matrix positive definite
        solution = torch.where(failed[:, None] > 0, (torch.linalg.pinv(normal) @ moment[..., None])[..., 0], solution)
    return solution


@constant
def _ridge(parameters: int, ridge: float, device: torch.device, dtype: torch.dtype) -> Tensor:
    return ridge * torch.eye(parameters, dtype=dtype, device=device)


def robust_velocity(
    weights: Tensor, design: PlaneDesign, target: Tensor, start: Tensor, scale: float, iterations: int = 3
) -> Tensor:
    """Iteratively re-weighted (Cauchy, ``scale`` = one temporal bin) refinement of the plane, for reports; (N, 2)."""
    solution = start
    for _ in range(iterations):
        residual = solution @ design.columns.T - target
        robust = weights / (1 + (residual / scale) ** 2)
        robust = robust / robust.sum(dim=1, keepdim=True).clamp_min(torch.finfo(weights.dtype).tiny)
        solution = _weighted_plane(robust, design.columns, design.products, target, 1e-4)
    return solution[:, :2]


@torch.no_grad()
def correlation_velocity(cross: Tensor, size: tuple[int, int], omega: tuple[Tensor, Tensor]) -> Tensor:
    """Displacement between neighbouring frames at the peak of their averaged cross-correlation, (N, 2): x, y in samples.

    Exact to half a sample, or a thirteenth of the shortest kept period where that is more, and, unlike the plane fit, not limited
    by the temporal Nyquist frequency. It reaches a quarter of the patch.

    Args:
        cross: (N, Ky, Kx), whitened cross-spectrum summed over time and channels; of a half lattice, with kx > 0 counted twice.
        size: (height, width) of the patch; omega: omega_y (Ky,) and omega_x (Kx,) in radians per sample.
    """
    # cross: (N, Ky, Kx)
    moves, lag, waves_y, waves_x = _moves(size, *(tuple(axis.tolist()) for axis in omega), cross.device, cross.real.dtype)
    surface = torch.view_as_real(waves_y @ cross).flatten(-2) @ waves_x  # (N, Dy, Dx)
    # of two equal peaks the slower motion; a stationary patch stays at zero
    surface = torch.addcmul(surface, surface.abs().amax(dim=(1, 2), keepdim=True), lag, value=-1e-6)
    return moves[surface.flatten(1).argmax(dim=1)]


@constant
def _moves(
    size: tuple[int, int], omega_y: tuple[float, ...], omega_x: tuple[float, ...], device: torch.device, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Displacements to try (Dy Dx, 2), their lengths over the largest (Dy, Dx), and the inverse transform of a cross-spectrum.

    The transform is ``exp(i omega_y d)`` (Dy, Ky), then the real part of ``exp(i omega_x d)`` as a real matrix (2 Kx, Dx).
    """
    steps_y, steps_x = (_displacements(side, axis) for side, axis in zip(size, (omega_y, omega_x), strict=True))
    angle_y, angle_x = (
        steps[:, None] * torch.tensor(axis, dtype=torch.float64) for steps, axis in ((steps_y, omega_y), (steps_x, omega_x))
    )
    moves = torch.stack(torch.meshgrid(steps_y, steps_x, indexing="ij")[::-1], dim=-1)
    length = moves.square().sum(dim=-1).sqrt()
    waves_x = torch.stack([torch.cos(angle_x), -torch.sin(angle_x)], dim=-1).flatten(1).T
    waves_y = torch.polar(torch.ones_like(angle_y), angle_y).to(complex_dtype(dtype))
    lag = length / length.max().clamp_min(1)
    return moves.flatten(0, 1).to(dtype).to(device), lag.to(dtype).to(device), waves_y.to(device), waves_x.to(dtype).to(device)


def _displacements(side: int, omega: tuple[float, ...]) -> Tensor:
    """Displacements to try along one axis, symmetric around zero, (D,)."""
    shortest = 2 * math.pi / max(*map(abs, omega), 2 * math.pi / side)
    step = max(0.5, shortest / 13)
    reach = int(side / 4 / step)
    return step * torch.arange(-reach, reach + 1, dtype=torch.float64)


def translation_loss(
    energy: Tensor,
    design: PlaneDesign,
    frames: int,
    floor: Tensor,
    config: SpectralConfig,
    displacement: Tensor | None = None,
    *,
    report: bool = True,
) -> TranslationResult:
    """Weighted squared distance of the energy to its best plane.

    Args:
        energy: (N, Kt, Ky, Kx), whitened, summed over channels.
        design: of the same bins.
        frames: T of the window; one temporal bin is 2 pi / T.
        floor: (N,) energy added to the denominator (eps_E times the still part's).
        displacement: (N, 2), see :func:`correlation_velocity`: distances are unwrapped around its plane. None: as they are.
        report: refine the velocity; otherwise it is that of the loss's plane.

    Calibrated: ``sum w r^2 / (sum w (omega_t - mean)^2 + (2 pi / T)^2)``, the unexplained share of the variance of omega_t.
    Paper: ``sum g r^2 / sum g`` in units where the Nyquist frequency is 1.
    """
    # energy: (N, Kt, Ky, Kx); floor: (N,); displacement: (N, 2)
    energy = energy.flatten(1)
    # numerator: each bin's share of the loss is its energy times a constant; at the optimum the plane's own gradient vanishes
    with torch.set_grad_enabled(torch.is_grad_enabled() and config.gradient == "full"):
        gate = soft_gate(energy, config)
        if design.counts is not None:
            gate = gate * design.counts
        raw = gate * energy if config.energy_weighting else gate
        total = raw.sum(dim=1, keepdim=True)
        if config.energy_weighting:
            total = total + floor[:, None]
        total = torch.where(total > 0, total, 1.0)
        weights = raw / total
        target, period = design.target, 2 * math.pi / design.unit
        if displacement is not None:
            turns = torch.addmm(target, displacement, design.columns[:, :2].T, beta=-1)
            turns = torch.round(turns * ((1 - 1e-6) / period))  # halves towards zero, in a mirrored clip too
            target = torch.add(target, turns, alpha=period)
        plane = _weighted_plane(weights, design.columns, design.products, target, config.ridge)
        residual = plane @ design.columns.T - target  # (N, F)
        if displacement is not None:
            residual = torch.sub(residual, torch.round(residual.detach() / period), alpha=period)  # to the nearest copy
        cost, scale = gate * residual.square(), total[:, 0]
        if config.normalise:  # by the variance of the aliased target: a false velocity must not pay
            square = weights @ design.target.square()
            if design.counts is None:  # symmetric bins have a mean of zero
                square = square - (2 - weights.sum(dim=1)) * (weights @ design.target).square()
            scale = scale * (square + (2 * math.pi / frames) ** 2)
    loss = (cost * energy if config.energy_weighting else cost).sum(dim=1) / scale
    if not report:
        return TranslationResult(loss, plane.detach()[:, :2])
    with torch.no_grad():
        bin_width = 2 * math.pi / frames / design.unit
        robust = robust_velocity(weights.detach(), design, target, plane.detach(), bin_width)
    return TranslationResult(loss, robust)
