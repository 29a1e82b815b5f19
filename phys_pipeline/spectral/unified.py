"""The unified residual L_uni: one similarity motion fitted to all spectral samples at once (paper, unified SIM(2) regression).

Motion with velocity v, rotation Omega and zoom alpha puts its energy on
``omega_t + v . omega_xy + Omega m + alpha nu + b = 0``. The fit is ridge weighted least squares of ``-omega_t`` on rows
``[omega_x, omega_y, m, nu, 1]``; the three losses' fits are its slices, with the other columns clamped to zero. Frequencies are
in radians per sample or frame, ``nu`` in radians per unit of log-size.

A clip has no five-dimensional lattice of samples: ``(omega_x, omega_y)`` and ``(m, nu)`` are coordinates of the same energy. Its
samples are therefore a union of lattices of the same clip, each with its own columns active and weights of unit sum:

* ``"slices"``: the lattices of the three losses. The normal matrix is block-diagonal, so the joint fit *is* the three slices and
  L_uni their mean residual.
* ``"mellin"``: the translation lattice and one Fourier-Mellin lattice (magnitude spectrum, harmonics m of angle and nu of
  log-radius together), on which rotation and zoom are fitted jointly: a spiral is one motion.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from .band import best_slope
from .config import SpectralConfig
from .lattice import (
    apodisation,
    dft_matrix,
    hann,
    kept_bins,
    polar_table,
    remove_time_mean,
    resample_polar,
    spatial_spectrum,
    time_spectrum,
    window_power,
)
from .polar import PolarGeometry, angle_grid, harmonic_orders, log_radii, magnitude_harmonics, split_harmonics
from .translation import correlation_velocity, energy_weights, weighted_plane

SLICE_COLUMNS = ((0, 1, 4), (2,), (3,))  # translation, rotation, scaling
Lattice = Literal["slices", "mellin"]
RobustLoss = Literal["squared", "huber", "charbonnier"]


class SpectralSamples(NamedTuple):
    """Samples of N blocks on one set of F frequencies.

    ``design`` (F, 5), rows [omega_x, omega_y, m, nu, 1] with the inactive columns zero; ``omega_t`` (F,); ``weights`` (N, F),
    not negative, of unit sum over each of the ``lattices`` (less where a floor was added, zero for a still block); ``members``
    (3, F): which samples the translation, rotation and scaling slice read; ``start`` (N, 5): parameters around which distances
    are unwrapped; ``frames``: T of the window, one temporal bin is 2 pi / T.
    """

    design: Tensor
    omega_t: Tensor
    weights: Tensor
    members: Tensor
    lattices: int
    start: Tensor
    frames: int


@dataclass(frozen=True)
class UnifiedResult:
    """What the fit found.

    ``parameters`` (N, 5): v_x, v_y in samples, Omega in radians, alpha in log-size, each per frame, and the offset b;
    ``residual`` (N,): L_uni in radians^2 per frame^2, mean over the lattices; ``slice_residuals`` (N, 3): those of the separate
    fits of translation, rotation, scaling on their own samples; ``slice_parameters`` (N, 5): what these fits found.
    """

    parameters: Tensor
    residual: Tensor
    slice_residuals: Tensor
    slice_parameters: Tensor

    @property
    def velocity(self) -> Tensor:
        return self.parameters[:, :2]

    @property
    def rotation(self) -> Tensor:
        return self.parameters[:, 2]

    @property
    def zoom(self) -> Tensor:
        return self.parameters[:, 3]

    @property
    def offset(self) -> Tensor:
        return self.parameters[:, 4]


def unified_residual(
    samples: SpectralSamples,
    *,
    ridge: float = 1e-3,
    loss: RobustLoss = "squared",
    scale: float | None = None,
    wrap: bool = True,
    gradient: Literal["numerator", "full"] = "numerator",
) -> UnifiedResult:
    """Fit all five parameters and return the residual.

    The slices' closed forms initialise the fit; one Gauss-Newton step follows: for ``"squared"`` it is exact (the problem is
    quadratic), for the robust losses it is one step of iteratively re-weighted least squares, in the slices too.

    Args:
        samples: see :class:`SpectralSamples` and :func:`clip_samples`.
        ridge: lambda, on weights of unit sum.
        loss: ``rho(r)``, each about r^2 for small r and about ``2 scale |r|`` for large.
        scale: where the robust losses turn from squared to linear, radians per frame; None: one temporal bin.
        wrap: distances modulo one temporal period, around ``samples.start``; False: as they are.
        gradient: ``"numerator"``: parameters are constants, so adding energy never lowers the residual; ``"full"``: through them.

    Raises:
        ValueError: an unknown ``loss`` or ``gradient``, or a ``scale`` that is not positive.
    """
    if loss not in ("squared", "huber", "charbonnier") or gradient not in ("numerator", "full"):
        raise ValueError(f"loss={loss!r}, gradient={gradient!r}: use squared, huber or charbonnier; numerator or full")
    scale = 2 * math.pi / samples.frames if scale is None else scale
    if not scale > 0:
        raise ValueError(f"scale must be positive, not {scale}")
    design, weights = samples.design, samples.weights
    fit_weights = weights.detach() if gradient == "numerator" else weights
    aliased = (-samples.omega_t).expand(weights.shape[0], -1)  # (N, F)

    def unwrapped(columns: tuple[int, ...]) -> Tensor:
        """-omega_t, moved by whole periods to where ``start``, with the other columns clamped, expects it; (N, F)."""
        if not wrap:
            return aliased
        expected = samples.start.detach()[:, list(columns)] @ design[:, list(columns)].T
        return aliased + 2 * math.pi * torch.round((expected - aliased) / (2 * math.pi))

    def refine(used: Tensor, columns: tuple[int, ...], target: Tensor, parameters: Tensor) -> Tensor:
        """One Gauss-Newton step from ``parameters`` (N, P) on some columns and weights (N, F)."""
        part = design[:, list(columns)]
        return weighted_plane(used * robust_weight(parameters @ part.T - target, loss, scale), part, target, ridge)

    initial, separate = torch.zeros_like(weights[:, :5]), torch.zeros_like(weights[:, :5])
    residuals = []
    for columns, member in zip(SLICE_COLUMNS, samples.members.to(weights.dtype), strict=True):
        part, index, target = design[:, list(columns)], torch.tensor(columns, device=design.device), unwrapped(columns)
        closed_form = weighted_plane(fit_weights * member, part, target, ridge)
        found = closed_form if loss == "squared" else refine(fit_weights * member, columns, target, closed_form)
        initial, separate = initial.index_copy(1, index, closed_form), separate.index_copy(1, index, found)
        residuals.append((weights * member * robust_loss(found @ part.T - target, loss, scale)).sum(dim=1))
    everything = (0, 1, 2, 3, 4)
    target = unwrapped(everything)
    parameters = refine(fit_weights, everything, target, initial)
    residual = (weights * robust_loss(parameters @ design.T - target, loss, scale)).sum(dim=1) / samples.lattices
    return UnifiedResult(parameters, residual, torch.stack(residuals, dim=1), separate)


def robust_loss(residual: Tensor, loss: RobustLoss, scale: float) -> Tensor:
    """rho(r): r^2; Huber: r^2 up to s = ``scale``, 2 s |r| - s^2 beyond; Charbonnier: 2 s^2 (sqrt(1 + r^2 / s^2) - 1)."""
    if loss == "squared":
        return residual**2
    if loss == "huber":
        size = residual.abs()
        return torch.where(size <= scale, residual**2, 2 * scale * size - scale**2)
    return 2 * scale**2 * (torch.sqrt(1 + (residual / scale) ** 2) - 1)


def robust_weight(residual: Tensor, loss: RobustLoss, scale: float) -> Tensor:
    """rho'(r) / 2 r, the factor of iteratively re-weighted least squares, in (0, 1]."""
    if loss == "squared":
        return torch.ones_like(residual)
    if loss == "huber":
        return scale / residual.abs().clamp_min(scale)
    return torch.rsqrt(1 + (residual / scale) ** 2)


def clip_samples(blocks: Tensor, config: SpectralConfig | None = None, lattice: Lattice = "slices") -> SpectralSamples:
    """Samples of real or generated video, with the calibrated preset's spectra and weights.

    Args:
        blocks: (N, C, T, H, W), each block one window of one patch (see ``lattice.cut``), real, any scale.
        config: spectrum, gates and floors; ``SpectralConfig.calibrated()`` when left out. Its ``patches`` and ``window`` are not
            used: a block is taken whole.
        lattice: how rotation and zoom are sampled, see the module.

    Weights have gradients through their numerators only. Half precision is computed in float32, float64 stays.

    Raises:
        ValueError: not (N, C, T, H, W), NaN or infinite values, an unknown lattice, or a configuration with the one-sided
            truncation or complex polar values, for which the lattices have no known signs.
    """
    # blocks: (N, C, T, H, W)
    config = config if config is not None else SpectralConfig.calibrated()
    if config.truncation != "signed" or config.polar != "magnitude" or lattice not in ("slices", "mellin"):
        raise ValueError("clip_samples needs truncation='signed', polar='magnitude' and lattice 'slices' or 'mellin'")
    if blocks.dim() != 5 or not bool(torch.isfinite(blocks).all()):
        raise ValueError(f"expected finite blocks of shape (N, C, T, H, W), got {tuple(blocks.shape)}")
    blocks = blocks if blocks.dtype == torch.float64 else blocks.float()
    count, _, frames, height, width = blocks.shape
    device, real = blocks.device, blocks.dtype
    time_weight = hann(frames, device, real).view(1, 1, -1, 1, 1)
    mean = (blocks * time_weight).sum(dim=2, keepdim=True) / time_weight.sum()
    fade = apodisation(height, width, device, real) if config.apodise else torch.ones(height, width, device=device, dtype=real)
    still = (mean - (mean * fade).sum(dim=(3, 4), keepdim=True) / fade.sum()) * fade
    moving = (blocks - mean if config.remove_mean else blocks) * fade
    rows, columns = (tuple(kept_bins(side, config.keep)) for side in (height, width))
    geometry = PolarGeometry(height, width, rows[-1], columns[-1])
    spectrum = spatial_spectrum(moving, rows, columns)  # (N, C, T, Ky, Kx)
    still_spectrum = spatial_spectrum(still, rows, columns).detach()

    times = tuple(kept_bins(frames, config.keep_time, exclude_nyquist=True))
    omega_y, omega_x = (
        2 * math.pi / side * torch.tensor(kept, device=device, dtype=real) for side, kept in ((height, rows), (width, columns))
    )
    whitening = (omega_y[:, None] ** 2 + omega_x**2) ** config.whiten  # (Ky, Kx)
    plane = _lattice_weights(
        spectrum.flatten(3)[..., None], still_spectrum.flatten(3)[..., None], whitening.flatten(), times, config, gated=True
    )
    bins = tuple(range(-(frames // 2), (frames + 1) // 2))
    orders = torch.tensor(harmonic_orders(config), device=device, dtype=real)
    length = log_radii(geometry, config)[1]
    steps = torch.arange(1, config.scaling_harmonics + 1, device=device, dtype=real)

    def polar_weights(kind: Literal["rotation", "scaling", "mellin"], gain: Tensor) -> Tensor:
        """Weights (N, T K) of the harmonics of the moving part without its temporal mean."""

        def harmonics(values: Tensor) -> Tensor:  # (N, C, T, K, J): summed over J
            if kind == "mellin":
                return _mellin_harmonics(values, geometry, config)
            half = values[..., geometry.limit_x :].abs().flatten(-2)
            return split_harmonics(magnitude_harmonics(half, geometry, config), geometry, config)[kind == "scaling"].transpose(
                3, 4
            )

        return _lattice_weights(remove_time_mean(harmonics(spectrum), 2), harmonics(still_spectrum), gain, bins, config)

    turn = polar_weights("rotation", orders**2 / (orders**2 + 1))
    growth = polar_weights("scaling", steps**2 / (steps**2 + 1))
    start = torch.zeros(count, 5, device=device, dtype=real)
    if frames > 1:
        cross = (spectrum[:, :, 1:] * spectrum[:, :, :-1].conj()).detach().sum(dim=(1, 2)) * whitening
        start[:, :2] = correlation_velocity(cross, (height, width), (omega_y, omega_x))
        slope = best_slope(turn.detach().view(count, frames, -1), harmonic_orders(config), config.band_sigma)
        start[:, 2] = slope * 2 * math.pi / frames
        radial = tuple(range(1, config.scaling_harmonics + 1))
        slope = best_slope(growth.detach().view(count, frames, -1), radial, config.band_sigma)
        start[:, 3] = -slope * length / frames

    grid_y, grid_x = torch.meshgrid(omega_y, omega_x, indexing="ij")
    tables = [_rows(times, frames, {0: grid_x.flatten(), 1: grid_y.flatten(), 4: torch.ones_like(grid_x).flatten()})]
    nu = -2 * math.pi / length * steps  # content that grows shrinks its spectrum
    if lattice == "slices":
        weights = [plane, turn, growth]
        tables += [_rows(bins, frames, {2: orders}), _rows(bins, frames, {3: nu})]
        readers = ((0,), (1,), (2,))
    else:
        both_m, both_nu = _mellin_grid(config, device, real)
        gain = (both_m**2 + both_nu**2) / (both_m**2 + both_nu**2 + 1)
        weights = [plane, polar_weights("mellin", gain)]
        tables.append(_rows(bins, frames, {2: both_m, 3: -2 * math.pi / length * both_nu}))
        readers = ((0,), (1,), (1,))
    owner = torch.cat([torch.full((len(table[1]),), index, device=device) for index, table in enumerate(tables)])
    members = torch.stack([torch.isin(owner, torch.tensor(reader, device=device)) for reader in readers])
    design, omega_t = (torch.cat(parts) for parts in zip(*tables, strict=True))
    return SpectralSamples(design, omega_t, torch.cat(weights, dim=1), members, len(weights), start, frames)


def _lattice_weights(
    moving: Tensor, still: Tensor, gain: Tensor, bins: tuple[int, ...], config: SpectralConfig, gated: bool = False
) -> Tensor:
    """Energy weights (N, T K) of unit sum, less the still part's floor: (N, C, T, K, J) and (N, C, 1, K, J), gain (K,)."""
    energy = (time_spectrum(moving, bins, dim=2).abs().square().sum(dim=(1, 4)) * gain).flatten(1)
    floor = (still.abs().square().sum(dim=(1, 2, 4)) * gain).sum(dim=1, keepdim=True)
    floor = config.energy_floor * window_power(moving.shape[2], gain.device, gain.dtype) * floor
    energy = energy_weights(energy, config) if gated else energy
    total = (energy.sum(dim=1, keepdim=True) + floor).detach()
    return energy / torch.where(total > 0, total, torch.ones_like(total))


def _rows(bins: tuple[int, ...], frames: int, columns: dict[int, Tensor]) -> tuple[Tensor, Tensor]:
    """Design rows (T K, 5) and omega_t (T K,) of a lattice whose active columns hold (K,) values each."""
    size = len(next(iter(columns.values())))
    like = next(iter(columns.values()))
    design = like.new_zeros(size, 5)
    for column, values in columns.items():
        design[:, column] = values
    omega_t = 2 * math.pi / frames * torch.tensor(bins, device=like.device, dtype=like.dtype)
    return design.repeat(len(bins), 1), omega_t.repeat_interleave(size)


def _mellin_grid(config: SpectralConfig, device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Angular order and log-radius harmonic of each Fourier-Mellin sample, each (K,). Half a plane: magnitudes are real."""
    limit = harmonic_orders(config)[-1]
    m = torch.arange(-limit, limit + 1, 2, device=device, dtype=dtype)
    nu = torch.arange(config.scaling_harmonics + 1, device=device, dtype=dtype)
    return m.repeat(len(nu)), nu.repeat_interleave(len(m))


def _mellin_harmonics(spectrum: Tensor, geometry: PolarGeometry, config: SpectralConfig) -> Tensor:
    """Log-polar magnitude, Hann over log-radius, DFT over log-radius and angle: (N, C, T, Ky, Kx) -> (N, C, T, nu m, 1)."""
    device, real = spectrum.device, spectrum.real.dtype
    radii, angles = log_radii(geometry, config)[0], angle_grid(config)
    table = polar_table(*geometry, radii, angles, device, real)
    polar = resample_polar(spectrum.abs(), table)  # (N, C, T, R, A)
    weight = hann(config.radii, device, real) * torch.tensor(radii, device=device, dtype=real) ** config.whiten
    over_radius = dft_matrix(config.radii, tuple(range(config.scaling_harmonics + 1)), False, device, real) * weight
    limit = harmonic_orders(config)[-1] // 2
    over_angle = dft_matrix(len(angles), tuple(range(-limit, limit + 1)), False, device, real)
    return (over_radius @ polar.to(over_radius.dtype) @ over_angle.T).flatten(3)[..., None]
