"""What a long generation says on the terminal."""

from __future__ import annotations

import sys


class StepProgress:
    """Progress of sampling on stderr: one line that counts up on a terminal, one line per stage elsewhere."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._stage = ""

    def __call__(self, stage: str, step: int, total: int) -> None:
        if self._terminal:
            print(f"\r{stage} {step}/{total} ", end="\n" if step >= total else "", file=sys.stderr, flush=True)
        elif stage != self._stage:
            print(f"{stage}: {total} steps", file=sys.stderr, flush=True)
        self._stage = stage

    def close(self) -> None:
        """End the current line."""
        sys.stderr.flush()
