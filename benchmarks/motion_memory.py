"""Memory that the motion terms add to a training step on latents, in sizes of x0-hat in float32.

    python benchmarks/motion_memory.py

Bytes of tensors are counted as torch makes and drops them, so the numbers are exact and need no GPU. Writes
docs/results/motion_memory.md.
"""

from __future__ import annotations

import argparse
import sys
import weakref
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that `training` is found

from phys_pipeline.atomic import atomic_file
from phys_pipeline.spectral import AnchoredMotionLoss, SpectralMotionLoss
from training.objectives.anchored import Anchored
from training.objectives.spectral import Spectral
from training.objectives.term import ClipLoss, MotionTerm

ROOT = Path(__file__).resolve().parents[1]
CLIPS = {  # what HunyuanVideo's autoencoder makes of frames x height x width
    "33x320x512": (1, 16, 9, 40, 64),
    "49x480x832": (1, 16, 13, 60, 104),
    "129x544x960": (1, 16, 33, 68, 120),
    "129x720x1280": (1, 16, 33, 90, 160),
}


class Allocations(TorchDispatchMode):
    """Counts bytes of storages made inside, `live` now, `peak` at most; those of `present` were there before."""

    def __init__(self, present: Iterable[torch.Tensor]) -> None:
        super().__init__()
        self.live = self.peak = 0
        self._seen = {tensor.untyped_storage()._cdata: 0 for tensor in present}

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        for item in tree_flatten(result)[0]:
            if isinstance(item, torch.Tensor) and (key := item.untyped_storage()._cdata) not in self._seen:
                storage = item.untyped_storage()
                self._seen[key] = storage.nbytes()
                self.live += storage.nbytes()
                self.peak = max(self.peak, self.live)
                weakref.finalize(storage, self._dropped, key)
        return result

    def _dropped(self, key: int) -> None:
        self.live -= self._seen.pop(key, 0)


def factors(loss: ClipLoss, shape: tuple[int, ...]) -> tuple[float, float]:
    """Memory held until the backward pass, and the most at any time, both over that of x0-hat (B, C, T, H, W) in float32."""
    generator = torch.Generator().manual_seed(0)
    x0 = torch.randn(shape, generator=generator).cumsum(dim=2)
    x0_hat = (x0 + 0.1 * torch.randn(shape, generator=generator)).requires_grad_()
    term, sigma = MotionTerm(loss, 0.7, drop_first=True), torch.full(shape[:1], 0.2)
    term(x0_hat, x0, sigma)  # tables that are made once
    with Allocations([x0, x0_hat]) as count:
        result = term(x0_hat, x0, sigma)
        held = count.live
        result.loss.backward()
    size = x0_hat.numel() * x0_hat.element_size()
    return held / size, count.peak / size


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    losses: dict[str, ClipLoss] = {
        "spectral, absolute": Spectral(SpectralMotionLoss()),
        "spectral, excess": Spectral(SpectralMotionLoss(), excess=True),
        "anchored": Anchored(AnchoredMotionLoss()),
    }
    lines = [
        "# Memory of the motion terms on latents", "",
        "Made by `python benchmarks/motion_memory.py`: bytes counted, one sample, seed 0; no spread, a repeat gives the same. In "
        "sizes of x0-hat in float32. *Held*: kept from the term's forward to its backward pass, beside the model's own "
        "activations. *Peak*: the most at any time of either pass.",
        "",
        "| clip (latents) | x0-hat, MB | " + " | ".join(f"{name}: held | peak" for name in losses) + " |",
        "|---|---|" + "---|---|" * len(losses),
    ]  # fmt: skip
    worst: dict[str, float] = dict.fromkeys(losses, 0.0)
    for clip, shape in CLIPS.items():
        cells = []
        for name, loss in losses.items():
            held, peak = factors(loss, shape)
            worst[name] = max(worst[name], held)
            cells += [f"{held:.1f}", f"{peak:.1f}"]
        megabytes = torch.Size(shape).numel() * 4 / 1e6
        lines.append(f"| {clip} ({'x'.join(map(str, shape[1:]))}) | {megabytes:.1f} | " + " | ".join(cells) + " |")
    within = ", ".join(f"{name} {value:.1f}" for name, value in worst.items())
    lines += ["", f"Wanted: at most 2 held. Largest: {within}. {'Met.' if max(worst.values()) <= 2 else 'Not met.'}"]
    text = "\n".join(lines) + "\n"
    print(text)
    with atomic_file(ROOT / "docs" / "results" / "motion_memory.md") as temporary:
        temporary.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
