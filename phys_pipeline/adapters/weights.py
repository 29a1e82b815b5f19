"""The algebra of LoRA weights: one layer's change, fusing several into one layer, and taking them apart again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class LoraLayer:
    """A linear layer's change ``alpha / rank * up @ down``. rsLoRA's ``alpha / sqrt(rank)`` is an alpha ``sqrt(rank)`` larger."""

    down: Tensor  # (rank, in)
    up: Tensor  # (out, rank)
    alpha: float

    @property
    def rank(self) -> int:
        return int(self.down.shape[0])

    @property
    def scale(self) -> float:
        return self.alpha / self.rank

    def delta(self) -> Tensor:
        """The change itself, (out, in), float32."""
        return self.scale * (self.up.float() @ self.down.float())

    def squared_norm(self) -> float:
        """Sum of the squares of the change's entries, in float64 and without building it: tr(A A^T B^T B)."""
        down, up = self.down.detach().double(), self.up.detach().double()
        return self.scale**2 * torch.sum((down @ down.T) * (up.T @ up)).clamp_min(0).item()


def distance(a: LoraLayer, b: LoraLayer) -> float:
    """Root of the summed squares of the difference of two changes, without building them."""
    down = torch.cat([a.down.double(), b.down.double()])
    up = torch.cat([a.scale * a.up.double(), -b.scale * b.up.double()], dim=1)
    return LoraLayer(down, up, float(down.shape[0])).squared_norm() ** 0.5


def fuse(parts: Sequence[LoraLayer | None], rows: Sequence[int]) -> LoraLayer:
    """One layer whose output rows are those of ``parts`` in order (None: no change of these ``rows``).

    The downs are stacked, the ups lie on a block diagonal with their scale folded in, so that alpha equals rank.
    """
    given = [part for part in parts if part is not None]
    down = torch.cat([part.down.float() for part in given])
    up = down.new_zeros(sum(rows), len(down))
    row = column = 0
    for part, count in zip(parts, rows, strict=True):
        if part is not None:
            up[row : row + count, column : column + part.rank] = part.scale * part.up.float()
            column += part.rank
        row += count
    return LoraLayer(down, up, float(len(down)))


def split(layer: LoraLayer, rows: Sequence[int]) -> list[LoraLayer | None]:
    """The changes of consecutive groups of output rows. Ranks that a group doesn't use are left out, and so is (None) a group
    that isn't changed, unless none is: so :func:`fuse` is undone."""
    ups = torch.split(layer.up, list(rows))
    if not layer.up.any():
        return [LoraLayer(layer.down, up, layer.alpha) for up in ups]
    parts: list[LoraLayer | None] = []
    for up in ups:
        used = up.any(dim=0)  # (rank,)
        count = int(used.sum())
        if count == layer.rank:
            parts.append(LoraLayer(layer.down, up.contiguous(), layer.alpha))
        elif count:
            parts.append(LoraLayer(layer.down[used].contiguous(), up[:, used].contiguous(), layer.alpha * count / layer.rank))
        else:
            parts.append(None)
    return parts


def swap_halves(layer: LoraLayer) -> LoraLayer:
    """The same change with the halves of its output rows exchanged."""
    first, second = layer.up.chunk(2)
    return LoraLayer(layer.down, torch.cat([second, first]), layer.alpha)
