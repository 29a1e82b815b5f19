"""Scores of clips and their corrupted copies in pixels and in latents, kept in a file from which an interrupted run goes on."""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from benchmarks.latents_clips import Encoder, LinearCompression, compress, to_unit
from benchmarks.latents_conditions import Condition
from benchmarks.pairs import Clip, copy_name, is_visible
from benchmarks.scores import ROOT, Row, SpectralMeasures, code_digest, read_rows
from phys_pipeline.media import CORRUPTIONS, corrupt
from phys_pipeline.spectral import SpectralMotionLoss

STRENGTHS = (0.5, 1.0)
_BATCH = 5  # clips that the loss sees at once
_CODE = tuple(ROOT / path for path in (
    "benchmarks/latents_clips.py", "benchmarks/latents_scores.py", "phys_pipeline/media/corruptions.py",
    "phys_pipeline/media/warping.py",
))  # fmt: skip


def standard_deviations(latents: Tensor) -> Tensor:
    """Each channel divided by its own standard deviation over the clip; (B, C, T, h, w)."""
    return latents / latents.std(dim=(2, 3, 4), keepdim=True).clamp_min(1e-6)


def decorrelated(latents: Tensor) -> Tensor:
    """Channels mixed so that their covariance over the clip is the identity (ZCA); (B, C, T, h, w)."""
    return torch.stack([_mixed(item, lambda values: values.clamp_min(1e-6 * values[-1]).rsqrt()) for item in latents])


def strongest_change(latents: Tensor) -> Tensor:
    """The one mixture of channels in which neighbouring frames differ most; (B, 1, T, h, w)."""
    mixed = []
    for item in latents:
        change = (item[:, 1:] - item[:, :-1]).flatten(1)
        mixed.append(torch.einsum("c,cthw->thw", torch.linalg.eigh((change @ change.T).double())[1][:, -1].float(), item)[None])
    return torch.stack(mixed)


def _mixed(latents: Tensor, scale: Callable[[Tensor], Tensor]) -> Tensor:
    # latents: (C, T, h, w)
    values, vectors = torch.linalg.eigh(torch.cov(latents.flatten(1).double()))
    return torch.einsum("dc,cthw->dthw", ((vectors * scale(values)) @ vectors.T).float(), latents)


CHANNELS: dict[str, Callable[[Tensor], Tensor]] = {
    "as they are": lambda latents: latents,
    "unit variance": standard_deviations,
    "decorrelated": decorrelated,
    "strongest only": strongest_change,
}


@torch.no_grad()
def losses(videos: Tensor, condition: Condition) -> list[float]:
    """One score per clip of (B, C, T, H, W), the higher the worse."""
    # videos: (B, C, T, H, W)
    if condition.peer:
        first = videos[:, :, 1:] - videos[:, :, :-1]
        second = first[:, :, 1:] - first[:, :, :-1]
        size = first.abs().mean(dim=(1, 2, 3, 4))
        return (second.abs().mean(dim=(1, 2, 3, 4)) / size.clamp_min(1e-12)).tolist()
    loss = SpectralMotionLoss(condition.config)
    return [value for part in videos.split(_BATCH) for value in loss(part, "none").loss.tolist()]


def prepared(latents: Tensor, condition: Condition, linear: LinearCompression) -> Tensor:
    """Frame-wise latents (B, C, T, h, w) as the condition wants them."""
    compressed = compress(latents, condition.space, linear)
    return CHANNELS[condition.channels](compressed[:, :, 1:] if condition.drop_first else compressed)


def broken_copies(clip: Clip) -> dict[str, np.ndarray]:
    """All corrupted copies of a clip by name ("KIND STRENGTH"), uint8 (T, H, W, 3)."""
    seed = int(hashlib.sha256(f"{clip.name} {clip.start}".encode()).hexdigest(), 16) % 2**31
    video = to_unit(clip.pixels)
    return {
        copy_name(kind, strength): (corrupt(video, kind, strength, seed=seed).permute(1, 2, 3, 0) * 255).round().byte().numpy()
        for kind in CORRUPTIONS
        for strength in STRENGTHS
    }


def score(
    clips: Sequence[Clip], conditions: Sequence[Condition], encoder: Encoder, linear: LinearCompression, store: Path
) -> list[Row]:
    """Rows of all conditions on all clips; what ``store`` (JSON lines) lacks is computed and added to it."""
    code = json.dumps([*(code_digest(path) for path in _CODE), f"{linear.kept:.9f}"])
    versions = [_version(condition, code) for condition in conditions]
    known = {row.key: row for row in read_rows(store)}
    store.parent.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    with store.open("a", encoding="utf-8") as handle:
        for number, clip in enumerate(clips, start=1):
            wanted = [
                (condition, version)
                for condition, version in zip(conditions, versions, strict=True)
                if (clip.content, "latents", condition.label, version) not in known
            ]
            if not wanted:
                continue
            copies = broken_copies(clip)
            seen = [name for name, copy in copies.items() if is_visible(clip.pixels, copy)]
            pixels = [clip.pixels, *(copies[name] for name in seen)]
            latents = encoder(pixels)
            for condition, version in wanted:
                if condition.space == "pixels":
                    found = losses(torch.stack([to_unit(item[:: condition.every]) for item in pixels]), condition)
                else:
                    found = losses(prepared(latents, condition, linear), condition)
                row = Row(
                    clip.source, clip.name, clip.start, clip.content, "latents", condition.label, version, found[0], None,
                    dict(zip(seen, found[1:], strict=True)), [name for name in copies if name not in seen],
                )  # fmt: skip
                known[row.key] = row
                handle.write(json.dumps(asdict(row), allow_nan=False) + "\n")
            handle.flush()
            if number % 5 == 0 or number == len(clips):
                print(f"{number}/{len(clips)} clips, {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)
    return [
        known[clip.content, "latents", condition.label, version]
        for clip in clips
        for condition, version in zip(conditions, versions, strict=True)
    ]


def _version(condition: Condition, code: str) -> str:
    loss = SpectralMeasures("", condition.config, components=False).versions()[""]
    text = json.dumps([loss, code, asdict(condition)])
    return hashlib.sha256(text.encode()).hexdigest()[:16]
