"""Base-model families: one entry per family, and the way in for a model whose family is not known yet."""

from __future__ import annotations

import difflib
from importlib import import_module
from typing import Any

import torch

from phys_pipeline.errors import ConfigError, ModelError
from phys_pipeline.families.base import FamilySpec, LoadedModel, VideoFamily, pipeline_source
from phys_pipeline.families.sources import description, hub_commit

_FAMILIES = {"hunyuan_video": ("phys_pipeline.families.hunyuan_video", "HunyuanVideoFamily")}

__all__ = ["FamilySpec", "LoadedModel", "VideoFamily", "as_loaded", "family_names", "get_family", "load_model"]


def family_names() -> tuple[str, ...]:
    return tuple(sorted(_FAMILIES))


def get_family(name: str) -> VideoFamily:
    """A new family object by name; ConfigError, with the names there are, if it is unknown."""
    if name not in _FAMILIES:
        near = difflib.get_close_matches(str(name), _FAMILIES, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise ConfigError(f"unknown model family {name!r}: {hint}use one of {', '.join(family_names())}")
    module, cls = _FAMILIES[name]
    return getattr(import_module(module), cls)()


def load_model(source: str | None = None, dtype: torch.dtype = torch.float32, family: str | None = None) -> LoadedModel:
    """Load a whole pipeline with its family, revision and sampling defaults. ModelError as in ``VideoFamily.load``.

    ``family`` defaults to what the model's ``phys_pipeline.json`` says, else ``hunyuan_video``.
    """
    chosen = get_family(family or description(source).get("family") or "hunyuan_video")
    return as_loaded(chosen.load("pipeline", source, dtype), chosen, source or "tiny")


def as_loaded(pipeline: Any, family: VideoFamily | None = None, source: str | None = None) -> LoadedModel:
    """A bare diffusers pipeline as a LoadedModel (which is returned as it is); the family is found from its class."""
    if isinstance(pipeline, LoadedModel):
        return pipeline
    if family is None:
        known = {get_family(name).spec.pipeline_class: name for name in family_names()}
        if type(pipeline).__name__ not in known:
            raise ModelError(f"{type(pipeline).__name__} is not supported: load one of {', '.join(sorted(known))}")
        family = get_family(known[type(pipeline).__name__])
    folder = pipeline_source(pipeline)
    if getattr(pipeline, "transformer", None) is not None:
        family.bind(pipeline.transformer)
    defaults = dict(family.spec.generation) if folder is None else family.generation_defaults(folder)
    revision = None if folder is None else description(folder).get("revision") or hub_commit(folder)
    return LoadedModel(pipeline, family, source or folder or "memory", revision, defaults)
