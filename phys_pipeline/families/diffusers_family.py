"""What the families whose pipeline and autoencoder are diffusers' own have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from phys_pipeline.errors import ConfigError, ModelError
from phys_pipeline.families import sources
from phys_pipeline.families.base import LoadedModel, VideoFamily, pipeline_source
from phys_pipeline.families.tokenization import WORD_PROBE, load_tokenizer

# attributes of diffusers' autoencoders that change what they encode
_ENCODING_FLAGS = (
    "use_slicing", "use_tiling", "use_framewise_encoding", "tile_sample_min_height", "tile_sample_min_width",
    "tile_sample_min_num_frames", "tile_sample_stride_height", "tile_sample_stride_width", "tile_sample_stride_num_frames",
    "tile_overlap_factor", "tile_overlap_factor_height", "tile_overlap_factor_width", "num_sample_frames_batch_size",
)  # fmt: skip


class DiffusersFamily(VideoFamily):
    """Parts in a folder of the diffusers layout, a ``vae.encode`` that gives a posterior, ``pipeline.encode_prompt`` for text.

    A subclass has ``spec`` and ``path``, :meth:`normalised` and :meth:`denormalised`, :meth:`embed` and ``inputs``.
    """

    text_parts: tuple[str, ...] = ("text_encoder", "tokenizer")
    other_parts: tuple[str, ...] = ()  # what the pipeline has beside these, the transformer, the autoencoder and the scheduler
    probes: Mapping[str, str] = {"tokenizer": WORD_PROBE}  # text that each tokenizer must give back; T5 has no line breaks

    def components(self, part: str) -> tuple[str, ...]:
        if part == "text":
            return self.text_parts
        if part == "pipeline":
            return (*self.text_parts, "transformer", "vae", "scheduler", *self.other_parts)
        return (part,)

    def _load_from(self, part: str, folder: Path, dtype: torch.dtype) -> Any:
        names = self.components(part)
        if part in ("transformer", "vae", "scheduler"):
            return self._load_component(folder, names[0], dtype)
        return self.assemble({name: self._load_component(folder, name, dtype) for name in names}, folder)

    def _load_component(self, folder: Path, name: str, dtype: torch.dtype) -> Any:
        if name in self.probes:
            return load_tokenizer(folder / name, sources.description(folder).get(f"{name}_probe", self.probes[name]))
        bare = name == "scheduler" or name in self.other_parts
        return sources.load_component(folder, name, None if bare else dtype, tuple(self.spec.modules.values()))

    def normalised(self, vae: Any, latents: Tensor) -> Tensor:  # (B, C, T', H', W') float32
        """The autoencoder's latents as the transformer takes them: here times its scaling factor."""
        return latents * vae.config.scaling_factor

    def denormalised(self, vae: Any, latents: Tensor) -> Tensor:  # (B, C, T', H', W')
        """The way back from :meth:`normalised`."""
        return latents / vae.config.scaling_factor

    def encode_video(self, vae: Any, pixels: Tensor, generator: torch.Generator | None = None) -> Tensor:  # (B, 3, T, H, W)
        """Pixels in [0, 1] to float32 latents (B, C, T', H', W'), normalised.

        Without ``generator`` the posterior's mode is taken (repeatable), with one a sample. Errors as in ``signed_pixels``.
        """
        signed = self.signed_pixels(vae, pixels)
        with torch.no_grad():
            posterior = vae.encode(signed).latent_dist
            latents = posterior.mode() if generator is None else posterior.sample(generator)
            return self.normalised(vae, latents.float())

    def decode_video(self, vae: Any, latents: Tensor) -> Tensor:  # (B, C, T', H', W')
        """Latents to float32 pixels (B, 3, T, H, W) in [0, 1]. Differentiable; values outside [0, 1] are clamped."""
        decoded = vae.decode(self.denormalised(vae, latents.to(vae.device)).to(vae.dtype), return_dict=False)[0]
        return (decoded.float() / 2 + 0.5).clamp(0, 1)

    def encoding_settings(self, vae: Any) -> dict[str, Any]:
        """How the autoencoder cuts a clip into tiles and runs of frames: seams that a spectrum over time or space can see."""
        return {name: getattr(vae, name) for name in _ENCODING_FLAGS if hasattr(vae, name)}

    def encode_text(self, parts: Any, captions: Sequence[str], generation: Mapping[str, Any] | None = None) -> dict[str, Tensor]:
        """The captions' tensors, named as the pipeline's call has them, one row per caption.

        ``parts`` is a pipeline (whole, or the text part alone) or a LoadedModel; ``generation`` may hold settings of the text
        encoders such as ``max_sequence_length``, otherwise those of the model folder are used.
        """
        captions = [captions] if isinstance(captions, str) else list(captions)
        if not captions:
            raise ConfigError("no caption given: pass a list with at least one")
        if isinstance(parts, LoadedModel):
            settings, parts = {**parts.defaults, **(generation or {})}, parts.pipeline
        else:
            settings = {**self.generation_defaults_of(parts), **(generation or {})}
        with torch.no_grad():
            return self.embed(parts, captions, settings)

    def embed(self, pipeline: Any, captions: list[str], settings: Mapping[str, Any]) -> dict[str, Tensor]:
        """What :meth:`encode_text` returns; here by ``pipeline.encode_prompt`` of one T5 encoder without a mask."""
        length = settings["max_sequence_length"]
        embeds, _ = pipeline.encode_prompt(captions, do_classifier_free_guidance=False, max_sequence_length=length)
        return {"prompt_embeds": embeds}

    def generation_defaults_of(self, pipeline: Any) -> dict[str, Any]:
        """Sampling defaults of a pipeline: those of the folder it was loaded from, or the spec's if built in memory."""
        source = pipeline_source(pipeline)
        return dict(self.spec.generation) if source is None else self.generation_defaults(source)

    def prediction(self, raw: Any, like: Tensor) -> Tensor:  # like: (B, C, T', H', W')
        """The transformer's prediction, (B, C, T', H', W'). Raises ConfigError if its shape isn't that of ``like``."""
        predicted: Tensor = raw if isinstance(raw, Tensor) else raw[0]
        if predicted.shape != like.shape:
            raise ConfigError(
                f"the transformer returned {tuple(predicted.shape)} for {tuple(like.shape)}: latent height and width must be "
                "multiples of its patch size"
            )
        return predicted


class NullCaptionFamily(DiffusersFamily):
    """A family whose transformer has a learned ``null_caption`` (L, D), which stands for no text."""

    null_caption: Tensor | None = None  # of the transformer that was bound

    def bind(self, transformer: Any) -> VideoFamily:
        self.null_caption = transformer.null_caption.detach()
        return super().bind(transformer)

    def uncaptioned(self, conditioning: Mapping[str, Tensor], empty: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The learned null caption under the dropped caption's own mask, as the model was trained and is guided."""
        if self.null_caption is None:
            raise ModelError("no transformer is bound, so there is no null caption: load the transformer before")
        embeds = conditioning["prompt_embeds"]  # (L, D)
        if len(embeds) > len(self.null_caption):
            raise ConfigError(f"captions of {len(embeds)} tokens, but the null caption has {len(self.null_caption)}: set "
                              "max_sequence_length in the model's phys_pipeline.json to that")  # fmt: skip
        return {**conditioning, "prompt_embeds": self.null_caption[: len(embeds)].to(embeds)}


def masked_t5(pipeline: Any, captions: list[str], settings: Mapping[str, Any]) -> dict[str, Tensor]:
    """Embeddings and mask of pipelines whose ``encode_prompt`` returns both, as LTX-Video's and Mochi's."""
    length = settings["max_sequence_length"]
    embeds, mask, _, _ = pipeline.encode_prompt(captions, do_classifier_free_guidance=False, max_sequence_length=length)
    return {"prompt_embeds": embeds, "prompt_attention_mask": mask}


def per_channel(values: Any, like: Tensor) -> Tensor:  # values: (C,), like: (B, C, ...)
    """One number per channel in the shape that broadcasts over ``like``."""
    return torch.as_tensor(values, dtype=like.dtype, device=like.device).view(1, -1, *(1,) * (like.ndim - 2))


def rows(batch: int, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors, which must have ``batch`` rows each; ConfigError otherwise."""
    for name, value in tensors.items():
        if value.shape[0] != batch:
            raise ConfigError(f"{name} has {value.shape[0]} rows for a batch of {batch}: give one per sample")
    return dict(tensors)


def check_mask(mask: Tensor, captions: Sequence[str], advice: str) -> None:  # (B, L)
    """Raise ModelError unless every mask is a run of ones, not empty, and then zeros."""
    kept = mask.bool()
    empty = (~kept.any(dim=1)).nonzero().flatten().tolist()
    if empty:
        raise ModelError(f"caption {captions[empty[0]]!r} has no token left for the model: write a few words, or {advice}")
    if bool((kept[:, 1:] & ~kept[:, :-1]).any()):
        raise ModelError("the tokenizer pads on the left, which the model misreads: set tokenizer.padding_side = 'right'")
