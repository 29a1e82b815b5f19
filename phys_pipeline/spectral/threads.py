"""How many threads torch uses while windows are scored."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock, local

import torch

_lock = Lock()
_own = local()  # whether this thread is inside already
_users = 0
_before = 1


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Torch uses one thread meanwhile, in this thread and in those that it starts; several may do so at once.

    Windows are small: several threads gain little, and lose much by waiting for each other where a decoder has the cores.
    """
    global _users, _before
    if getattr(_own, "inside", False):
        yield
        return
    with _lock:
        if not _users:
            _before = torch.get_num_threads()
        _users += 1
    torch.set_num_threads(1)
    _own.inside = True
    try:
        yield
    finally:
        _own.inside = False
        with _lock:
            _users -= 1
        torch.set_num_threads(_before)
