"""Make items in a thread of their own while those before are used."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

Item = TypeVar("Item")

_END: Any = object()


def made_ahead(items: Iterator[Item], most: int) -> Iterator[Item]:
    """The same items in the same order; up to ``most`` are made before they are asked for.

    What ``items`` raises is raised at its place. When the result is closed early, the item being made is waited for.
    """
    with ThreadPoolExecutor(max_workers=1) as thread:
        coming = deque(thread.submit(next, items, _END) for _ in range(most))
        try:
            while (item := coming.popleft().result()) is not _END:
                coming.append(thread.submit(next, items, _END))
                yield item
        finally:
            for future in coming:
                future.cancel()
