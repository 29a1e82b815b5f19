"""The paper's losses for one window, from its equations in float64 with loops: slow, sharing no code with the library.

Conventions that the paper leaves open (one-sided cube, Nyquist = 1, phase origin, channels) are those of docs/method.md.
"""

import cmath
import math

import numpy as np

RHO, TAU_E, SHARPNESS, LAMBDA, TAU, EPSILON = 0.3, 0.1, 10.0, 1e-3, 0.1, 1e-8
RINGS, ANGLES, EDGE, DELTA = 20, 24, 20.0, 1.0


def sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-value)) if value > -700 else 0.0


def hann(length: int) -> list[float]:
    return [math.sin(math.pi * (t + 0.5) / length) ** 2 for t in range(length)]


def dft(values: np.ndarray, bins: list[int], centre: float, axis: int) -> np.ndarray:
    """Direct DFT along one axis for the given bins, phase origin at ``centre``."""
    samples = values.shape[axis]
    moved = np.moveaxis(values, axis, 0)
    rows = [sum(moved[n] * cmath.exp(-2j * math.pi * k * (n - centre) / samples) for n in range(samples)) for k in bins]
    return np.moveaxis(np.stack(rows), 0, axis)


def translation(video: np.ndarray) -> float:
    """Equation of the translational loss: gated residual to the best plane, Nyquist = 1. video: (C, T, H, W)."""
    _, frames, height, width = video.shape
    signal = (video - 0.5) * np.array(hann(frames))[None, :, None, None]
    kept = [list(range(max(1, math.floor(RHO * (n - 1))) + 1)) if n > 1 else [0] for n in (frames, height, width)]
    for axis, bins in zip((1, 2, 3), kept, strict=True):
        signal = dft(signal, bins, 0.0, axis)
    energy = (np.abs(signal) ** 2).sum(axis=0)
    largest = energy.max()
    normal, moment, rows = np.zeros((3, 3)), np.zeros(3), []
    for (t, y, x), value in np.ndenumerate(energy):
        gate = sigmoid(SHARPNESS * (value / largest - TAU_E))
        row = np.array([2 * kept[2][x] / width, 2 * kept[1][y] / height, 1.0])
        rows.append((gate, row, -2 * kept[0][t] / frames))
    total = sum(gate for gate, _, _ in rows)
    for gate, row, target in rows:
        normal += gate / total * np.outer(row, row)
        moment += gate / total * row * target
    plane = np.linalg.solve(normal + LAMBDA * np.eye(3), moment)
    return float(sum(gate * (row @ plane - target) ** 2 for gate, row, target in rows) / total)


def spatial(video: np.ndarray) -> tuple[np.ndarray, int, int]:
    """Spectrum of each frame on the signed lattice, phase origin at the centre: (C, T, Ky, Kx) and the limits."""
    _, _, height, width = video.shape
    limit_y, limit_x = (max(1, math.floor(RHO * n / 2)) for n in (height, width))
    rows = dft(video - 0.5, list(range(-limit_y, limit_y + 1)), (height - 1) / 2, 2)
    return dft(rows, list(range(-limit_x, limit_x + 1)), (width - 1) / 2, 3), limit_y, limit_x


def interpolate(lattice: np.ndarray, y: float, x: float) -> np.ndarray:
    """Bilinear interpolation of (..., Ky, Kx) at a place in samples of the lattice."""
    y0, x0 = min(math.floor(y), lattice.shape[-2] - 2), min(math.floor(x), lattice.shape[-1] - 2)
    fy, fx = y - y0, x - x0
    upper = (1 - fx) * lattice[..., y0, x0] + fx * lattice[..., y0, x0 + 1]
    lower = (1 - fx) * lattice[..., y0 + 1, x0] + fx * lattice[..., y0 + 1, x0 + 1]
    return (1 - fy) * upper + fy * lower


def ring_shares(video: np.ndarray) -> np.ndarray:
    """Share of each soft ring in a frame's energy, (T, RINGS)."""
    spectrum, limit_y, limit_x = spatial(video)
    _, frames, height, width = video.shape
    shorter = min(height, width)
    largest = max(1.0, min(limit_y * shorter / height, limit_x * shorter / width))
    energy = np.zeros((frames, RINGS))
    power = (np.abs(spectrum) ** 2).sum(axis=0)
    for ky in range(-limit_y, limit_y + 1):
        for kx in range(-limit_x, limit_x + 1):
            radius = math.hypot(ky * shorter / height, kx * shorter / width) / largest
            for ring in range(RINGS):
                inside = sigmoid(EDGE * RINGS * (radius - ring / RINGS)) * sigmoid(EDGE * RINGS * ((ring + 1) / RINGS - radius))
                energy[:, ring] += inside * power[:, ky + limit_y, kx + limit_x]
    return energy / energy.sum(axis=1, keepdims=True)


def rotation(video: np.ndarray) -> float:
    """Equation of the rotational loss: energy outside a soft band around omega_t + m Omega = 0, and ring entropy, half each."""
    spectrum, limit_y, limit_x = spatial(video)
    channels, frames, height, width = video.shape
    shorter = min(height, width)
    largest = max(1.0, min(limit_y * shorter / height, limit_x * shorter / width))
    polar = np.zeros((channels, frames, RINGS, ANGLES), dtype=complex)
    for ring in range(RINGS):
        for angle in range(ANGLES):
            radius, theta = largest * (ring + 1) / RINGS, 2 * math.pi * angle / ANGLES
            y = radius * math.sin(theta) * height / shorter + limit_y
            x = radius * math.cos(theta) * width / shorter + limit_x
            polar[:, :, ring, angle] = interpolate(spectrum, min(max(y, 0.0), 2 * limit_y), min(max(x, 0.0), 2 * limit_x))
    orders = [m for m in range(-(ANGLES // 2), (ANGLES + 1) // 2) if m != 0]
    harmonics = dft(polar, orders, 0.0, 3) / ANGLES * np.array(hann(frames))[None, :, None, None]
    times = list(range(-(frames // 2), (frames + 1) // 2))
    energy = (np.abs(dft(harmonics, times, 0.0, 1)) ** 2).sum(axis=(0, 2))  # (T, m)
    grid = [(energy[i, j], k, m) for i, k in enumerate(times) for j, m in enumerate(orders)]
    slope = -sum(e * k * m for e, k, m in grid) / sum(e * m * m for e, k, m in grid)
    captured = sum(e * sigmoid(EDGE * (DELTA - abs(k + m * slope))) for e, k, m in grid) / sum(e for e, _, _ in grid)
    shares = ring_shares(video)
    entropy = -(shares * np.log(shares + EPSILON)).sum(axis=1).mean() / math.log(RINGS)
    return 0.5 * (1 - captured) + 0.5 * entropy


def scaling(video: np.ndarray) -> float:
    """Equation of the scaling loss: one minus the mean of the flow and the trend proxy of ring energies."""
    shares = ring_shares(video)
    frames = len(shares)
    if frames < 3:
        return 0.5
    across = [shares[t, r + 1] - shares[t, r] for t in range(frames - 1) for r in range(RINGS - 1)]
    along = [shares[t + 1, r] - shares[t, r] for t in range(frames - 1) for r in range(RINGS - 1)]
    flow = abs(np.dot(across, along)) / (np.linalg.norm(across) * np.linalg.norm(along) + EPSILON)
    centroid = np.array([sum((ring + 1) * share for ring, share in enumerate(row)) for row in shares])
    time = np.arange(frames) - (frames - 1) / 2
    centroid = centroid - centroid.mean()
    trend = abs((centroid * time).mean()) / (np.linalg.norm(centroid) * np.linalg.norm(time) / frames + EPSILON)
    return 1 - 0.5 * (flow + trend)


def paper_loss(video: np.ndarray) -> tuple[float, float, float, float]:
    """Composite with coupled softmax weights, and the three losses, of one window (C, T, H, W)."""
    losses = [translation(video), rotation(video), scaling(video)]
    weights = [math.exp(-loss / TAU) for loss in losses]
    composite = sum(weight * loss for weight, loss in zip(weights, losses, strict=True)) / sum(weights)
    return composite, losses[0], losses[1], losses[2]
