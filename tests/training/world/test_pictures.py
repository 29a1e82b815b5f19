"""Pictures: every photograph by its name, at the size asked for; textures with bounded values."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("skimage", reason='the extra "pretrain" is not installed')
pytest.importorskip("sklearn", reason='the extra "pretrain" is not installed')

from training.world.pictures import photograph, texture
from training.world.scenes import PHOTOGRAPHS


def test_photographs_differ_and_have_the_size_asked_for():
    pictures = [photograph(name, 48, np.random.default_rng(0)) for name in PHOTOGRAPHS]
    assert all(
        p.shape == (3, 48, 48) and p.dtype == np.float32 and p.min() >= 0 and p.max() <= 1 and p.std() > 0.08 for p in pictures
    )
    assert all(np.abs(a - b).mean() > 0.05 for i, a in enumerate(pictures) for b in pictures[:i])


def test_textures_are_random_and_in_range():
    rng = np.random.default_rng(1)
    drawn = [texture(64, rng) for _ in range(8)]
    assert all(t.shape == (3, 64, 64) and t.min() >= 0 and t.max() <= 1 and t.std() > 0.03 for t in drawn)
    assert all(np.abs(a - b).mean() > 0.02 for i, a in enumerate(drawn) for b in drawn[:i])
