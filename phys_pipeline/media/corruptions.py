"""Nine ways to break the motion of any clip, real footage too, for testing what a motion score can tell apart.

A score is right on a pair when the corrupted copy is worse than the clip itself. Full strength is the amplitude of the
synthetic benchmark on 64-pixel clips, expressed in widths so that it scales with the picture.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from phys_pipeline.errors import ConfigError
from phys_pipeline.media.warping import rubber_warp, similarity_warp

_SHIFT = 1.5 / 64  # widths; standard deviations of the random similarity at full strength
_ANGLE = math.radians(5.0)
_LOG_SCALE = 0.04
_WALK = 0.7
_JUMP = 0.15  # widths that six frames of typical motion cover
_SKIPPED_FRAMES = 6
_GROUP = 4
_BEND = 0.06  # widths
_GAIN = 0.25


@dataclass(frozen=True)
class _Request:
    """What a corruption may use besides the clip."""

    strength: float
    generator: torch.Generator
    source: torch.Tensor | None  # (B, C, T + more, H, W)
    other: torch.Tensor | None  # (B, C, T', H, W)


def corrupt(
    video: torch.Tensor,
    kind: str,
    strength: float = 1.0,
    seed: int = 0,
    *,
    source: torch.Tensor | None = None,
    other: torch.Tensor | None = None,
) -> torch.Tensor:
    """A corrupted copy of a pixel clip: same shape, dtype and device, values in [0, 1], the same for the same ``seed``.

    What ``strength`` s changes:

    * ``jitter``: each frame gets its own random similarity; standard deviations s x (2.3 % of the width, 5 degrees, 4 %).
    * ``walk``: the running sum of such similarities x 0.7, so that it drifts away; grows with the clip's length.
    * ``reverse``: the last s T/2 frames, at least two, play backwards from where they start (full: there and back).
    * ``stutter``: each frame is held for max(2, 1 + floor(3 s)) frames (full: 4, half: 2).
    * ``shuffle``: frames are permuted inside groups of four; s is the share of groups, at least one.
    * ``teleport``: from the middle on, everything is moved by 15 % x s of the width in a random direction; with ``source``,
      round(6 s) frames are skipped there instead, at least one.
    * ``rubber``: a sine bends the picture by up to 6 % x s of the width, differently in each frame.
    * ``flicker``: each frame's brightness is multiplied by 1 + 0.25 s x a normal random number.
    * ``cut``: the last s T/2 frames, at least one, show ``other``; without it, the clip's own frames rotated by 180 degrees,
      played backwards, as a negative with its colours exchanged.

    ``reverse``, ``stutter``, ``shuffle`` and ``cut`` take whole frames and change no pixel of them. A clip of one frame has
    no order to break, and ``reverse`` needs three. Each clip of a batch draws its own numbers; the first draws the same in a
    batch as alone.

    Args:
        video: ``(C, T, H, W)`` or ``(B, C, T, H, W)``, float in [0, 1].
        kind: one of :data:`CORRUPTIONS`.
        strength: 0 (``video`` itself is returned) to 1.
        source: for ``teleport``: the same clip going on, with more than T frames.
        other: for ``cut``: another clip with the same channels and picture size, at least s T/2 frames.

    Raises:
        ConfigError: an unknown kind, a strength outside [0, 1], or a clip of another shape or dtype.
    """
    if kind not in _FUNCTIONS:
        raise ConfigError(f"unknown corruption {kind!r}; use one of {', '.join(CORRUPTIONS)}")
    if not 0.0 <= strength <= 1.0:
        raise ConfigError(f"corruption strength {strength} must lie between 0 and 1")
    clip = _batched(video, "the clip")
    if strength == 0.0:
        return video
    extra = {"source": source, "other": other}
    batched = {name: None if item is None else _like(_batched(item, name), clip, name) for name, item in extra.items()}
    generator = torch.Generator().manual_seed(seed)
    result = _FUNCTIONS[kind](clip, _Request(float(strength), generator, batched["source"], batched["other"]))
    result = result.to(video.dtype)
    return result if video.ndim == 5 else result[0]


def _batched(video: torch.Tensor, name: str) -> torch.Tensor:
    if not isinstance(video, torch.Tensor) or video.ndim not in (4, 5) or not video.is_floating_point() or 0 in video.shape:
        described = f"{video.dtype} {tuple(video.shape)}" if isinstance(video, torch.Tensor) else type(video).__name__
        raise ConfigError(f"{name} must be a float tensor (C, T, H, W) or (B, C, T, H, W) in [0, 1], got {described}")
    return video if video.ndim == 5 else video[None]


def _like(extra: torch.Tensor, clip: torch.Tensor, name: str) -> torch.Tensor:
    if extra.shape[1] != clip.shape[1] or extra.shape[3:] != clip.shape[3:] or extra.shape[0] not in (1, len(clip)):
        shapes = f"{tuple(extra.shape)}, which doesn't go with the clip's {tuple(clip.shape)}"
        raise ConfigError(f"{name} has shape {shapes}; resize it")
    return extra.to(clip).expand(len(clip), -1, -1, -1, -1)


def _wide(video: torch.Tensor) -> torch.Tensor:
    """At least float32: positions in half precision would be off by whole pixels."""
    return video if video.dtype in (torch.float32, torch.float64) else video.float()


def _draws(clip: torch.Tensor, request: _Request) -> torch.Tensor:
    """Random similarities ``(B, T, 4)`` at the requested strength."""
    size = torch.tensor([_SHIFT, _SHIFT, _ANGLE, _LOG_SCALE]) * request.strength
    return torch.randn(clip.shape[0], clip.shape[2], 4, generator=request.generator) * size


def _jitter(clip: torch.Tensor, request: _Request) -> torch.Tensor:
    return similarity_warp(_wide(clip), _draws(clip, request)).clamp(0.0, 1.0)


def _walk(clip: torch.Tensor, request: _Request) -> torch.Tensor:
    return similarity_warp(_wide(clip), _draws(clip, request).cumsum(1) * _WALK).clamp(0.0, 1.0)


def _reverse(clip: torch.Tensor, request: _Request) -> torch.Tensor:
    count = clip.shape[2]
    turn = count - min(max(2, _second_part(count, request.strength)), count - 1)  # one frame alone has no direction
    order = [index if index < turn else 2 * turn - index for index in range(count)]
    return clip[:, :, order]


def _stutter(clip: torch.Tensor, request: _Request) -> torch.Tensor:
    hold = max(2, 1 + math.floor(3 * request.strength))
    return clip[:, :, [index - index % hold for index in range(clip.shape[2])]]


def _shuffle(clip: torch.Tensor, request: _Request) -> torch.Tensor:
    count = clip.shape[2]
    group = min(_GROUP, count)
    if group < 2:
        return clip.clone()
    groups = count // group
    chosen = max(1, round(request.strength * groups))
    clips = []
    for item in clip:
        order = torch.arange(count)
        for number in torch.randperm(groups, generator=request.generator)[:chosen].tolist():
            inside = torch.randperm(group, generator=request.generator)
            while torch.equal(inside, torch.arange(group)):
                inside = torch.randperm(group, generator=request.generator)
            order[number * group : (number + 1) * group] = number * group + inside
        clips.append(item[:, order.to(item.device)])
    return torch.stack(clips)


def _teleport(clip: torch.Tensor, request: _Request) -> torch.Tensor:
    batch, _, count, _, _ = clip.shape
    middle = count // 2
    if request.source is not None:
        skipped = min(max(1, round(_SKIPPED_FRAMES * request.strength)), request.source.shape[2] - count)
        if skipped < 1:
            raise ConfigError(f"teleport needs a source with more than the clip's {count} frames, got {request.source.shape[2]}")
        return torch.cat([clip[:, :, :middle], request.source[:, :, middle + skipped : count + skipped]], 2)
    direction = torch.rand(batch, generator=request.generator) * (2 * math.pi)
    jump = torch.stack([direction.cos(), direction.sin(), direction * 0, direction * 0], -1) * (_JUMP * request.strength)
    moved = similarity_warp(_wide(clip[:, :, middle:]), jump[:, None].expand(-1, count - middle, -1))
    return torch.cat([clip[:, :, :middle], moved.clamp(0.0, 1.0).to(clip.dtype)], 2)


def _rubber(clip: torch.Tensor, request: _Request) -> torch.Tensor:
    phase = (torch.rand(len(clip), generator=request.generator) * 2 - 1) * math.pi
    return rubber_warp(_wide(clip), _BEND * request.strength, phase).clamp(0.0, 1.0)


def _flicker(clip: torch.Tensor, request: _Request) -> torch.Tensor:
    gain = 1.0 + _GAIN * request.strength * torch.randn(clip.shape[0], clip.shape[2], generator=request.generator)
    return (clip * gain.to(clip)[:, None, :, None, None]).clamp(0.0, 1.0)


def _cut(clip: torch.Tensor, request: _Request) -> torch.Tensor:
    count = clip.shape[2]
    length = min(max(1, _second_part(count, request.strength)), count - 1)
    if length < 1:
        return clip.clone()
    if request.other is not None:
        if request.other.shape[2] < length:
            raise ConfigError(f"cut needs {length} frames of the other clip, got {request.other.shape[2]}; give a longer one")
        new = request.other[:, :, :length]
    else:
        new = 1.0 - clip.flip(2, 3, 4).roll(1, dims=1)[:, :, :length]
    return torch.cat([clip[:, :, : count - length], new], 2)


def _second_part(count: int, strength: float) -> int:
    """How many frames at the end of the clip are affected: half of them at full strength."""
    return max(1, round(count // 2 * strength)) if count > 1 else 0


_FUNCTIONS: dict[str, Callable[[torch.Tensor, _Request], torch.Tensor]] = {
    "jitter": _jitter,
    "walk": _walk,
    "reverse": _reverse,
    "stutter": _stutter,
    "shuffle": _shuffle,
    "teleport": _teleport,
    "rubber": _rubber,
    "flicker": _flicker,
    "cut": _cut,
}
CORRUPTIONS: tuple[str, ...] = tuple(_FUNCTIONS)
