"""Control clips: a column's own clips with their motion removed, slowed, smeared, shuffled or reversed.

A metric that prefers one of them to the clip it was made of can be won without better motion.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from phys_pipeline.errors import ConfigError
from phys_pipeline.evaluation.sample import VideoSample

PREFIX = "control:"
_BLUR = 2  # frames to each side


def control_samples(samples: Iterable[VideoSample], kinds: Sequence[str] = (), seed: int = 0) -> Iterator[VideoSample]:
    """The control clips of ``samples``, made when they are asked for; each clip is decoded once.

    They keep prompt, seed, rate and number of frames; their column is "control:KIND", ``meta["control_of"]`` the clip's.
    Labels stay, so that label metrics are computed too.

    Args:
        kinds: of :data:`CONTROLS`; all by default.
        seed: of the shuffling, together with prompt and seed of the clip.

    Raises:
        ConfigError: an unknown kind.
        MediaError: a clip can't be decoded.
    """
    for kind in kinds:
        if kind not in CONTROLS:
            raise ConfigError(f"unknown control {kind!r}; use one of {', '.join(CONTROLS)}")
    for sample in samples:
        video = sample.decode()
        rate = sample.fps if sample.fps is not None or sample.path is None else video.fps
        for kind in kinds or tuple(CONTROLS):
            name = f"{seed} {sample.id} {sample.seed}"
            rng = np.random.default_rng(int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big"))
            yield VideoSample(
                id=sample.id,
                model=PREFIX + kind,
                prompt=sample.prompt,
                seed=sample.seed,
                frames=CONTROLS[kind](video.frames, rng),
                fps=rate,
                reference=sample.reference,
                labels=dict(sample.labels),
                meta={"control_of": sample.model},
            )


def frozen(frames: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The first frame in place of every frame. Frames uint8 (T, H, W, 3), as in all controls."""
    return np.repeat(frames[:1], len(frames), axis=0)


def half_speed(frames: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The first half in the time of the whole: frame k shows moment k / 2, odd ones the mean of their two neighbours."""
    before = np.arange(len(frames)) // 2
    after = (np.arange(len(frames)) + 1) // 2
    return np.stack([_mean(frames[[i, j]]) for i, j in zip(before, after, strict=True)])


def time_blurred(frames: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Each frame is the mean of five, itself and two to each side; at the ends the outermost frame is repeated."""
    places = np.arange(-_BLUR, _BLUR + 1)
    return np.stack([_mean(frames[np.clip(index + places, 0, len(frames) - 1)]) for index in range(len(frames))])


def shuffled(frames: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The frames in random order, never their own order (if there are two)."""
    order = rng.permutation(len(frames))
    if len(frames) > 1 and (order == np.arange(len(frames))).all():
        order = np.roll(order, 1)
    return frames[order]


def backwards(frames: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The last frame first."""
    return frames[::-1].copy()


def _mean(frames: np.ndarray) -> np.ndarray:
    """Mean of uint8 frames (N, H, W, 3), rounded to the nearest level, halves up."""
    return ((2 * frames.sum(axis=0, dtype=np.uint32) + len(frames)) // (2 * len(frames))).astype(np.uint8)


CONTROLS: dict[str, Callable[[np.ndarray, np.random.Generator], np.ndarray]] = {
    "frozen": frozen,
    "half_speed": half_speed,
    "time_blurred": time_blurred,
    "shuffled": shuffled,
    "reversed": backwards,
}
