"""Translation slice: a translating patch has its energy on the plane omega_t + v . omega_xy = 0.

Paper, "Translational Motion Loss".
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from .config import SpectralConfig


class TranslationResult(NamedTuple):
    """Loss (N,), velocity (N, 2) in samples per frame (x right, y down), both per block."""

    loss: Tensor
    velocity: Tensor


def energy_weights(energy: Tensor, config: SpectralConfig) -> Tensor:
    """Weights g E (or g alone, as printed) with the soft gate g = sigmoid(f (E / Emax - tau_E)); (N, F), not normalised."""
    # energy: (N, F)
    largest = energy.amax(dim=1, keepdim=True)
    if config.gradient == "numerator":
        largest = largest.detach()
    relative = energy / torch.where(largest > 0, largest, torch.ones_like(largest))
    gate = torch.sigmoid(config.gate_sharpness * (relative - config.gate_threshold))
    if config.gradient == "numerator":
        gate = gate.detach()
    return gate * energy if config.energy_weighting else gate


def weighted_plane(weights: Tensor, design: Tensor, target: Tensor, ridge: float) -> Tensor:
    """Ridge weighted least squares of ``target`` (N, F) on ``design`` (F, P) for unit-sum weights (N, F); returns (N, P)."""
    parameters = design.shape[1]
    products = (design[:, :, None] * design[:, None, :]).flatten(1)  # (F, P^2)
    normal = (weights @ products).unflatten(-1, (parameters, parameters))
    moment = (weights * target) @ design
    normal = normal + max(ridge, 1e-9) * torch.eye(design.shape[1], dtype=design.dtype, device=design.device)
    factor, failed = torch.linalg.cholesky_ex(normal)
    solution = torch.cholesky_solve(moment[..., None], factor)[..., 0]
    if bool(failed.any()):  # pragma: no cover - the ridge keeps the normal matrix positive definite
        solution = torch.where(failed[:, None] > 0, (torch.linalg.pinv(normal) @ moment[..., None])[..., 0], solution)
    return solution


def robust_velocity(weights: Tensor, design: Tensor, target: Tensor, start: Tensor, scale: float, iterations: int = 3) -> Tensor:
    """Iteratively re-weighted (Cauchy, ``scale`` = one temporal bin) refinement of the plane, for reports; (N, 2)."""
    solution = start
    for _ in range(iterations):
        residual = solution @ design.T - target
        robust = weights / (1 + (residual / scale) ** 2)
        robust = robust / robust.sum(dim=1, keepdim=True).clamp_min(torch.finfo(weights.dtype).tiny)
        solution = weighted_plane(robust, design, target, 1e-4)
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
    steps_y, steps_x = (_displacements(side, axis) for side, axis in zip(size, omega, strict=True))
    angle_y, angle_x = steps_y[:, None] * omega[0], steps_x[:, None] * omega[1]  # (Dy, Ky), (Dx, Kx)
    rows = torch.complex(torch.cos(angle_y), torch.sin(angle_y)) @ cross  # (N, Dy, Kx)
    surface = rows.real @ torch.cos(angle_x).T - rows.imag @ torch.sin(angle_x).T  # (N, Dy, Dx)
    reach = (steps_y[:, None] ** 2 + steps_x**2).sqrt()
    # of two equal peaks the slower motion; a stationary patch stays at zero
    surface = surface - 1e-6 * surface.abs().amax(dim=(1, 2), keepdim=True) * reach / reach.max().clamp_min(1)
    best = surface.flatten(1).argmax(dim=1)
    row, column = best // len(steps_x), best % len(steps_x)
    return torch.stack([steps_x[column], steps_y[row]], dim=1)


def _displacements(side: int, omega: Tensor) -> Tensor:
    """Displacements to try along one axis, symmetric around zero, (D,)."""
    shortest = 2 * math.pi / max(float(omega.abs().max()), 2 * math.pi / side)
    step = max(0.5, shortest / 13)
    reach = int(side / 4 / step)
    return step * torch.arange(-reach, reach + 1, device=omega.device, dtype=omega.dtype)


def translation_loss(
    energy: Tensor,
    omega: tuple[Tensor, Tensor, Tensor],
    frames: int,
    floor: Tensor,
    config: SpectralConfig,
    displacement: Tensor | None = None,
    counts: Tensor | None = None,
    *,
    report: bool = True,
) -> TranslationResult:
    """Weighted squared distance of the energy to its best plane.

    Args:
        energy: (N, Kt, Ky, Kx), whitened, summed over channels.
        omega: omega_t (Kt,), omega_y (Ky,), omega_x (Kx,) in radians per sample.
        frames: T of the window; one temporal bin is 2 pi / T.
        floor: (N,) energy added to the denominator (eps_E times the still part's).
        displacement: (N, 2), see :func:`correlation_velocity`: distances are unwrapped around its plane. None: as they are.
        counts: (Ky, Kx) for a half lattice of a point-symmetric spectrum: how often a bin counts. Its plane passes the origin.
        report: refine the velocity; otherwise it is that of the loss's plane.

    Calibrated: ``sum w r^2 / (sum w (omega_t - mean)^2 + (2 pi / T)^2)``, the unexplained share of the variance of omega_t.
    Paper: ``sum g r^2 / sum g`` in units where the Nyquist frequency is 1.
    """
    # energy: (N, Kt, Ky, Kx)
    unit = 1.0 if config.normalise else math.pi
    omega_t, omega_y, omega_x = torch.meshgrid(*(axis / unit for axis in omega), indexing="ij")
    columns = [omega_x, omega_y] if counts is not None else [omega_x, omega_y, torch.ones_like(omega_x)]
    design = torch.stack(columns, dim=-1).flatten(0, 2)  # (F, 2 or 3)
    aliased = -omega_t.reshape(-1)  # (F,)
    target = aliased.expand(energy.shape[0], -1)  # (N, F)
    period = 2 * math.pi / unit
    if displacement is not None:
        turns = (displacement @ design[:, :2].T - aliased) / period
        target = aliased + period * torch.round((1 - 1e-6) * turns)  # halves towards zero, in a mirrored clip too
    raw = energy_weights(energy.flatten(1), config)
    if counts is not None:
        raw = raw * counts.flatten().repeat(len(omega[0]))
    total = raw.sum(dim=1, keepdim=True)
    if config.energy_weighting:
        total = total + floor[:, None]
    if config.gradient == "numerator":
        total = total.detach()
    weights = raw / torch.where(total > 0, total, torch.ones_like(total))
    fit_weights = weights.detach() if config.gradient == "numerator" else weights
    plane = weighted_plane(fit_weights, design, target, config.ridge)
    residual = plane @ design.T - target  # (N, F); at the optimum its own gradient vanishes (envelope theorem)
    if displacement is not None:
        residual = residual - period * torch.round(residual.detach() / period)  # to the nearest copy of the plane
    loss = (weights * residual**2).sum(dim=1)
    if config.normalise:
        square = fit_weights @ aliased.square()
        mean = fit_weights @ aliased if counts is None else torch.zeros_like(square)  # symmetric: the mean is zero
        variance = square - (2 - fit_weights.sum(dim=1)) * mean.square()  # of the aliased target: a false velocity must not pay
        loss = loss / (variance + (2 * math.pi / frames) ** 2)
    if not report:
        return TranslationResult(loss, plane.detach()[:, :2])
    with torch.no_grad():
        robust = robust_velocity(fit_weights, design, target, plane.detach(), 2 * math.pi / frames / unit)
    return TranslationResult(loss, robust)
