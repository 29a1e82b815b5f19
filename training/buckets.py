"""Shapes that windows are cut to, and the order of batches that never mix two shapes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from training.config import TrainConfig
from training.schedule import permutation

_ASPECTS = (1.0, 4 / 3, 3 / 4, 16 / 9, 9 / 16)  # width / height
_MULTIPLE = 16  # pixels; an 8x autoencoder and 2x patches


class Bucket(NamedTuple):
    """The shape of a window: frames, height and width in pixels."""

    frames: int
    height: int
    width: int

    def __str__(self) -> str:
        return f"{self.frames}x{self.height}x{self.width}"


def config_buckets(config: TrainConfig) -> list[Bucket]:
    """The buckets of `config.buckets`: the one of `off`, those of the list, or for `auto` the usual aspects at equal area.

    `auto` keeps `frames` and starts with height x width; the others have sides that are multiples of 16 pixels and an area as
    near to height * width as these allow.
    """
    own = Bucket(config.frames, config.height, config.width)
    if isinstance(config.buckets, list):
        return [Bucket(*bucket) for bucket in config.buckets]
    if config.buckets == "off":
        return [own]
    area = config.height * config.width
    found = [own]
    for aspect in _ASPECTS:
        height = max(_MULTIPLE, _MULTIPLE * round(math.sqrt(area / aspect) / _MULTIPLE))
        width = max(_MULTIPLE, _MULTIPLE * round(area / height / _MULTIPLE))
        found.append(Bucket(config.frames, height, width))
    return list(dict.fromkeys(found))


def nearest_bucket(buckets: Sequence[Bucket], frames: int, height: int, width: int) -> Bucket | None:
    """The bucket for a clip of height x width that has `frames` frames at the model's rate; None when it fills none.

    Of those that it fills, the nearest in the logarithm of the aspect ratio; of equally near ones the longest.
    """
    filled = [bucket for bucket in buckets if bucket.frames <= frames]
    aspect = math.log(width / height)
    return min(filled, key=lambda b: (round(abs(math.log(b.width / b.height) - aspect), 9), -b.frames), default=None)


def batch_indices(bucket_of: Sequence[int], seed: int, step: int, global_batch: int) -> list[int]:
    """Dataset indices of one step's global batch, a function of its arguments alone; all lie in one bucket.

    One bucket: an endless row of permutations, cut into batches. Several: an epoch holds ceil(count / global_batch) batches of
    every bucket in a random order; a bucket whose count doesn't divide wraps into its own beginning, so that every sample is
    seen in every epoch and all processes, taking their slices of the same batch, do the same number of steps.

    Args:
        bucket_of: the bucket of every sample.
    """
    members = _members(tuple(bucket_of))
    if len(members) == 1:
        count = len(bucket_of)
        places = (divmod(position, count) for position in range(step * global_batch, (step + 1) * global_batch))
        return [permutation(count, seed, "order", epoch)[place] for epoch, place in places]
    batches = [(bucket, batch) for bucket in members for batch in range(math.ceil(len(members[bucket]) / global_batch))]
    epoch, place = divmod(step, len(batches))
    bucket, batch = batches[permutation(len(batches), seed, "buckets", epoch)[place]]
    inside = members[bucket]
    order = permutation(len(inside), seed, "order", bucket, epoch)
    return [inside[order[i % len(inside)]] for i in range(batch * global_batch, (batch + 1) * global_batch)]


def steps_per_epoch(bucket_of: Sequence[int], global_batch: int) -> int:
    """Steps in which every sample is seen at least once."""
    return sum(math.ceil(len(inside) / global_batch) for inside in _members(tuple(bucket_of)).values())


def steps_of_epochs(config: TrainConfig, bucket_of: Sequence[int], processes: int) -> TrainConfig:
    """The settings with `max_train_steps` worked out from `num_epochs`, rounded up to whole steps; unchanged without it.

    With several buckets an epoch is `steps_per_epoch` steps, with one the samples over the global batch.
    """
    if config.num_epochs is None:
        return config
    batch = config.train_batch_size * config.gradient_accumulation_steps * processes
    several = len(_members(tuple(bucket_of))) > 1
    samples = batch * steps_per_epoch(bucket_of, batch) if several else len(bucket_of)
    return replace(config, max_train_steps=math.ceil(config.num_epochs * samples / batch))


@lru_cache(maxsize=4)
def _members(bucket_of: tuple[int, ...]) -> dict[int, list[int]]:
    return {bucket: [i for i, b in enumerate(bucket_of) if b == bucket] for bucket in sorted(set(bucket_of))}
