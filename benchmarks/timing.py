"""Statistics of repeated timings."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def median_interval(values: Sequence[float] | np.ndarray) -> tuple[float, float, float]:
    """Median and its 95 % bootstrap interval (2,000 resamples, seed 0)."""
    rng = np.random.default_rng(0)
    low, high = np.percentile([np.median(rng.choice(values, len(values))) for _ in range(2000)], [2.5, 97.5])
    return float(np.median(values)), float(low), float(high)
