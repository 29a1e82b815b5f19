"""Frame numbers beyond the ends of a clip."""

from __future__ import annotations

import numpy as np


def reflected(numbers: np.ndarray, frames: int) -> np.ndarray:
    """Numbers >= 0 folded into ``0 .. frames - 1`` as if the clip played back and forth: no jump cut, no repeated end."""
    if frames == 1:
        return np.zeros_like(numbers)
    period = 2 * (frames - 1)
    folded = np.asarray(numbers) % period
    return np.minimum(folded, period - folded)
