"""LoRA files in pipelines of our own, exactly as in diffusers' pipelines."""

from __future__ import annotations

from diffusers.loaders import CogVideoXLoraLoaderMixin


class TransformerLoraMixin(CogVideoXLoraLoaderMixin):
    """Load, save, weigh, fuse and unload LoRA adapters of a pipeline's ``transformer``.

    diffusers has a copy of this loader for every pipeline; CogVideoX's knows no other trainer's file formats, so it is the one
    for any model.
    """
