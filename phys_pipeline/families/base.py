"""What every base-model family has: its facts as data, its noise path, and the few methods a trainer or generator needs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from phys_pipeline.errors import ConfigError, ModelError
from phys_pipeline.families import sources
from phys_pipeline.noise_path import NoisePath

PARTS = ("pipeline", "transformer", "vae", "text", "scheduler")


@dataclass(frozen=True)
class FamilySpec:
    """The facts in which families differ.

    ``lora_target_regex`` is matched against whole module names. ``generation`` holds the sampling settings used when a model
    folder has no ``phys_pipeline.json``; a ``prompt_template`` of None means the pipeline's own.
    """

    name: str
    pipeline_class: str
    transformer_class: str
    vae_class: str
    hub_id: str
    lora_target_regex: str
    time_stride: int
    size_multiple: int
    native_fps: float
    default_shift: float
    default_guidance: float
    latent_channels: int
    frame_rule: str
    generation: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class LoadedModel:
    """A pipeline with what is known about it: family, where it came from, and its sampling defaults."""

    pipeline: Any
    family: VideoFamily
    source: str
    revision: str | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict)


class VideoFamily(ABC):
    """One base-model family. An instance belongs to one model: ``load`` and ``bind`` note that model's variant."""

    spec: FamilySpec
    path: NoisePath
    guidance_embeds: bool = False  # whether the transformer takes a distilled-guidance value; set by load and bind

    def bind(self, transformer: Any) -> VideoFamily:
        """Note the variant of a transformer that was built elsewhere; returns self."""
        self.guidance_embeds = bool(transformer.config.get("guidance_embeds", False))
        return self

    def load(self, part: str, source: str | None = None, dtype: torch.dtype = torch.float32) -> Any:
        """Load one part in evaluation mode: ``pipeline``, ``transformer``, ``vae``, ``scheduler`` or ``text``.

        ``source`` is a local folder in the diffusers layout, a Hub id ``owner/name``, or ``"tiny"``/None for the model that
        comes with this package. ``text`` is a pipeline of the text encoders alone, as :meth:`encode_text` takes it. Raises
        ModelError if the source is missing, holds another class, lacks weights, or its tokenizer fails its round trip.
        """
        if part not in PARTS:
            raise ConfigError(f"unknown model part {part!r}: use one of {', '.join(PARTS)}")
        folder = sources.local_folder(source, self.spec, self.components(part))
        loaded = self._load_from(part, folder, dtype)
        transformer = loaded if part == "transformer" else getattr(loaded, "transformer", None) if part == "pipeline" else None
        if transformer is not None:
            self.bind(transformer)
        return loaded

    def generation_defaults(self, source: str | None = None) -> dict[str, Any]:
        """Sampling settings of a model: the spec's, replaced where its ``phys_pipeline.json`` has a value. No download."""
        described = sources.description(source).get("generation", {})
        unknown = set(described) - set(self.spec.generation)
        if unknown:
            raise ModelError(f"phys_pipeline.json of {source} has unknown generation settings {sorted(unknown)}: remove them")
        return {**self.spec.generation, **described}

    def check_size(self, frames: int, height: int, width: int, vae: Any = None) -> None:
        """Raise ConfigError, naming the nearest valid numbers, if the model can't make or learn a video of this size.

        The time stride is that of ``vae`` if one is given (an autoencoder that doesn't compress time takes any count).
        """
        stride = compression(vae, "temporal", self.spec.time_stride)
        if frames < 1:
            raise ConfigError(f"{frames} frames: ask for at least 1")
        if (frames - 1) % stride:
            lower = (frames - 1) // stride * stride + 1
            raise ConfigError(
                f"{frames} frames do not fit {self.spec.name}, which takes {stride}k+1: use {lower} or {lower + stride}"
            )
        for side, size in (("height", height), ("width", width)):
            multiple = self.spec.size_multiple
            if size < multiple or size % multiple:
                lower = size // multiple * multiple
                nearest = f"{lower} or {lower + multiple}" if lower > 0 else f"{multiple}"
                raise ConfigError(f"{side} {size} is not a multiple of {multiple} as {self.spec.name} needs: use {nearest}")

    def latent_shape(self, frames: int, height: int, width: int, vae: Any = None) -> tuple[int, int, int, int]:
        """(C, T', H', W') of a video's latents; sizes are checked first."""
        self.check_size(frames, height, width, vae)
        space = compression(vae, "spatial", 8)
        time = (frames - 1) // compression(vae, "temporal", self.spec.time_stride) + 1
        channels = vae.config.get("latent_channels", self.spec.latent_channels) if vae is not None else self.spec.latent_channels
        return channels, time, height // space, width // space

    @abstractmethod
    def components(self, part: str) -> tuple[str, ...]:
        """Subfolders of the model folder that a part needs."""

    @abstractmethod
    def _load_from(self, part: str, folder: Any, dtype: torch.dtype) -> Any:
        """Load a part from a local folder that is known to hold this family's class."""

    @abstractmethod
    def encode_video(self, vae: Any, pixels: Tensor, generator: torch.Generator | None = None) -> Tensor:  # (B, 3, T, H, W)
        """Pixels in [0, 1] to normalised latents (B, C, T', H', W')."""

    @abstractmethod
    def decode_video(self, vae: Any, latents: Tensor) -> Tensor:  # (B, C, T', H', W')
        """Normalised latents to pixels (B, 3, T, H, W) in [0, 1]."""

    @abstractmethod
    def encode_text(self, parts: Any, captions: Sequence[str], generation: Mapping[str, Any] | None = None) -> dict[str, Tensor]:
        """Captions to conditioning tensors, batch first: what a cache stores and :meth:`inputs` takes."""

    @abstractmethod
    def inputs(
        self, x_t: Tensor, sigma: Tensor, conditioning: Mapping[str, Tensor], guidance: float | Tensor | None = None
    ) -> dict[str, Any]:  # (B, C, T', H', W'), (B,)
        """Keyword arguments of the transformer's forward."""

    @abstractmethod
    def prediction(self, raw: Any, like: Tensor) -> Tensor:  # like: (B, C, T', H', W')
        """The prediction tensor, shaped as ``like``, in whatever the transformer returned."""

    @abstractmethod
    def encoding_settings(self, vae: Any) -> dict[str, Any]:
        """Everything that changes what :meth:`encode_video` returns for the same weights: belongs in a cache key."""


def compression(vae: Any, axis: str, default: int) -> int:
    """Pixels per latent along ``"temporal"`` or ``"spatial"`` of an autoencoder; ``default`` without one."""
    if vae is None:
        return default
    name = f"{axis}_compression_ratio"
    config = getattr(vae, "config", {})
    value = config.get(name) if name in config else getattr(vae, name, None)
    return int(value) if value is not None else default


def pipeline_source(pipeline: Any) -> str | None:
    """Where diffusers or :meth:`VideoFamily.load` read this pipeline from; None if it was built in memory."""
    return pipeline.config.get("_name_or_path") or None
