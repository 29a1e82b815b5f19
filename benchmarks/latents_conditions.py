"""What the latent benchmark scores: spaces, settings, and the candidates among which settings were chosen."""

from __future__ import annotations

from dataclasses import dataclass, field

from benchmarks.latents_clips import TIME_STRIDE
from phys_pipeline.spectral import SpectralConfig


@dataclass(frozen=True)
class Condition:
    """What is scored and how.

    ``space`` is "pixels" or a stand-in of ``latents_clips``; ``overrides`` change the calibrated preset; ``channels`` is one of
    ``latents_scores.CHANNELS``; ``drop_first`` leaves latent frame 0 out; ``every`` is a step in time for pixels; ``peer``: the
    ratio of second to first difference in place of the loss.
    """

    label: str
    space: str
    overrides: dict[str, object] = field(default_factory=dict)
    channels: str = "as they are"
    drop_first: bool = False
    every: int = 1
    peer: bool = False

    @property
    def config(self) -> SpectralConfig:
        return SpectralConfig.calibrated(**self.overrides)


LONG_WINDOWS: dict[str, object] = {"stride": 16}  # half the windows of the preset, to save time on 41 frames


def candidates() -> list[Condition]:
    """Settings that are tried on the tuning part, at time stride 4: patches and kept frequencies."""
    return [tried({"patches": patches, "keep": keep}) for patches in (1, 2, 3) for keep in (0.3, 0.6, 1.0)]


def tried(settings: dict[str, object]) -> Condition:
    """One candidate."""
    return Condition(" ".join(f"{name}={value}" for name, value in settings.items()), "linear", settings)


def refinements(chosen: dict[str, object]) -> list[Condition]:
    """Single changes of the chosen settings, tried on the tuning part too."""
    return [
        Condition("chosen, frame 0 dropped", "linear", chosen, drop_first=True),
        Condition("chosen, window=8 stride=4", "linear", {**chosen, "window": 8, "stride": 4}),
        Condition("chosen, whiten=0.5", "linear", {**chosen, "whiten": 0.5}),
    ]


def reported(chosen: dict[str, object]) -> list[Condition]:
    """The main conditions, at time stride 4, with the chosen overrides."""
    return [
        Condition("pixels, every 4th frame, preset", "pixels", every=TIME_STRIDE),
        Condition("latents / 4 (linear), preset", "linear"),
        Condition("latents / 4 (linear), chosen", "linear", chosen),
        Condition("latents / 4 (linear), chosen, frame 0 dropped", "linear", chosen, drop_first=True),
        Condition("pixels, every 4th frame, second / first difference", "pixels", every=TIME_STRIDE, peer=True),
        Condition("latents / 4 (linear), second / first difference", "linear", peer=True),
    ]


def on_fewer_clips(chosen: dict[str, object]) -> list[Condition]:
    """The other conditions, scored on fewer clips to save time: other stand-ins, other channels, every frame."""
    return [
        Condition("latents / 4 (mean), chosen", "mean", chosen),
        Condition("latents / 4 (every 4th), chosen", "fourth", chosen),
        Condition("latents / 4 (linear), chosen, channels of unit variance", "linear", chosen, "unit variance"),
        Condition("latents / 4 (linear), chosen, channels decorrelated", "linear", chosen, "decorrelated"),
        Condition("latents / 4 (linear), chosen, strongest channel only", "linear", chosen, "strongest only"),
        Condition("pixels, every frame, preset", "pixels", LONG_WINDOWS),
        Condition("latents, every frame, chosen", "every", {**chosen, **LONG_WINDOWS}),
    ]
