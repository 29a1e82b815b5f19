"""LoRA adapters (Hu et al. 2021, arXiv:2106.09685): put them on a transformer, save them proven, load them or say why not."""

from __future__ import annotations

import json
import logging
import math
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from phys_pipeline.adapters import formats
from phys_pipeline.adapters.files import rewrite_header, shown
from phys_pipeline.adapters.hub import fetch_adapter
from phys_pipeline.adapters.layers import (
    adapted_component,
    adapter_names,
    checked_weight,
    linear_layers,
    lora_layers,
    snapshot,
    transformers_of,
)
from phys_pipeline.adapters.readers import check_fits, open_adapter
from phys_pipeline.adapters.settings import diffusers_metadata, stored_settings
from phys_pipeline.adapters.weights import LoraLayer
from phys_pipeline.adapters.writers import check_exportable, diffusers_tensors, write_adapter
from phys_pipeline.atomic import atomic_folder
from phys_pipeline.errors import AdapterError, HubError, first_line
from phys_pipeline.families import LoadedModel, VideoFamily, families_with, get_family
from phys_pipeline.hub import is_hub_source

logger = logging.getLogger(__name__)

PROVENANCE_FILE = "provenance.json"
# What another reader needs to rebuild the adapter, and nothing newer than it may know: unknown fields make readers fail.
_CONFIG_FIELDS = ("r", "lora_alpha", "target_modules", "rank_pattern", "alpha_pattern", "use_rslora")


@dataclass(frozen=True)
class AdapterInfo:
    """A loaded adapter: ``delta`` is the root of the summed squares of all its weight changes at weight 1.

    ``rank`` and ``alpha`` are those of most layers; ``skipped`` are keys of the file that aren't for the transformer.
    """

    name: str
    path: str
    rank: int
    alpha: float
    tensors: int
    delta: float
    provenance: Mapping[str, Any] = field(default_factory=dict)
    format: str = formats.DIFFUSERS
    skipped: tuple[str, ...] = ()


def inject_lora(
    transformer: Any,
    rank: int = 16,
    alpha: float | None = None,
    regex: str | None = None,
    *,
    dropout: float = 0.0,
    name: str = "default",
    seed: int | None = None,
) -> list[nn.Parameter]:
    """Freeze the transformer, add a LoRA to every linear layer whose whole name matches ``regex``, return what to train.

    The trainable tensors are float32 whatever the base's dtype (bfloat16 adapters lose small updates). ``alpha`` defaults to
    ``rank``; ``regex`` to the attention layers of its model family; ``seed`` makes the start repeatable without touching the
    global generator. Raises AdapterError if nothing matches, or a layer would be trained that other readers refuse, such as the
    token refiner's.
    """
    from peft import LoraConfig

    if rank < 1 or not 0 <= dropout < 1:
        raise AdapterError(f"rank {rank} and dropout {dropout}: use a rank of at least 1 and a dropout in [0, 1)")
    families = families_with(transformer_class=type(transformer).__name__)
    if regex is None and not families:
        raise AdapterError(f"{type(transformer).__name__} is of no known model family: give a regex of the layers to train")
    regex = regex if regex is not None else families[0].spec.lora_target_regex
    try:
        pattern = re.compile(regex)
    except re.error as error:
        raise AdapterError(f"LoRA target regex {regex!r} is not valid ({error}): correct it") from error
    if name in adapter_names(transformer):
        raise AdapterError(f"the transformer already has an adapter named {name!r}: remove it or use another name")
    targets = [n for n in linear_layers(transformer) if pattern.fullmatch(n)]
    if not targets:
        some = next(iter(linear_layers(transformer)), "none")
        raise AdapterError(f"LoRA target regex {regex!r} matches no linear layer: it must match whole names such as {some}")
    if any(family.spec.comfyui for family in families):
        check_exportable(targets)
    transformer.requires_grad_(False)
    options: dict[str, Any] = {"r": rank, "lora_alpha": rank if alpha is None else alpha, "lora_dropout": dropout}
    config = LoraConfig(target_modules=regex, **options)
    with torch.random.fork_rng(devices=[], enabled=seed is not None):
        if seed is not None:
            torch.manual_seed(seed)
        transformer.add_adapter(config, adapter_name=name)
    trainable = [p for p in transformer.parameters() if p.requires_grad]
    for parameter in trainable:
        parameter.data = parameter.data.float()
    return trainable


def save_adapter(
    transformer: Any,
    folder: str | Path,
    *,
    family: VideoFamily | str,
    base_model: LoadedModel | str,
    extra_metadata: Mapping[str, Any] | None = None,
    name: str | None = None,
    comfyui: bool = True,
) -> Path:
    """Write an adapter folder, read it back into a fresh transformer and compare, and only then let it appear.

    The folder holds ``pytorch_lora_weights.safetensors`` (written by the diffusers pipeline class, float32, minimal sorted
    metadata: the same adapter always gives the same bytes), ``provenance.json`` and, unless ``comfyui`` is false, a copy for
    ComfyUI, ``comfyui/FOLDER.safetensors``, if ComfyUI has the model. Provenance is ``family``, ``base_model``
    (a Hub id, "tiny", or a local folder's bare name) with its ``revision``, and ``extra_metadata`` (loss preset, motion
    weight, steps, ...: anything JSON can hold, but no clock times if equal runs shall give equal files). It is also stored
    in each file's own metadata under ``phys_pipeline``.
    Raises AdapterError if there is no adapter, it is a DoRA, a tensor isn't finite, or what was read back differs.
    """
    from peft import get_peft_model_state_dict

    family = get_family(family) if isinstance(family, str) else family
    name = _only_adapter(transformer, name)
    config = transformer.peft_config[name]
    if getattr(config, "use_dora", False):
        raise AdapterError(f"adapter {name!r} is a DoRA, which most readers don't know: train a plain LoRA")
    tensors = {
        key: value.detach().to("cpu", torch.float32).contiguous()
        for key, value in sorted(get_peft_model_state_dict(transformer, adapter_name=name).items())
    }
    _check_finite(tensors, f"adapter {name!r}", "lower the learning rate and train again")
    metadata = {key: _plain(getattr(config, key)) for key in _CONFIG_FIELDS if getattr(config, key, None)}
    provenance: dict[str, Any] = {"family": family.spec.name}
    source = base_model.source if isinstance(base_model, LoadedModel) else str(base_model)
    provenance["base_model"] = Path(source).resolve().name if Path(source).is_dir() else source  # no paths in shared files
    if isinstance(base_model, LoadedModel):
        provenance["revision"] = base_model.revision
    provenance.update(extra_metadata or {})
    try:
        text = json.dumps(provenance, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise AdapterError(f"extra_metadata can't be written as JSON ({error}): use numbers, strings, lists and dicts") from error
    with atomic_folder(folder) as partial:
        _loader(family.spec.load_class("pipeline")).save_lora_weights(
            partial, transformer_lora_layers=tensors, transformer_lora_adapter_metadata=metadata
        )
        rewrite_header(partial / formats.WEIGHTS_FILE, {formats.PHYS_METADATA: text})
        (partial / PROVENANCE_FILE).write_text(json.dumps(provenance, indent=2, sort_keys=True) + "\n", encoding="utf-8")
        _verify(transformer, name, tensors, family, partial / formats.WEIGHTS_FILE)
        if comfyui and family.spec.comfyui:
            copy = partial / formats.COMFYUI_FOLDER / f"{Path(folder).resolve().name}.safetensors"
            widths = {module: layer.out_features for module, layer in linear_layers(transformer).items()}
            write_adapter(copy, _lora(transformer, name), formats.COMFYUI, {formats.PHYS_METADATA: text}, widths)
    return Path(folder)


def load_adapter(pipeline: Any, path: str | Path, name: str = "physics", weight: float = 1.0) -> AdapterInfo:
    """Put an adapter file, folder or Hub repository on a pipeline and make it the active one at ``weight``.

    The file may be one of ours, diffusers', ComfyUI's, kohya's, musubi's, diffusion-pipe's, finetrainers' or OneTrainer's.
    Everything is checked before the pipeline is touched, so a failure leaves it as it was. Raises AdapterError, naming the
    format or the first layer that doesn't fit, if the file isn't a LoRA for this very transformer. Keys that are for something
    else, such as a text encoder, are listed in a warning and in the result.
    """
    revision = pipeline.revision if isinstance(pipeline, LoadedModel) else None
    pipeline = pipeline.pipeline if isinstance(pipeline, LoadedModel) else pipeline
    weight = checked_weight(weight)
    file = find_adapter(path)
    opened = open_adapter(file)
    component = adapted_component(opened.provenance)
    transformer = getattr(pipeline, component, None)
    if transformer is None:
        raise AdapterError(f"{file} is for the low-noise expert of a model with two: this one has no {component}")
    if name in adapter_names(transformer):
        raise AdapterError(f"the pipeline already has an adapter named {name!r}: unload it or use another name")
    check_fits(opened, linear_layers(transformer), type(transformer).__name__)
    layers, provenance = opened.read(), opened.provenance
    if opened.skipped:
        logger.warning("%d of %d tensors of %s are not for the transformer and were left out, such as %s",
                       len(opened.skipped), len(opened.header.tensors), file, shown(opened.skipped[0]))  # fmt: skip
    if revision and provenance.get("revision") not in (None, revision):
        logger.warning("adapter %s was trained for revision %s of %s, this model is revision %s: expect a weaker effect",
                       file, provenance["revision"], provenance.get("base_model"), revision)  # fmt: skip
    restore = snapshot(transformer)
    try:
        _apply(pipeline, transformer, layers, file, name)
        transformer.set_adapters([name], [weight])
    except BaseException:
        unload_adapter(pipeline, name)
        restore()
        raise
    config = transformer.peft_config[name]
    delta = _delta(transformer, name)
    if delta == 0:
        logger.warning("adapter %s changes nothing: it was saved before its first training step", file)
    return AdapterInfo(
        name, str(file), config.r, config.lora_alpha, 2 * len(layers), delta, provenance, opened.format, opened.skipped
    )


def unload_adapter(pipeline: Any, name: str) -> None:
    """Remove an adapter; with the last one the transformer's plain layers come back. Unknown names are ignored."""
    for transformer in transformers_of(getattr(pipeline, "pipeline", pipeline)):
        if name in adapter_names(transformer):
            for _, layer in lora_layers(transformer):
                if name in layer.active_adapters:  # deleting an active adapter makes peft warn and pick another one
                    layer.set_adapter([other for other in layer.active_adapters if other != name])
            transformer.delete_adapters(name)
        if not adapter_names(transformer) and any(True for _ in lora_layers(transformer)):
            transformer.unload_lora()


def find_adapter(path: str | Path) -> Path:
    """The weights file that ``path`` means: a file, an adapter folder, or OWNER/NAME[@REVISION] on the Hub, which is fetched."""
    local = Path(path).expanduser()
    if local.is_file():
        return local
    if local.is_dir():
        if (local / formats.WEIGHTS_FILE).is_file():
            return local / formats.WEIGHTS_FILE
        found = sorted(local.glob("*.safetensors"))
        if len(found) == 1:
            return found[0]
        raise AdapterError(f"{local} has no {formats.WEIGHTS_FILE}: give an adapter folder or one .safetensors file")
    if not is_hub_source(str(path)):
        raise AdapterError(f"there is no adapter {path}: give a folder, a .safetensors file or a Hub id OWNER/NAME[@REVISION]")
    try:
        return fetch_adapter(str(path)).file
    except HubError as error:
        raise HubError(f"can't get adapter {path} from the Hub, and no such folder is here: {error}", error.kind) from error


def _adapter_tensors(transformer: Any, name: str) -> dict[str, Tensor]:
    from peft import get_peft_model_state_dict

    return get_peft_model_state_dict(transformer, adapter_name=name)


def _only_adapter(transformer: Any, name: str | None) -> str:
    names = adapter_names(transformer)
    if name is None and len(names) == 1:
        return names[0]
    if name not in names:
        what = f"no adapter named {name!r}" if name else f"{len(names)} adapters" if names else "no adapter"
        raise AdapterError(f"the transformer has {what}: add one with inject_lora or name one of {names}")
    return name  # type: ignore[return-value]  # a member of names, so a string


def _plain(value: Any) -> Any:
    if isinstance(value, (set, list, tuple)):
        return sorted(value)
    return dict(sorted(value.items())) if isinstance(value, Mapping) else value


def _loader(pipeline_class: Any) -> Any:
    """The class with diffusers' methods that store and load a transformer's LoRA: the pipeline's own, or where it has none (as
    HunyuanVideo-1.5's) one that does nothing that depends on the model."""
    if hasattr(pipeline_class, "load_lora_into_transformer"):
        return pipeline_class
    from diffusers.loaders import Mochi1LoraLoaderMixin

    return Mochi1LoraLoaderMixin


def _check_finite(tensors: Mapping[str, Tensor], what: str, advice: str) -> None:
    for key, value in tensors.items():
        if not torch.isfinite(value).all():
            raise AdapterError(f"{key} of {what} holds NaN or infinity: {advice}")


def _apply(pipeline: Any, transformer: Any, layers: Mapping[str, LoraLayer], file: Path, name: str) -> None:
    """Load with diffusers, under settings made here and not the file's; then count what arrived, which diffusers doesn't."""
    tensors = diffusers_tensors(layers)
    settings = json.loads(diffusers_metadata(stored_settings(layers))[formats.DIFFUSERS_METADATA])
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Already found a `peft_config`")  # two adapters side by side are meant
            _loader(type(pipeline)).load_lora_into_transformer(
                dict(tensors), transformer, adapter_name=name, metadata=settings, _pipeline=pipeline
            )
    except Exception as error:  # diffusers and peft raise many kinds
        raise AdapterError(f"can't apply {file} ({first_line(error)}): check the versions of diffusers and peft") from error
    applied = _adapter_tensors(transformer, name)
    missing = sorted(key for key in tensors if key.removeprefix("transformer.") not in applied)
    if missing:
        raise AdapterError(f"{len(missing)} of {len(tensors)} tensors of {file} were not applied, such as {missing[0]}: "
                           "use an adapter trained for this model")  # fmt: skip


def _lora(transformer: Any, name: str) -> dict[str, LoraLayer]:
    """An adapter's changes by layer name, on the CPU, at weight 1."""
    rslora = getattr(transformer.peft_config[name], "use_rslora", False)
    found = {}
    for module, layer in lora_layers(transformer):
        if name in layer.r:
            rank, alpha = layer.r[name], layer.lora_alpha[name]
            down, up = (half[name].weight.detach().cpu() for half in (layer.lora_A, layer.lora_B))
            found[module] = LoraLayer(down, up, alpha * math.sqrt(rank) if rslora else alpha)
    return found


def _delta(transformer: Any, name: str) -> float:
    """Root of the summed squares of all weight changes."""
    return math.sqrt(sum(layer.squared_norm() for layer in _lora(transformer, name).values()))


def _verify(transformer: Any, name: str, tensors: Mapping[str, Tensor], family: VideoFamily, file: Path) -> None:
    """Read the file with the pipeline class's own loader into an empty copy of the transformer.

    The copy's linear weights are one zero seen at every place, so that it takes no memory whatever the model's size.
    """
    cls = _loader(family.spec.load_class("pipeline"))
    with torch.device("meta"):
        fresh = type(transformer).from_config(dict(transformer.config))
    for layer in linear_layers(fresh).values():
        layer.weight = nn.Parameter(torch.zeros(()).expand(layer.out_features, layer.in_features), requires_grad=False)
    state, metadata = cls.lora_state_dict(str(file.parent), weight_name=file.name, return_lora_metadata=True)
    cls.load_lora_into_transformer(state, fresh, adapter_name=name, metadata=metadata, low_cpu_mem_usage=True)
    loaded = _adapter_tensors(fresh, name)
    if loaded.keys() != tensors.keys():
        raise AdapterError(f"saved adapter lost {sorted(tensors.keys() ^ loaded.keys())[0]}: report this with your versions")
    for key, value in tensors.items():
        if not torch.equal(loaded[key].float().cpu(), value):
            raise AdapterError(f"saved adapter changed {key}: the disk may be full or failing, save to another one")
    scales = [
        {module: (layer.rank, layer.scale) for module, layer in _lora(model, name).items()} for model in (fresh, transformer)
    ]
    if scales[0] != scales[1]:
        raise AdapterError("saved adapter lost its rank or alpha: report this with your diffusers and peft versions")
    if not math.isclose(_delta(fresh, name), _delta(transformer, name), rel_tol=1e-5, abs_tol=1e-12):
        raise AdapterError("saved adapter changes the weights by another amount: report this with your peft version")
