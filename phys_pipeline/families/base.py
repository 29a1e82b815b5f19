"""What every base-model family has: its facts as data, its noise path, and the few methods a trainer or generator needs."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
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
    folder has no ``phys_pipeline.json``, and is the list of those there are; a ``prompt_template`` of None means the pipeline's
    own. ``prediction`` is what the transformer predicts: "noise - x0", "x0 - noise", "epsilon" or "v". ``parameters`` are the
    transformer's, in billions; ``memory`` is what it takes to generate, with its source. ``modules`` says where the classes of
    "pipeline", "transformer" and "vae" are, unless they are diffusers'. ``comfyui``: adapters get a copy for ComfyUI.
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
    space_stride: int = 8
    prediction: str = "noise - x0"
    licence: str = ""
    parameters: float = 0.0
    memory: str = ""
    sizes: str = ""
    comfyui: bool = False
    modules: Mapping[str, str] = field(default_factory=dict)

    def load_class(self, part: str) -> Any:
        """The class of ``"pipeline"``, ``"transformer"`` or ``"vae"``. ModelError if the installed diffusers lacks it."""
        module, name = self.modules.get(part, "diffusers"), getattr(self, f"{part}_class")
        cls = getattr(import_module(module), name, None)
        if cls is None:
            raise ModelError(f"{module} has no {name}: upgrade it")
        return cls


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
    path_from_scheduler: bool = False  # whether `path` is known only after `bind_scheduler`
    expert: str | None = None  # which of several transformers is trained; see choose_expert
    sigma_range: tuple[float, float] = (0.0, 1.0)  # noise levels that this expert sees
    optional_masks: tuple[str, ...] = ()  # tensors of `encode_text` that may be all zero
    packing: int = 1  # latents along height, and along width, that the family puts into one token before the transformer patches
    fps: float | None = None  # frame rate of the videos that `inputs` is about, set by the trainer; None: the spec's native one

    def bind(self, transformer: Any) -> VideoFamily:
        """Note the variant of a transformer that was built elsewhere; returns self."""
        self.guidance_embeds = bool(transformer.config.get("guidance_embeds", False))
        return self

    def bind_scheduler(self, scheduler: Any) -> VideoFamily:
        """Note what a model's scheduler says about its noise path (nothing here: most families have one path); returns self."""
        return self

    def bind_pipeline(self, pipeline: Any) -> None:
        """Note the variant of a whole pipeline, as far as its parts are there."""
        if getattr(pipeline, "scheduler", None) is not None:
            self.bind_scheduler(pipeline.scheduler)
        if getattr(pipeline, "transformer", None) is not None:
            self.bind(pipeline.transformer)

    def choose_expert(self, name: str | None, source: str | None) -> None:
        """Train or apply adapters to one of several transformers; ConfigError if ``name`` is none of them (None always is)."""
        if name is not None:
            raise ConfigError(f"{self.spec.name} has one transformer: leave expert={name} out")

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
        if part == "transformer":
            self.bind(loaded)
        elif part == "scheduler":
            self.bind_scheduler(loaded)
        elif part == "pipeline":
            self.bind_pipeline(loaded)
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
        stride = self.frame_step(vae)
        if frames < 1:
            raise ConfigError(f"{frames} frames: ask for at least 1")
        if (frames - 1) % stride:
            lower = (frames - 1) // stride * stride + 1
            raise ConfigError(
                f"{frames} frames do not fit {self.spec.name}, which takes {stride}k+1: use {lower} or {lower + stride}"
            )
        for side, size in (("height", height), ("width", width)):
            multiple = self.size_multiple(vae)
            if size < multiple or size % multiple:
                lower = size // multiple * multiple
                nearest = f"{lower} or {lower + multiple}" if lower > 0 else f"{multiple}"
                raise ConfigError(f"{side} {size} is not a multiple of {multiple} as {self.spec.name} needs: use {nearest}")

    def frame_step(self, vae: Any = None) -> int:
        """A video has this many times k frames, and one more."""
        return compression(vae, "temporal", self.spec.time_stride)

    def size_multiple(self, vae: Any = None) -> int:
        """What height and width must be multiples of, in pixels."""
        return self.spec.size_multiple

    def latent_shape(self, frames: int, height: int, width: int, vae: Any = None) -> tuple[int, int, int, int]:
        """(C, T', H', W') of a video's latents; sizes are checked first."""
        self.check_size(frames, height, width, vae)
        space = compression(vae, "spatial", self.spec.space_stride)
        time = (frames - 1) // compression(vae, "temporal", self.spec.time_stride) + 1
        own = {} if vae is None else vae.config
        channels = own.get("latent_channels") or own.get("z_dim") or self.spec.latent_channels
        return channels, time, height // space, width // space

    def timestep_shift(self, scheduler: Any, frames: int, height: int, width: int) -> float:
        """The timestep shift that videos of this size are sampled with: the scheduler's, else the spec's."""
        return float(scheduler.config.get("shift") or self.spec.default_shift)

    def noise_shape(self, settings: Mapping[str, Any], pipeline: Any) -> tuple[int, int, int, int]:
        """(C, T', H', W') of the noise that sampling starts from, for the sizes in ``settings``."""
        return self.latent_shape(settings["num_frames"], settings["height"], settings["width"], pipeline.vae)

    def signed_pixels(self, vae: Any, pixels: Tensor) -> Tensor:  # (B, 3, T, H, W)
        """Pixels in [0, 1] as the autoencoder takes them, in [-1, 1].

        Raises ConfigError for a size that it would silently crop and for pixels that are clearly not in [0, 1].
        """
        if pixels.ndim != 5 or pixels.shape[1] != 3 or not pixels.is_floating_point():
            raise ConfigError(f"pixels must be float (B, 3, T, H, W), not {pixels.dtype} {tuple(pixels.shape)}")
        low, high = pixels.aminmax()
        if not (low > -0.5 and high < 1.5):  # resizing may overshoot a little; [-1, 1], [0, 255] and NaN are mistakes
            raise ConfigError(f"pixels span [{low:.3g}, {high:.3g}]: give values in [0, 1]")
        frames, height, width = pixels.shape[2:]
        self.check_size(frames, height, width, vae)
        return pixels.clamp(0, 1).to(vae.device, vae.dtype) * 2 - 1

    def text_settings(self, generation: Mapping[str, Any]) -> dict[str, Any]:
        """What beside a caption, its length limit and its template decides what :meth:`encode_text` makes of it: belongs in a
        cache key. ``generation`` are the model's sampling settings."""
        return {}

    def text_tokens(self, settings: Mapping[str, Any]) -> int:
        """Most tokens of text that the transformer reads beside a video, with these sampling settings."""
        return int(settings.get("max_sequence_length", 0))

    def uses_negative_prompt(self, settings: Mapping[str, Any]) -> bool:
        """Whether sampling with these settings reads ``settings["negative_prompt"]``."""
        return "negative_prompt" in settings and settings.get("guidance_scale", 1.0) > 1

    def sampling_conditioning(
        self, parts: Any, prompt: str, settings: Mapping[str, Any], done: Callable[[], None] = lambda: None
    ) -> dict[str, Tensor]:
        """What :meth:`sampling_arguments` takes of a prompt: :meth:`encode_text`'s tensors, and under ``negative_...`` those of
        the negative prompt where it is used. ``parts`` as in :meth:`encode_text`; ``done()`` is called after each text."""
        conditioning = dict(self.encode_text(parts, [prompt], settings))
        done()
        if self.uses_negative_prompt(settings):
            unwanted = self.encode_text(parts, [settings["negative_prompt"]], settings)
            conditioning.update({f"negative_{key}": value for key, value in unwanted.items()})
            done()
        return conditioning

    def sampling_arguments(
        self, conditioning: Mapping[str, Tensor], settings: Mapping[str, Any], noise: Tensor
    ) -> dict[str, Any]:  # noise: (1, C, T', H', W') float32
        """Keyword arguments of the pipeline's call, but for those about output and callbacks.

        Here: the conditioning under its own names, the noise as ``latents``, and the usual settings. A family whose pipeline
        takes other names or packs its latents has its own.
        """
        names = ("height", "width", "num_frames", "num_inference_steps", "guidance_scale")
        return {**conditioning, "latents": noise, **{name: settings[name] for name in names}}

    def assemble(self, parts: Mapping[str, Any], folder: str | Path) -> Any:
        """A pipeline of these components (those left out are None) with the settings in the folder's ``model_index.json``."""
        cls = self.spec.load_class("pipeline")
        names = list(inspect.signature(cls.__init__).parameters)[1:]
        settings = {key: value for key, value in sources.pipeline_settings(folder).items() if key in names}
        absent = {name: None for name in self.components("pipeline") if name in names}
        pipeline = cls(**{**absent, **settings, **parts})
        pipeline.register_to_config(_name_or_path=str(folder))
        return pipeline

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

    def uncaptioned(self, conditioning: Mapping[str, Tensor], empty: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """What stands for one sample's ``conditioning`` (no batch axis) where training drops its caption: here the ``empty``
        caption's. A family that was trained with a learned null caption gives that."""
        return empty

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
