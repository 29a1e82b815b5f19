"""Bounds behind the spectral loss: what a small loss says of the motion, and what perfect motion still loses.

Distances are in temporal bins unless a function says otherwise, and are taken modulo the temporal period of T bins. A *share* is
a part of an energy, in [0, 1]. Proofs and counter-examples: ``docs/theory.md``; measured values: ``docs/results/theory.md``.
The topics are those of the theory part of arXiv 2506.02244v2; statements, proofs and constants are this project's own.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from .lattice import hann

_GAUSS_NODES = 32  # of the quadrature over one face of the cube; its integrand is analytic


# --- capture: from the second moment to the missed share and back ---


def second_moment(weights: Tensor, distance: Tensor) -> Tensor:
    """Weighted mean of the squared distance, sum w d^2 / sum w, over the last axis; 0 where there is no weight."""
    total = weights.sum(dim=-1)
    return (weights * distance**2).sum(dim=-1) / torch.where(total > 0, total, torch.ones_like(total))


def outside_share(weights: Tensor, distance: Tensor, half_width: float) -> Tensor:
    """Share of the weight at ``|distance| >= half_width``, over the last axis; 0 where there is no weight."""
    total = weights.sum(dim=-1)
    outside = (weights * (distance.abs() >= half_width)).sum(dim=-1)
    return outside / torch.where(total > 0, total, torch.ones_like(total))


def band_capture_bound(moment: Tensor, half_width: float) -> Tensor:
    """Weighted Chebyshev: at most ``min(1, moment / half_width^2)`` of the energy lies at ``|d| >= half_width``.

    ``moment`` is :func:`second_moment` under the *energies*; under other weights (the printed gate alone) the statement is false.
    Equality holds when all energy outside the line sits exactly at the band's edge.
    """
    return (moment / half_width**2).clamp(max=1)


def gaussian_capture_bound(moment: Tensor, sigma: float) -> Tensor:
    """The calibrated band: ``sum w (1 - exp(-d^2 / 2 sigma^2)) / sum w <= 1 - exp(-moment / 2 sigma^2)`` (Jensen: the kernel is
    concave in d^2). Equality holds when every distance is the same."""
    return -torch.expm1(-moment / (2 * sigma**2))


def residual_bound(missed: Tensor, half_width: float, frames: int) -> Tensor:
    """The converse: a missed share leaves a second moment of at most ``half_width^2 (1 - missed) + (T / 2)^2 missed`` bins^2.

    Distances modulo T are at most T / 2. In this sense a band loss bounds the residual of the unified fit from above.
    """
    return half_width**2 * (1 - missed) + (frames / 2) ** 2 * missed


# --- leakage of the temporal window ---


def blackman(length: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Half-sample Blackman window, 0.42 - 0.5 cos(2 pi (n + 1/2) / N) + 0.08 cos(4 pi (n + 1/2) / N), (N,)."""
    phase = 2 * math.pi * (torch.arange(length, dtype=dtype) + 0.5) / length
    return 0.42 - 0.5 * torch.cos(phase) + 0.08 * torch.cos(2 * phase)


def tone_response(window: Tensor, offset: Tensor) -> tuple[Tensor, Tensor]:
    """Where the energy of a windowed tone goes.

    Args:
        window: (T,), real.
        offset: (F,) distance of the tone from its bin 0, in bins.

    Returns:
        energy (F, T) of the T bins, unit sum (Parseval, for every offset), and their distance (F, T) from the tone modulo T.
    """
    frames = window.shape[0]
    place = torch.arange(frames, dtype=window.dtype, device=window.device)
    gap = place - offset[:, None]  # (F, T)
    angle = 2 * math.pi / frames * gap[:, :, None] * place  # (F, T, T)
    real, imaginary = (torch.cos(angle) @ window), (torch.sin(angle) @ window)
    energy = (real**2 + imaginary**2) / (frames * window.square().sum())
    return energy, torch.remainder(gap + frames / 2, frames) - frames / 2


def window_leakage(window: Tensor, half_width: float, offset: Tensor) -> Tensor:
    """Share of a tone's energy in bins further than ``half_width`` from it, (F,) for tones at ``offset`` (F,)."""
    energy, distance = tone_response(window, offset)
    return (energy * (distance.abs() > half_width + 1e-9)).sum(dim=1)


def gaussian_leakage(window: Tensor, sigma: float, offset: Tensor) -> Tensor:
    """Share of a tone's energy that a Gaussian band centred on it misses, (F,): the floor of the calibrated line losses."""
    energy, distance = tone_response(window, offset)
    return -(energy * torch.expm1(-0.5 * (distance / sigma) ** 2)).sum(dim=1)


def leakage_moment(window: Tensor, offset: Tensor) -> Tensor:
    """Second moment of a windowed tone's bins around it, bins^2, (F,): the floor of the translation residual."""
    energy, distance = tone_response(window, offset)
    return (energy * distance**2).sum(dim=1)


def mean_window_leakage(window: Tensor, half_width: float) -> float:
    """:func:`window_leakage` averaged over all offsets, exactly, from the window's autocorrelation r:
    ``1 - (2 D / T) sum_l r(l) sinc(2 D l / T) / r(0)`` (the energy of its continuous spectrum outside +-D bins)."""
    frames = window.shape[0]
    padded = torch.fft.rfft(window, n=2 * frames).abs().square()
    correlation = torch.fft.irfft(padded, n=2 * frames)  # r(0), .., r(T-1), 0, r(-(T-1)), .., r(-1)
    lag = torch.fft.fftfreq(2 * frames, 1 / (2 * frames), dtype=window.dtype)
    inside = (correlation * torch.sinc(2 * half_width * lag / frames)).sum() * 2 * half_width / frames
    return float(1 - inside / correlation[0])


class Leakage(NamedTuple):
    """Row of the leakage table: shares outside +-``half_width`` for a tone on a bin, on average, at the worst offset scanned."""

    window: str
    frames: int
    half_width: float
    on_bin: float
    mean: float
    worst: float


def leakage_table(frames: tuple[int, ...], half_widths: tuple[float, ...], offsets: int = 256) -> list[Leakage]:
    """Hann and Blackman leakage over (T, half width). ``worst`` is the largest of ``offsets`` places between two bins, the limit
    just beside a bin included (there a bin at the band's edge drops out)."""
    place = torch.arange(offsets, dtype=torch.float64) / offsets
    place[0] = 1e-6
    rows = []
    for name in ("hann", "blackman"):
        for count in frames:
            window = hann(count, torch.device("cpu"), torch.float64) if name == "hann" else blackman(count)
            for width in half_widths:
                on_bin = float(window_leakage(window, width, torch.zeros(1, dtype=torch.float64)))
                worst = max(on_bin, float(window_leakage(window, width, place).max()))
                rows.append(Leakage(name, count, width, on_bin, mean_window_leakage(window, width), worst))
    return rows


# --- ring entropy ---


def ring_entropy_bound(rings: int, occupied: int, outside: float = 0.0) -> float:
    """Largest entropy (nats) of shares over ``rings`` of which ``occupied`` hold at least ``1 - outside`` of the energy.

    ``h(e) + (1 - e) log k + e log(N - k)`` with the binary entropy h and ``e = min(outside, 1 - k / N)`` (grouping rule; the sum
    grows in e up to there, where it is log N). Equality: uniform over the k rings and over the others.
    """
    if not 1 <= occupied <= rings:
        raise ValueError(f"occupied must lie in 1..{rings}, not {occupied}")
    spill = min(outside, 1 - occupied / rings)
    bound = (1 - spill) * math.log(occupied)
    if spill > 0:
        bound += spill * math.log(rings - occupied) - spill * math.log(spill) - (1 - spill) * math.log(1 - spill)
    return bound


def occupied_rings(width: float, rings: int) -> int:
    """Rings that an annulus can touch: ``ceil(width N) + 1``, at most N; ``width`` relative to the largest radius."""
    return min(rings, math.ceil(width * rings - 1e-9) + 1)


# --- surrogate bounds: the three losses of imperfect motion ---


def hard_band_moment_term(moment: Tensor, half_width: float, split: float = 0.5) -> Tensor:
    """``moment / ((1 - c) D)^2``: lines further than (1 - c) D from the common line; the rest leaks beyond c D, c = ``split``."""
    return moment / ((1 - split) * half_width) ** 2


def gaussian_band_moment_term(moment: Tensor, sigma: float, split: float = 0.5) -> Tensor:
    """``moment / (2 (1 - c) sigma^2)``; the leakage beside it is that of a Gaussian of width ``sigma sqrt(c)``, c = ``split``."""
    return moment / (2 * (1 - split) * sigma**2)


def missed_share_bound(moment_term: Tensor, leakage: Tensor, error: Tensor) -> Tensor:
    """Share that misses the best line: ``(sqrt(a) + e (1 + sqrt(a)))^2`` with ``a = moment_term + leakage``, at most 1.

    Assumptions: harmonic mu is ``a_mu exp(-i theta_mu t) + rest``; ``moment`` (in the term) is the energy-weighted mean of its
    squared distance ``d_mu = theta_mu T / 2 pi - mu slope`` modulo T; ``leakage`` the energy-weighted mean at the lines' own
    offsets; ``e = error`` the norm of the windowed rest over that of the windowed whole (interpolation, borders, occlusion, an
    uneven path: :func:`path_error_bound`). All T temporal bins are kept. Amplitudes add, not energies: ``a + e^2`` is no bound.
    """
    amplitude = (moment_term + leakage).clamp(max=1).sqrt()
    return (amplitude + error * (1 + amplitude)).square().clamp(max=1)


def rotation_bound(missed: Tensor, ring_entropy: Tensor, rings: int, ring_weight: float) -> Tensor:
    """Rotation loss from a bound of its missed share and of its mean ring entropy: the two terms are independent.

    The ring term says how narrow the picture's spectrum is. It does not depend on the order of the frames, so no bound by the
    residual exists for ``ring_weight > 0``.
    """
    return (1 - ring_weight) * missed + ring_weight * ring_entropy / math.log(rings)


def scaling_bound(moment_term: Tensor, leakage: Tensor, error: Tensor, growth: float, window: Tensor) -> Tensor:
    """Calibrated scaling loss: :func:`missed_share_bound` over log-radius harmonics whose magnitude grows by ``growth`` a frame.

    A picture that grows by alpha a frame has magnitudes that grow by exp(2 alpha), whitened by r^q by exp((2 - q) alpha): the
    lines are not of constant amplitude. What is beyond a constant, ``sum h^2 (exp(growth t) - 1)^2 / sum h^2 exp(2 growth t)``
    with t from the window's middle, joins the error. ``error`` holds what the finite range of log-radius cuts off. For the
    printed proxies no bound by the residual exists, in either direction.
    """
    frames = window.shape[0]
    gain = torch.exp(growth * (torch.arange(frames, dtype=window.dtype, device=window.device) - (frames - 1) / 2))
    uneven = ((window * (gain - 1)).square().sum() / (window * gain).square().sum()).sqrt()
    return missed_share_bound(moment_term, leakage, error + uneven * (1 + error))


def translation_bound(
    moment: Tensor, leakage: Tensor, error: Tensor, plane: Tensor, variance: Tensor, frames: int, ridge: float, gate_ratio: float
) -> Tensor:
    """Calibrated translation loss, for any plane through the origin around which distances are unwrapped.

    ``(G (x + e (x + T/2))^2 + ridge |plane|^2) / (variance + 1)`` in bins^2 with ``x = sqrt(moment) + sqrt(leakage)``.

    Args:
        moment: energy-weighted mean squared distance of the lines from the plane, bins^2.
        leakage: energy-weighted mean of :func:`leakage_moment`, bins^2.
        error: relative norm of the rest, as in :func:`missed_share_bound`.
        plane: (..., 2) velocity of the plane in samples per frame.
        variance: that of the temporal frequency under the loss's weights, bins^2; one bin^2 is added as in the loss.
        frames: T; ridge: lambda of the loss, on frequencies in radians.
        gate_ratio: largest over smallest value of the gate among bins with energy; 1 without gate.
    """
    root = moment.sqrt() + leakage.sqrt()
    residual = gate_ratio * (root + error * (root + frames / 2)).square()
    bins = frames / (2 * math.pi)
    return (residual + ridge * bins**2 * plane.square().sum(dim=-1)) / (variance + 1)


def path_error_bound(harmonic_moment: Tensor, path_moment: Tensor) -> Tensor:
    """Relative error of an uneven path, ``sqrt(E[mu^2] E[delta^2])``: |exp(-i mu delta) - 1| <= |mu delta|.

    ``harmonic_moment``: energy-weighted mean of mu^2 (|omega|^2 for translation); ``path_moment``: mean of the squared deviation
    from the even path under the squared window.
    """
    return (harmonic_moment * path_moment).sqrt()


# --- ridge ---


def ridge_bias_bound(normal: Tensor, solution: Tensor, ridge: float) -> Tensor:
    """``|theta(lambda) - theta(0)| <= lambda / (lambda + smallest eigenvalue) |theta(0)|``: O(lambda) for a determined plane.

    normal: (N, P, P) of unit-sum weights; solution: (N, P) without ridge.
    """
    smallest = torch.linalg.eigvalsh(normal)[..., 0].clamp_min(0)
    return ridge / (ridge + smallest) * torch.linalg.vector_norm(solution, dim=-1)


def ridge_residual_bound(normal: Tensor, solution: Tensor, ridge: float) -> Tensor:
    """What the ridge adds to the residual: at most ``min(lambda / 4, lambda^2 / smallest eigenvalue) |theta(0)|^2``."""
    smallest = torch.linalg.eigvalsh(normal)[..., 0].clamp_min(torch.finfo(normal.dtype).tiny)
    return torch.clamp(ridge**2 / smallest, max=ridge / 4) * solution.square().sum(dim=-1)


# --- polar look-up ---


def bilinear_bound(relative_y: float, relative_x: float, magnitude: bool) -> float:
    """Largest error of the bilinear look-up between bins, relative to the sum of |pixels| of the patch.

    The content lies within ``relative_y`` H and ``relative_x`` W of the phase origin (1/2: the whole patch). Complex values:
    ``((2 pi y)^2 + (2 pi x)^2) / 8``, second derivatives. Magnitudes have kinks at their zeros: only the Lipschitz bound
    ``(2 pi y + 2 pi x) / 2`` holds for them.
    """
    y, x = 2 * math.pi * relative_y, 2 * math.pi * relative_x
    return (y + x) / 2 if magnitude else (y * y + x * x) / 8


# --- retained energy of an isotropic power law ---


def _radial(low: float, high: float, kappa: float) -> float:
    """Integral of r^(2 - 2 kappa) from low to high; its three regimes are one function: expm1 has the limit kappa = 1.5."""
    exponent, ratio = 3 - 2 * kappa, math.log(high / low)
    return low**exponent * (ratio if abs(exponent * ratio) < 1e-12 else math.expm1(exponent * ratio) / exponent)


def eta_ball(kappa: float, keep: float, band: float, cut: float = 1.0) -> float:
    """Energy of the power law |omega|^(-2 kappa) in 3-D kept by a ball of ``keep`` times the band's radius.

    ``((keep R)^p - c^p) / (R^p - c^p)`` with p = 3 - 2 kappa, and ``log(keep R / c) / log(R / c)`` for kappa = 1.5: p > 0 keeps
    about keep^p, p < 0 about ``1 - (c / keep R)^|p|``. ``band`` R and ``cut`` c in one unit (bins); below c there is nothing.
    """
    return _radial(cut, keep * band, kappa) / _radial(cut, band, kappa)


def eta_cube(kappa: float, keep: float, band: float, cut: float = 1.0) -> float:
    """The same for a cube of half side ``keep R`` in a cube of half side R; the lower cut is a ball of radius c < keep R.

    In direction n the cube ends at R / max |n_i|; the mean over directions of ``max |n_i|^-p`` is
    ``(6 / pi) int_0^1 int_0^1 (1 + u^2 + v^2)^-kappa du dv``, here by Gauss-Legendre quadrature. The value lies between
    ``eta_ball(R)`` and ``eta_ball(sqrt(3) R)``; with a cube as lower cut it would equal :func:`eta_ball`.
    """
    index = torch.arange(1, _GAUSS_NODES, dtype=torch.float64)
    jacobi = torch.diag(index / (4 * index**2 - 1).sqrt(), 1)
    nodes, vectors = torch.linalg.eigh(jacobi + jacobi.T)  # Golub-Welsch: Gauss-Legendre on [-1, 1]
    place, weight = (nodes + 1) / 2, vectors[0] ** 2
    stretch = (1 + place[:, None] ** 2 + place**2).sqrt()  # edge of the cube over its half side
    share = weight[:, None] * weight / stretch**3  # solid angle
    kept, total = (
        sum(
            part * _radial(cut, side * edge, kappa)
            for part, edge in zip(share.flatten().tolist(), stretch.flatten().tolist(), strict=True)
        )
        for side in (keep * band, band)
    )
    return kept / total
