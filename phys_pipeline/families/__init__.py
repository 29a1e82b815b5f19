"""Base-model families: one entry per family, and the way in for a model whose family is not known yet."""

from __future__ import annotations

import difflib
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from phys_pipeline.errors import ConfigError, ModelError
from phys_pipeline.families.base import FamilySpec, LoadedModel, VideoFamily, pipeline_source
from phys_pipeline.families.sources import description, hub_commit, pipeline_class

_FAMILIES = {  # name: module, class
    "cogvideox": ("phys_pipeline.families.cogvideox", "CogVideoXFamily"),
    "hunyuan_video": ("phys_pipeline.families.hunyuan_video", "HunyuanVideoFamily"),
    "hunyuan_video_1_5": ("phys_pipeline.families.hunyuan_video_1_5", "HunyuanVideo15Family"),
    "ltx_video": ("phys_pipeline.families.ltx_video", "LTXVideoFamily"),
    "mochi": ("phys_pipeline.families.mochi", "MochiFamily"),
    "mvdit": ("phys_pipeline.families.mvdit", "MVDiTFamily"),
    "open_sora_1_2": ("phys_pipeline.families.open_sora_1_2", "OpenSora12Family"),
    "open_sora_2": ("phys_pipeline.families.open_sora_2", "OpenSora2Family"),
    "wan": ("phys_pipeline.families.wan", "WanFamily"),
}
_ALIASES = {
    "hunyuanvideo": "hunyuan_video",
    "ltx": "ltx_video",
    "open_sora_2_0": "open_sora_2",
    "wan_2_1": "wan",
    "wan_2_2": "wan",
}

__all__ = [
    "FamilySpec",
    "LoadedModel",
    "VideoFamily",
    "as_loaded",
    "families_with",
    "family_names",
    "find_family",
    "get_family",
    "load_model",
    "register_family",
]


def family_names() -> tuple[str, ...]:
    return tuple(sorted(_FAMILIES))


def register_family(name: str, module: str, cls: str) -> None:
    """Make a family of your own known under ``name``: class ``cls`` of ``module``. ConfigError if another has the name."""
    if _FAMILIES.get(name, (module, cls)) != (module, cls):
        raise ConfigError(f"there is a model family {name!r} already: choose another name")
    _FAMILIES[name] = (module, cls)


def get_family(name: str) -> VideoFamily:
    """A new family object by name; ConfigError, with the names there are, if it is unknown.

    Dashes and dots may stand for underscores: "open-sora-1.2" is "open_sora_1_2".
    """
    plain = str(name).lower().replace("-", "_").replace(".", "_")
    plain = _ALIASES.get(plain, plain)
    if plain not in _FAMILIES:
        near = difflib.get_close_matches(plain, _FAMILIES, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise ConfigError(f"unknown model family {name!r}: {hint}use one of {', '.join(family_names())}")
    module, cls = _FAMILIES[plain]
    return getattr(import_module(module), cls)()


def families_with(**facts: Any) -> list[VideoFamily]:
    """New objects of the families whose spec has these values, such as ``transformer_class="WanTransformer3DModel"``."""
    families = map(get_family, family_names())
    return [f for f in families if all(getattr(f.spec, name) == value for name, value in facts.items())]


def find_family(source: str | Path | None, name: str | None = None) -> VideoFamily:
    """The family of a model: ``name`` if given, else what its ``phys_pipeline.json`` says, else by its ``model_index.json``.

    Of a Hub id that no family names as its own it fetches the latter. Raises ModelError where nothing tells.
    """
    if name := name or description(source).get("family"):
        return get_family(name)
    if own := families_with(hub_id=str(source)):
        return own[0]
    found = pipeline_class(source)
    fitting = families_with(pipeline_class=found) if found else []
    if not fitting:
        if found is None:
            raise ModelError(f"there is no model folder {source}: give one with a model_index.json, a Hub id or 'tiny'")
        raise ModelError(f"{source} holds a {found}, which is no known model family: use one of {', '.join(family_names())}")
    return fitting[0]


def load_model(source: str | None = None, dtype: torch.dtype = torch.float32, family: str | None = None) -> LoadedModel:
    """Load a whole pipeline with its family, revision and sampling defaults. ModelError as in ``VideoFamily.load``.

    ``family`` is found as :func:`find_family` says.
    """
    chosen = find_family(source, family)
    return as_loaded(chosen.load("pipeline", source, dtype), chosen, source or "tiny")


def as_loaded(pipeline: Any, family: VideoFamily | None = None, source: str | None = None) -> LoadedModel:
    """A bare diffusers pipeline as a LoadedModel (which is returned as it is); the family is found from its class."""
    if isinstance(pipeline, LoadedModel):
        return pipeline
    folder = pipeline_source(pipeline) if hasattr(pipeline, "config") else None
    if family is None and (named := description(folder).get("family") if folder else None):
        family = get_family(named)
    if family is None:
        fitting = families_with(pipeline_class=type(pipeline).__name__)
        if not fitting:
            known = sorted({get_family(name).spec.pipeline_class for name in family_names()})
            raise ModelError(f"{type(pipeline).__name__} is not supported: load one of {', '.join(known)}")
        family = fitting[0]
    family.bind_pipeline(pipeline)
    defaults = dict(family.spec.generation) if folder is None else family.generation_defaults(folder)
    revision = None if folder is None else description(folder).get("revision") or hub_commit(folder)
    return LoadedModel(pipeline, family, source or folder or "memory", revision, defaults)
