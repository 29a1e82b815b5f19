"""What latents are made of: the first frame against the others, channels, and real latents broken where no pixels are at hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from benchmarks.judging import Outcome
from benchmarks.latents_conditions import Condition
from benchmarks.latents_scores import CHANNELS, STRENGTHS, losses
from phys_pipeline.media import corrupt

MARGIN = 2  # cells around a crop, so that shifts bring in real content and nothing wraps
INNER = 16  # cells
CROP = INNER + 2 * MARGIN
KINDS = ("jitter", "teleport", "reverse", "stutter", "shuffle", "freeze", "cut", "flicker", "noise")
VISIBLE = 0.05  # mean absolute difference from the clip, in standard deviations of the crop
_NOISE = 0.3  # standard deviations of the crop
_GAIN = 0.25


@dataclass(frozen=True)
class FirstFrame:
    """Frame 0 divided by the median of the other frames (steps: of the other steps)."""

    size: float  # root mean square about the channel means
    roughness: float  # energy of differences between neighbouring cells over energy
    step: float  # root mean square difference to the next frame


def first_frame(latents: Tensor) -> FirstFrame:
    """How frame 0 of (C, T, h, w) differs from the others."""
    # latents: (C, T, h, w)
    centred = latents - latents.mean(dim=(1, 2, 3), keepdim=True)
    energy = centred.square().mean(dim=(0, 2, 3))
    fine = (centred.diff(dim=3).square().mean(dim=(0, 2, 3)) + centred.diff(dim=2).square().mean(dim=(0, 2, 3))) / 2
    steps = centred.diff(dim=1).square().mean(dim=(0, 2, 3)).sqrt()
    return FirstFrame(*(float(values[0] / values[1:].median()) for values in (energy.sqrt(), fine / energy, steps)))


def first_frame_cost(latents: Tensor, condition: Condition) -> float:
    """Loss of (C, T, h, w) without its last frame minus the loss without its first: equally long, one with frame 0."""
    with_first, without = losses(torch.stack([latents[:, :-1], latents[:, 1:]]), condition)
    return with_first - without


def frame_sizes(latents: Tensor) -> tuple[list[float], list[float]]:
    """Root mean square of each frame (T), and of each step (T - 1), about the channel means."""
    centred = latents - latents.mean(dim=(1, 2, 3), keepdim=True)
    steps = centred.diff(dim=1).square().mean(dim=(0, 2, 3)).sqrt()
    return centred.square().mean(dim=(0, 2, 3)).sqrt().tolist(), steps.tolist()


@dataclass(frozen=True)
class ChannelShares:
    """Per channel of one or several latents: standard deviation, and the share of its variance that moves."""

    deviation: np.ndarray
    moving: np.ndarray
    moving_energy: np.ndarray  # share of all moving energy

    @property
    def strongest_quarter(self) -> float:
        """Share of the moving energy in the quarter of the channels that move most."""
        return float(np.sort(self.moving_energy)[::-1][: max(1, len(self.moving_energy) // 4)].sum())


def channel_shares(clips: Sequence[Tensor]) -> ChannelShares:
    """Variance of each channel about its clip mean, split in a still part (the temporal mean) and what moves."""
    # clips: each (C, T, h, w)
    total, moving = 0.0, 0.0
    for latents in clips:
        centred = latents.double() - latents.double().mean(dim=(1, 2, 3), keepdim=True)
        total = total + centred.square().mean(dim=(1, 2, 3)) / len(clips)
        moving = moving + (centred - centred.mean(dim=1, keepdim=True)).square().mean(dim=(1, 2, 3)) / len(clips)
    total, moving = np.asarray(total), np.asarray(moving)
    return ChannelShares(np.sqrt(total), moving / total, moving / moving.sum())


def read_latents(folder: Path) -> dict[str, Tensor]:
    """All (1, C, T, h, w) named ``latents`` in the safetensors files of a folder, as float32 (C, T, h, w) by file name."""
    from safetensors.torch import load_file

    found = {}
    for path in sorted(folder.glob("*.safetensors")):
        tensors = load_file(path)
        if "latents" not in tensors or tensors["latents"].dim() != 5 or tensors["latents"].shape[0] != 1:
            raise ValueError(f"{path} has no tensor 'latents' of shape (1, C, T, h, w)")
        found[path.stem] = tensors["latents"][0].float()
    if not found:
        raise ValueError(f"no safetensors file in {folder}")
    return found


def crops_of(latents: Tensor) -> list[Tensor]:
    """Crops (C, T, 20, 20) of (C, T, h, w) that don't overlap, spread over the grid."""
    rows, columns = (
        np.linspace(0, side - CROP, side // CROP).round().astype(int).tolist() for side in latents.shape[2:]
    )  # fmt: skip
    return [latents[:, :, top : top + CROP, left : left + CROP] for top in rows for left in columns]


def inner(crop: Tensor, right: int = 0, down: int = 0) -> Tensor:
    """The middle of a crop with its content moved by whole cells, (C, T, 16, 16)."""
    top, left = MARGIN - down, MARGIN - right
    return crop[:, :, top : top + INNER, left : left + INNER]


def broken(crop: Tensor, kind: str, strength: float, seed: int) -> Tensor:
    """A copy of the middle of a crop (C, T, 20, 20) with broken motion, (C, T, 16, 16).

    ``jitter``: each frame is moved by up to 2 s whole cells; ``teleport``: from the middle on by 4 s cells; ``freeze``: the last
    s T/2 frames repeat the one before; ``cut``: they show the clip's own frames turned by 180 degrees, backwards; ``noise``:
    Gaussian, 0.3 s standard deviations, new in each frame; ``flicker``: each frame times 1 + 0.25 s normal; the others as in
    ``phys_pipeline/media/corruptions.py``.
    """
    # crop: (C, T, 20, 20)
    clean, frames = inner(crop), crop.shape[1]
    rng = np.random.default_rng([seed, 31])
    part = max(1, round(frames // 2 * strength))
    if kind in ("reverse", "stutter", "shuffle"):
        return corrupt(clean, kind, strength, seed=seed)
    if kind == "jitter":
        reach = round(MARGIN * strength)
        moves = rng.integers(-reach, reach + 1, size=(frames, 2)).tolist()
        return torch.cat([inner(crop[:, t : t + 1], *moves[t]) for t in range(frames)], dim=1)
    if kind == "teleport":
        reach, middle = round(MARGIN * strength), frames // 2
        right, down = [(reach, 0), (-reach, 0), (0, reach), (0, -reach)][int(rng.integers(4))]
        return torch.cat([inner(crop[:, :middle], right, down), inner(crop[:, middle:], -right, -down)], dim=1)
    if kind == "freeze":
        last = frames - part - 1
        return clean[:, [min(t, last) for t in range(frames)]]
    if kind == "cut":
        return torch.cat([clean[:, : frames - part], clean.flip(1, 2, 3)[:, :part]], dim=1)
    normal = torch.from_numpy(rng.standard_normal(clean.shape if kind == "noise" else (1, frames, 1, 1))).float()
    if kind == "noise":
        return clean + _NOISE * strength * clean.std() * normal
    if kind == "flicker":
        return clean * (1 + _GAIN * strength * normal)
    raise ValueError(f"unknown kind {kind!r}; use one of {', '.join(KINDS)}")


def judge_real(name: str, latents: Tensor, conditions: Sequence[Condition]) -> dict[str, list[Outcome]]:
    """Outcomes of every condition on every visible copy of every crop of one latent (C, T, h, w)."""
    outcomes: dict[str, list[Outcome]] = {condition.label: [] for condition in conditions}
    for index, crop in enumerate(crops_of(latents)):
        clean = inner(crop)
        copies = {(kind, s): broken(crop, kind, s, seed=1000 * index + 7) for kind in KINDS for s in STRENGTHS}
        seen = {key: copy for key, copy in copies.items() if float((copy - clean).abs().mean()) >= VISIBLE * float(clean.std())}
        for condition in conditions:
            videos = torch.stack([clean, *seen.values()])
            scores = losses(CHANNELS[condition.channels](videos[:, :, 1:] if condition.drop_first else videos), condition)
            for (kind, strength), found in zip(seen, scores[1:], strict=True):
                outcomes[condition.label].append(Outcome(name, index, kind, strength, found > scores[0], True))
    return outcomes


def real_conditions(chosen: dict[str, object]) -> list[Condition]:
    """What real latents are scored with; the space is their own."""
    return [
        Condition("preset", "real"),
        Condition("chosen", "real", chosen),
        Condition("chosen, frame 0 dropped", "real", chosen, drop_first=True),
        Condition("chosen, channels of unit variance", "real", chosen, "unit variance"),
        Condition("second / first difference", "real", peer=True),
        Condition("second / first difference, frame 0 dropped", "real", drop_first=True, peer=True),
    ]
