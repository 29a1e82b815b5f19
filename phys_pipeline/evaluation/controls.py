"""Control clips: a column's own clips with their motion removed, slowed, smeared, shuffled or reversed.

A metric that prefers one of them to the clip it was made of can be won without better motion.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property

import numpy as np

from phys_pipeline.errors import ConfigError
from phys_pipeline.evaluation.sample import VideoSample
from phys_pipeline.media import Video

PREFIX = "control:"
_BLUR = 2  # frames to each side


@dataclass(frozen=True, eq=False)
class ControlSample(VideoSample):
    """A clip whose frames are changed when it is decoded. Prompt, seed, labels, rate and number of frames stay.

    Args:
        control: of :data:`CONTROLS`; the column is "control:" and its name.
        control_seed: of the shuffling, together with prompt and seed of the clip.

    Raises:
        ConfigError: an unknown control.
    """

    control: str = field(default="", kw_only=True)
    control_seed: int = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        if self.control not in CONTROLS:
            raise ConfigError(f"unknown control {self.control!r}; use one of {', '.join(CONTROLS)}")
        super().__post_init__()

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the clip's own digest and of what is done to it."""
        return hashlib.sha256(f"{self.control} {self.control_seed} {super().digest}".encode()).hexdigest()

    def decode(self) -> Video:
        """The changed video. Raises MediaError when the clip can't be decoded."""
        video = super().decode()
        name = hashlib.sha256(f"{self.control_seed} {self.id} {self.seed}".encode()).digest()
        rng = np.random.default_rng(int.from_bytes(name[:8], "big"))
        return replace(video, frames=CONTROLS[self.control](video.frames, rng), source=self.name)


def control_samples(samples: Iterable[VideoSample], kinds: Sequence[str] | None = None, seed: int = 0) -> Iterator[ControlSample]:
    """The controls of ``samples``: of the given ``kinds``, or of all. Frames are made when a control is decoded, not before.

    Raises:
        ConfigError: an unknown kind.
    """
    for sample in samples:
        shared = {part.name: getattr(sample, part.name) for part in fields(VideoSample) if part.init}
        for kind in CONTROLS if kinds is None else kinds:
            yield ControlSample(**{**shared, "model": PREFIX + kind}, control=kind, control_seed=seed)


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
