"""Numbers behind docs/theory.md: leakage, ridge bias, interpolation error, retained energy of power laws and of real clips.

    python benchmarks/theory.py [--clips FOLDER]

Prints the tables and writes docs/results/theory.md. Seeds are fixed; about 40 seconds on one idle core.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from phys_pipeline.atomic import atomic_file
from phys_pipeline.media import probe, read_video, resample
from phys_pipeline.media.synthetic import object_clip, textured_clip
from phys_pipeline.spectral import SpectralConfig, bounds
from phys_pipeline.spectral.lattice import apodisation, hann, kept_bins, polar_table, resample_polar, spatial_spectrum
from phys_pipeline.spectral.polar import PolarGeometry, angle_grid, ring_radii
from phys_pipeline.spectral.report import ANALYSIS_FPS
from phys_pipeline.spectral.unified import clip_samples, unified_residual

ROOT = Path(__file__).resolve().parents[1]
CPU = torch.device("cpu")
KEEP, FRAMES, SIDE = 0.3, 16, 224  # the paper's ratio and the sizes of its sanity check
SUFFIXES = (".mp4", ".webm", ".gif", ".mkv", ".webp")


def cell(values: list[float] | np.ndarray, statistic: Callable[..., np.ndarray] = np.mean, digits: int = 3) -> str:
    """Statistic and its 95 % percentile bootstrap interval over the values (seed 0, 2000 resamples)."""
    draws = np.random.default_rng(0).choice(np.asarray(values), (2000, len(values)))
    low, high = np.percentile(statistic(draws, axis=1), [2.5, 97.5])
    return f"{statistic(values):.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    return [f"| {' | '.join(head)} |", "|" + "---|" * len(head), *(f"| {' | '.join(row)} |" for row in rows), ""]


def leakage_section() -> list[str]:
    widths, lengths = (1.0, 2.0, 3.0), (8, 12, 16, 24, 32)
    rows = {(row.window, row.frames, row.half_width): row for row in bounds.leakage_table(lengths, widths)}
    body = [
        [str(frames)]
        + [
            " / ".join(f"{100 * value:.2g}" for value in (round(row.on_bin, 9), row.mean, row.worst))
            for window in ("hann", "blackman")
            for row in (rows[window, frames, width] for width in widths)
        ]
        for frames in lengths
    ]
    head = ["T"] + [f"{window} Delta={width:g}" for window in ("Hann", "Blackman") for width in widths]
    window, offsets = hann(FRAMES, CPU, torch.float64), torch.arange(256, dtype=torch.float64) / 256
    gauss, moment = bounds.gaussian_leakage(window, 0.6, offsets), bounds.leakage_moment(window, offsets)
    return [
        "## Window leakage", "",
        "Energy of a tone outside +-Delta bins of it, in %: tone on a bin / mean over offsets / worst of 256 offsets. Exact.", "",
        *table(head, body),
        f"Floors of the calibrated preset (Hann, T = {FRAMES}) for perfect motion, on a bin / mean / worst: the Gaussian band of "
        f"0.6 bins misses {gauss[0]:.3f} / {gauss.mean():.3f} / {gauss.max():.3f}; the second moment around the line is "
        f"{moment[0]:.3f} / {moment.mean():.3f} / {moment.max():.3f} bins^2.", "",
    ]  # fmt: skip


def ridge_section(count: int = 24, start: int = 3000) -> list[str]:
    """Plane fit of translating textures with lambda = 0 (numerically 1e-9), 1e-4, 1e-3."""
    ridges = (0.0, 1e-4, 1e-3)
    rows, smallest = [], []
    for seed in range(start, start + count):
        rng = np.random.default_rng(seed)
        angle, speed = rng.uniform(0, 2 * np.pi), rng.uniform(0.4, 2.5)
        velocity = (speed * math.cos(angle), speed * math.sin(angle))
        samples = clip_samples(textured_clip(velocity=velocity, seed=seed).video.double()[None])
        design, weights = samples.design[samples.members[0]][:, [0, 1, 4]], samples.weights[:, samples.members[0]]
        normal = torch.einsum("nf,fi,fj->nij", weights, design, design)
        smallest.append(float(torch.linalg.eigvalsh(normal)[0, 0]))
        fits = [unified_residual(samples, ridge=ridge) for ridge in ridges]
        exact = fits[0].parameters[:, [0, 1, 4]]
        rows.append([
            [float((fit.parameters[:, [0, 1, 4]] - exact).norm() / exact.norm()),
             float(bounds.ridge_bias_bound(normal, exact, ridge) / exact.norm()),
             float(fit.slice_residuals[0, 0] / fits[0].slice_residuals[0, 0]) - 1,
             math.dist(fit.velocity[0].tolist(), velocity) / speed]
            for ridge, fit in zip(ridges, fits, strict=True)
        ])  # fmt: skip
    body = [
        [f"{ridge:g}", cell(shift, np.median, 5), f"{np.median(bound):.5f}", f"{np.median(growth):.1e}", cell(error, np.median)]
        for ridge, (shift, bound, growth, error) in zip(ridges, np.array(rows).transpose(1, 2, 0), strict=True)
    ]
    return [
        "## Ridge bias", "",
        f"{count} translating textures, {FRAMES} x 64 x 64, 0.4 to 2.5 px a frame, seeds {start} to {start + count - 1}; "
        f"medians, 95 % bootstrap intervals. Median least eigenvalue of the normal matrix: {np.median(smallest):.4f}.", "",
        *table(["lambda", "relative shift of the plane", "its bound", "relative growth of the residual", "relative error"], body),
    ]  # fmt: skip


def known_motion(kind: str, seed: int) -> tuple[Tensor, Tensor]:
    """A clip (1, 3, T, 64, 64) and its parameters (5,), of which one motion is not zero; none for white noise."""
    rng = np.random.default_rng(seed)
    angle, speed, sign = rng.uniform(0, 2 * np.pi), rng.uniform(0.4, 2.5), rng.choice([-1, 1])
    truth = torch.zeros(5)
    if kind == "translation":
        truth[:2] = speed * torch.tensor([math.cos(angle), math.sin(angle)])
        return textured_clip(velocity=tuple(truth[:2].tolist()), seed=seed).video[None], truth
    if kind == "rotation":
        truth[2] = sign * rng.uniform(0.05, 0.15)
        return textured_clip(rotation=float(truth[2]), seed=seed).video[None], truth
    if kind == "zoom":
        truth[3] = sign * 0.02 * speed
        radius = 9.0 if sign > 0 else 14.0
        return object_clip("star", zoom=float(truth[3]), radius=radius, angle=angle, seed=seed).video[None], truth
    return torch.rand(1, 3, FRAMES, 64, 64, generator=torch.Generator().manual_seed(seed)), truth


def unified_section(count: int = 16, start: int = 5000) -> list[str]:
    """Parameters and residual of the joint fit on clips whose motion is known, and on noise."""
    body = []
    for kind in ("translation", "rotation", "zoom", "white noise"):
        rows = []
        for seed in range(start, start + count):
            clip, truth = known_motion(kind, seed)
            fits = [unified_residual(clip_samples(clip, lattice=lattice), loss="huber") for lattice in ("slices", "mellin")]
            errors = [float(((fit.parameters[0] - truth) * (truth != 0)).norm() / truth.norm()) for fit in fits]
            rows.append(errors + [float(fit.residual) for fit in fits])
        cells = [cell(column, np.median) for column in np.array(rows).T]
        body.append([kind, *(["-", "-"] if kind == "white noise" else cells[:2]), *cells[2:]])
    return [
        "## The unified fit on known motion", "",
        f"{count} clips of {FRAMES} x 64 x 64 each (seeds {start} to {start + count - 1}): textures, a star for zoom; Huber, "
        "scale one temporal bin. Relative error of the parameter that is not zero; L_uni in radians^2; medians, 95 % bootstrap "
        "intervals.", "",
        *table(["motion", "error, slices", "error, mellin", "L_uni, slices", "L_uni, mellin"], body),
    ]  # fmt: skip


def polar_error(patch: Tensor, magnitude: bool) -> float:
    """Relative L2 error of the look-up on the calibrated preset's rings and angles, against the exact spectrum there."""
    side = len(patch)
    kept = tuple(kept_bins(side, KEEP))
    config = SpectralConfig.calibrated()
    geometry = PolarGeometry(side, side, kept[-1], kept[-1])
    radii = torch.tensor(ring_radii(geometry, config), dtype=torch.float64)
    angles = torch.tensor(angle_grid(config), dtype=torch.float64)
    place = torch.arange(side, dtype=torch.float64) - (side - 1) / 2
    phase = -2j * math.pi / side
    left = torch.exp(phase * (radii[:, None] * torch.sin(angles))[..., None] * place)
    right = torch.exp(phase * (radii[:, None] * torch.cos(angles))[..., None] * place)
    truth = torch.einsum("rah,hw,raw->ra", left, patch.to(left.dtype), right)
    lattice = spatial_spectrum(patch[None, None, None], kept, kept)[0, 0, 0]
    if magnitude:
        truth, lattice = truth.abs(), lattice.abs()
    geometry_table = polar_table(*geometry, tuple(radii.tolist()), tuple(angles.tolist()), CPU, torch.float64)
    error = (resample_polar(lattice, geometry_table) - truth) * radii[:, None]  # whitened by r, as in the loss
    return float(error.norm() / (truth * radii[:, None]).norm())


def interpolation_section(count: int = 16, start: int = 4000, side: int = 64) -> list[str]:
    place = torch.arange(side, dtype=torch.float64) - (side - 1) / 2
    fade = apodisation(side, side, CPU, torch.float64)

    def blob(width: float, off: float) -> Tensor:
        x = torch.exp(-0.5 * ((place - off * side) / (width * side)) ** 2)
        return x[:, None] * x

    supports = {
        "Gaussian, sigma 0.03 side, centred": blob(0.03, 0), "Gaussian, sigma 0.06 side, centred": blob(0.06, 0),
        "Gaussian, sigma 0.12 side, centred": blob(0.12, 0), "Gaussian, sigma 0.06 side, 0.2 side off centre": blob(0.06, 0.2),
        "whole patch, apodised": fade, "whole patch, not apodised": torch.ones_like(fade),
    }  # fmt: skip
    body = []
    for name, support in supports.items():
        errors: dict[bool, list[float]] = {False: [], True: []}
        for seed in range(start, start + count):
            texture = textured_clip(frames=1, height=side, width=side, seed=seed).video[0, 0].double()
            patch = (texture - (texture * support).sum() / support.sum()) * support
            for magnitude in errors:
                errors[magnitude].append(polar_error(patch, magnitude))
        body.append([name, cell(errors[False]), cell(errors[True])])
    return [
        "## Interpolation error of the bilinear polar look-up", "",
        f"Synthetic spectra: 1/f textures times a support, side {side}, rings and angles of the calibrated preset, whitened; "
        f"relative L2 error against the exact spectrum at the polar points; n = {count} (seeds {start} to {start + count - 1}), "
        "95 % bootstrap intervals. This is the static part of `error` in the surrogate bounds.", "",
        *table(["support", "complex", "magnitude"], body),
    ]  # fmt: skip


def power_law(
    kappa: float, sizes: tuple[int, int, int], unit: tuple[float, float, float], moving: bool = False
) -> tuple[float, float]:
    """Direct sums of |omega|^(-2 kappa) over the lattice |k| <= sizes without 0: share in the ball and cube of ratio KEEP.

    ``moving`` leaves the plane of temporal frequency zero out, as removing the temporal mean does.
    """
    axes = [torch.arange(size + 1, dtype=torch.float64) for size in sizes]
    times = [torch.where(axis > 0, 2.0, 1.0) for axis in axes]
    multiplicity = times[0][:, None, None] * times[1][:, None] * times[2]
    scaled = [axis * step for axis, step in zip(axes, unit, strict=True)]
    square = scaled[0][:, None, None] ** 2 + scaled[1][:, None] ** 2 + scaled[2] ** 2
    square[0, 0, 0] = math.inf
    if moving:
        square[0] = math.inf
    energy = multiplicity * square**-kappa
    band = sizes[2] * unit[2]
    cube = energy[tuple(slice(0, math.floor(KEEP * size) + 1) for size in sizes)].sum() / energy.sum()
    ball = (energy * (square <= (KEEP * band) ** 2)).sum() / (energy * (square <= band**2)).sum()
    return float(ball), float(cube)


def solve_kappa(share: float, keep: float, band: float) -> float:
    """kappa at which a ball of ratio ``keep`` holds ``share`` (bisection: the share grows with kappa)."""
    low, high = 0.5, 4.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if bounds.eta_ball(middle, keep, band) < share else (low, middle)
    return (low + high) / 2


def eta_section() -> list[str]:
    half, root = SIDE // 2, math.sqrt(3)
    body = []
    for kappa in (1.0, 1.25, 1.5, 1.8, 2.0, 2.5):
        cubic = power_law(kappa, (half,) * 3, (1.0,) * 3)
        real = power_law(kappa, (FRAMES // 2, half, half), (SIDE / FRAMES, 1.0, 1.0))
        closed = bounds.eta_ball(kappa, KEEP, half), bounds.eta_cube(kappa, KEEP, half)
        shares = (closed[0], cubic[0], closed[1], cubic[1], *real)
        body.append([f"{kappa:g}", *(f"{share:.3f}" for share in shares)])
    readings = []
    for name, band in (
        ("one bin, Nyquist", half), ("one bin, corner of the cube", half * root), ("half a bin, Nyquist", 2 * half),
        ("half a bin, corner of the cube", 2 * half * root), ("half a bin, sampling frequency", 4 * half),
    ):  # fmt: skip
        pairs = [(bounds.eta_ball(kappa, KEEP, band), bounds.eta_ball(kappa, KEEP * root, band)) for kappa in (1.8, 2.0)]
        pairs.append((solve_kappa(0.97, KEEP, band), solve_kappa(0.987, KEEP * root, band)))
        readings.append([name, f"{band:.0f}", *(f"{inner:.3f} / {outer:.3f}" for inner, outer in pairs)])
    return [
        "## Retained energy of an isotropic power law |omega|^(-2 kappa)", "",
        f"Ratio {KEEP}, band {half} bins, lower cut one bin; closed forms against direct sums without the zero frequency over a "
        f"lattice of 2 x {half} + 1 bins per axis, and over one of {FRAMES} frames of {SIDE} x {SIDE}, isotropic in radians. For "
        "kappa > 1.5 most energy lies in the first few bins, where a sum is no integral: there the closed forms are low.", "",
        *table(["kappa", "ball", "lattice", "cube", "lattice", f"T={FRAMES} ball", f"T={FRAMES} cube"], body),
        "Which reading gives the reported 0.97 (ball of ratio 0.3) and 0.987 (ball of ratio 0.3 sqrt 3, around the cube)? R / c: "
        "band over lower cut.", "",
        *table(["lower cut, band", "R / c", "kappa 1.8: inner / outer", "kappa 2: inner / outer", "kappa for 0.97 / for 0.987"],
               readings),
    ]  # fmt: skip


def real_windows(folder: Path, most: int) -> Iterator[tuple[str, Tensor]]:
    """Up to ``most`` windows of each file: (3, 16, N, N), centre crop, shorter side 224 or the file's own if smaller."""
    for path in sorted(folder.iterdir()):
        if path.suffix.lower() not in SUFFIXES:
            continue
        info = probe(path)
        scale = min(1.0, SIDE / min(info.height, info.width))
        video = read_video(path, size=(round(info.height * scale), round(info.width * scale)), max_frames=160)
        step = max(1, min(round(video.fps / ANALYSIS_FPS), len(video) // FRAMES))
        clip = resample(video, video.fps).to_tensor()[0, :, ::step]  # (3, T, H, W)
        side = min(clip.shape[2:])
        top, left = (clip.shape[2] - side) // 2, (clip.shape[3] - side) // 2
        clip = clip[:, :, top : top + side, left : left + side]
        windows = min(most, clip.shape[1] // FRAMES)
        for first in np.linspace(0, clip.shape[1] - FRAMES, windows).round().astype(int).tolist():
            yield path.name, clip[:, first : first + FRAMES]


def spectrum_energy(clip: Tensor, treatment: str) -> Tensor:
    """|DFT|^2 summed over channels, Hann in time, (T, N, N) in FFT order, after a treatment of ``TREATMENTS``."""
    side = clip.shape[2]
    weight = hann(FRAMES, CPU, clip.dtype).view(1, -1, 1, 1)
    still = (clip * weight).sum(dim=1, keepdim=True) / weight.sum()
    clip = (
        clip - 0.5 if treatment.startswith("x - 1/2") else clip - (still if "temporal" in treatment else still.mean((2, 3), True))
    )
    if "apodised" in treatment:
        clip = clip * apodisation(side, side, CPU, clip.dtype)
    energy = torch.fft.fftn(clip * weight, dim=(1, 2, 3)).abs().square().sum(dim=0)
    if "whitened" in treatment:
        omega = torch.fft.fftfreq(side, dtype=clip.dtype)
        energy = energy * (omega[:, None] ** 2 + omega**2)
    return energy


TREATMENTS = (
    "x - 1/2 (paper preset)", "clip mean removed", "clip mean removed, apodised", "temporal mean removed",
    "temporal mean removed, apodised", "temporal mean removed, apodised, whitened (calibrated)",
)  # fmt: skip


def retained(energy: Tensor, kind: str) -> float:
    """Share kept by the signed cube, the signed square with all temporal bins, or the printed one-sided cube."""
    frames, side = energy.shape[0], energy.shape[1]
    one_sided = kind == "one-sided"
    times = list(range(frames)) if kind == "signed, all times" else kept_bins(frames, KEEP, one_sided=one_sided)
    space = kept_bins(side, KEEP, one_sided=one_sided)
    return float(energy[times][:, space][:, :, space].sum() / energy.sum())


def fit_kappa(energy: Tensor, moving: bool) -> float:
    """Half the slope of log energy over log |omega| (radians, isotropic), mean over 16 log-spaced shells up to Nyquist.

    ``moving`` leaves the empty plane of temporal frequency zero out and starts at the first temporal bin.
    """
    frames, side = energy.shape[0], energy.shape[1]
    omega_t, omega = torch.fft.fftfreq(frames), torch.fft.fftfreq(side)
    radius = (omega_t[:, None, None] ** 2 + omega[:, None] ** 2 + omega**2).sqrt()
    if moving:
        radius[0] = math.inf
    edges = torch.logspace(math.log10(1 / frames if moving else 1.5 / side), math.log10(0.5), 17)
    shell = torch.bucketize(radius, edges).flatten()
    counts = torch.bincount(shell, minlength=18)[1:17]
    means = torch.bincount(shell, weights=energy.flatten().double(), minlength=18)[1:17] / counts.clamp_min(1)
    used = (counts > 0) & (means > 0)
    middle = (edges[:-1] * edges[1:]).sqrt().log().double()
    slope = np.polyfit(middle[used].numpy(), means[used].log().numpy(), 1)[0]
    return float(-slope / 2)


def clips_section(folder: Path, most: int) -> list[str]:
    kinds = ("signed", "signed, all times", "one-sided")
    values: dict[str, dict[str, list[list[float]]]] = {treatment: {} for treatment in TREATMENTS}
    windows = 0
    for name, clip in real_windows(folder, most):
        print(f"\r{name:40s}", end="", file=sys.stderr, flush=True)
        windows += 1
        half = clip.shape[2] // 2
        for treatment in TREATMENTS:
            energy = spectrum_energy(clip, treatment)
            moving = "temporal" in treatment
            kappa = fit_kappa(energy, moving)
            expected = power_law(kappa, (FRAMES // 2, half, half), (clip.shape[2] / FRAMES, 1.0, 1.0), moving)[1]
            row = [retained(energy, kind) for kind in kinds] + [kappa, expected, bounds.eta_cube(kappa, KEEP, half)]
            values[treatment].setdefault(name, []).append(row)
    print(file=sys.stderr)
    columns = (*kinds, "kappa", "lattice", "eta_cube")
    per_clip = {
        treatment: dict(zip(columns, np.array([np.mean(rows, axis=0) for rows in clips.values()]).T.tolist(), strict=True))
        for treatment, clips in values.items()
    }
    body = []
    for treatment, found in per_clip.items():
        error = np.abs(np.subtract(found["signed"], found["lattice"])).mean()
        model = [cell(found["kappa"], digits=2), cell(found["lattice"]), f"{np.mean(found['eta_cube']):.3f}", f"{error:.3f}"]
        if "temporal" in treatment:
            model[2] = "-"  # a ball without its middle plane has another closed form
        if "whitened" in treatment:
            model = ["-"] * 4
        body.append([treatment, *(cell(found[kind]) for kind in kinds), *model])
    return [
        "## Retained energy of real clips", "",
        f"{len(values[TREATMENTS[0]])} clips, {windows} windows of {FRAMES} frames (about {ANALYSIS_FPS:g} a second), centre "
        f"crop, side at most {SIDE} px; Hann in time; ratio {KEEP}. Mean over clips (windows averaged within a clip), 95 % "
        "bootstrap interval over clips. kappa: half the slope of the energy over |omega| in radians. Predictions for the signed "
        "cube at each clip's kappa: sum over the clip's own lattice (without the plane of temporal frequency zero where the "
        "temporal mean is removed), closed form eta_cube; last column: mean |measured - lattice|.", "",
        *table(["treatment", "signed, 0.3 of each axis", "signed in space, all times", "one-sided (printed)", "kappa", "lattice",
                "eta_cube", "error"], body),
        "An octant and its opposite carry the same energy, so off the axis planes the one-sided cube keeps at most half of it, "
        "an eighth if directions are equally common.", "",
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--clips", type=Path, default=ROOT / "samples" / "clips", help="folder of clips (default: the sample set)"
    )
    parser.add_argument("--windows", type=int, default=2, help="windows of each clip")
    options = parser.parse_args()
    torch.set_num_threads(1)
    other = options.clips.resolve() != (ROOT / "samples" / "clips").resolve()
    lines = [
        "# The numbers behind the theory", "",
        f"Made by `python benchmarks/theory.py{' --clips FOLDER' if other else ''}`; meaning: [theory.md](../theory.md).", "",
    ]  # fmt: skip
    for section in (leakage_section, ridge_section, unified_section, interpolation_section, eta_section):
        lines += section()
    lines += clips_section(options.clips, options.windows)
    if other:
        lines += ["Six of these clips are samples/clips; the others are not in this repository.", ""]
    text = "\n".join(lines).rstrip() + "\n"
    print(text)
    with atomic_file(ROOT / "docs" / "results" / "theory.md") as temporary:
        temporary.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
