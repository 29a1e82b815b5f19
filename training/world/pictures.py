"""The pictures of the world: photographs that scikit-image and scikit-learn install, and random textures."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from torch.nn import functional

from phys_pipeline.errors import ConfigError
from phys_pipeline.media.synthetic import plane_waves
from training.world.scenes import PHOTOGRAPHS

CARD_SIDE = 48  # pixels of a photograph that moves as a body
FRAME_SIDE = 128  # of one that fills the frame, seen in part


@cache
def _photograph(name: str) -> np.ndarray:
    """(H, W, 3) in [0, 1]. ConfigError without the packages of the extra "pretrain"."""
    try:
        from skimage import data
        from sklearn.datasets import load_sample_image

        loaders = {"woman": data.astronaut, "cat": data.chelsea, "cup": data.coffee, "rocket": data.rocket,
                   "motorcycle": lambda: data.stereo_motorcycle()[0], "temple": lambda: load_sample_image("china.jpg"),
                   "flower": lambda: load_sample_image("flower.jpg")}  # fmt: skip
        return np.asarray(loaders[name]()[..., :3], np.float32) / 255
    except (ImportError, OSError) as error:
        raise ConfigError(
            f'the photograph {name!r} needs the extra "pretrain": pip install "phys-pipeline[pretrain]" ({error})'
        ) from error


@cache
def _scaled(name: str, short_side: int) -> np.ndarray:
    """(3, h, w) with the shorter side of ``short_side`` px."""
    photo = torch.from_numpy(_photograph(name)).permute(2, 0, 1)[None]
    factor = short_side / min(photo.shape[2:])
    size = [max(short_side, round(factor * length)) for length in photo.shape[2:]]
    return functional.interpolate(photo, size=size, mode="bilinear", antialias=True, align_corners=False)[0].clamp(0, 1).numpy()


def photograph(name: str, side: int, rng: np.random.Generator) -> np.ndarray:
    """A square (3, side, side) of the photograph at a random place along its longer side, half of them mirrored."""
    photo = _scaled(name, side)
    top, left = (int(rng.integers(0, length - side + 1)) for length in photo.shape[1:])
    square = photo[:, top : top + side, left : left + side]
    return np.ascontiguousarray(square[:, :, ::-1] if rng.random() < 0.5 else square)


def texture(side: int, rng: np.random.Generator) -> np.ndarray:
    """A random (3, side, side) in [0, 1]: plane waves, or a blurred piece of a photograph; mean about 0.4."""
    if rng.random() < 0.5:
        y, x = np.mgrid[:side, :side].astype(np.float32)
        waves = plane_waves(x[None], y[None], rng, waves=16, shortest=8.0, longest=float(side))[:, 0]
        return np.clip(0.4 + 0.14 * waves, 0, 1)
    return 0.1 + 0.6 * photograph(PHOTOGRAPHS[int(rng.integers(len(PHOTOGRAPHS)))], side, rng)
