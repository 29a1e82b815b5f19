"""Compute many items in chunks that fit the memory of the device."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from phys_pipeline.errors import ModelError

R = TypeVar("R")


def in_chunks(compute: Callable[[Any], Iterable[R]], items: Sequence[Any], size: int) -> list[R]:
    """``compute(items[a:b])`` for consecutive chunks, joined. Out of memory halves the chunk; at one item it is a ModelError."""
    import torch

    results: list[R] = []
    while len(results) < len(items):
        start = len(results)
        try:
            results.extend(compute(items[start : start + size]))
        except torch.cuda.OutOfMemoryError as error:
            if size == 1:
                raise ModelError("out of memory with one item: free memory on the device, or evaluate on the CPU") from error
            size //= 2
            torch.cuda.empty_cache()
    return results
