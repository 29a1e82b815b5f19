"""Where pretrained weights are: a folder the user names, the Hub's cache, or the Hub; and loading models from there.

A metric names its weights (:class:`phys_pipeline.evaluation.metric.Weights`) and an option (``clip.model``) that replaces them by
a local folder or by another Hub id, ``owner/name`` or ``owner/name@revision``.
"""

from __future__ import annotations

import json
import logging
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from phys_pipeline.errors import ModelError, first_line
from phys_pipeline.evaluation.metric import Availability, Settings, Weights

_LOG = logging.getLogger(__name__)
_HUB_ID = re.compile(r"([A-Za-z0-9][\w.-]*/[\w.-]+)(?:@([\w.-]+))?")
_WEIGHT_FILES = ("model.safetensors", "pytorch_model.bin")  # transformers prefers the first
TOKENIZER_AND_CONFIG = ("*.json", "*.txt")  # patterns of the small files beside the weights


@dataclass(frozen=True)
class Pretrained:
    """One model that a metric loads: its weights, the option that replaces them, the metric's key for messages."""

    weights: Weights
    option: str
    key: str

    def resolve(self, settings: Settings) -> Path | Weights:
        """A local folder, or the Hub repository to use. Raises ModelError for an option that is neither."""
        wanted = settings.options.get(self.option)
        if wanted is None:
            return self.weights
        if Path(str(wanted)).is_dir():
            return Path(str(wanted))
        found = _HUB_ID.fullmatch(str(wanted))
        if found is None:
            raise ModelError(f"{self.option}={wanted} is no folder and no Hub id: give a model's folder or OWNER/NAME@REVISION")
        return replace(self.weights, repository=found[1], revision=found[2] or "main", bytes=0, licence="see there", files=())

    def name(self, settings: Settings) -> str:
        """What computed a value: repository and revision, or the folder's name."""
        source = self.resolve(settings)
        return source.name if isinstance(source, Path) else f"{source.repository}@{source.revision[:8]}"

    def available(self, settings: Settings) -> Availability:
        """Whether the model is here, or may be downloaded. Looks at local files only."""
        try:
            source = self.resolve(settings)
        except ModelError as error:
            return Availability(False, str(error))
        if isinstance(source, Path):
            complete = is_complete(source)
            return Availability(complete, "" if complete else f"{source} lacks config.json or weights: fetch the model again")
        if cached_folder(source) is not None:
            return Availability(True)
        what = f"{source.repository} ({source.bytes / 1e6:.0f} MB, {source.licence})" if source.bytes else source.repository
        if is_offline(settings):
            return Availability(False, f"{what} is not in the Hub's cache: run `phys-pipeline doctor --fetch {self.key}` online")
        return Availability(True, f"{what} will be downloaded")

    def folder(self, settings: Settings) -> Path:
        """The model's folder, downloading it if that is allowed. Raises ModelError if it can't be had."""
        source = self.resolve(settings)
        if isinstance(source, Path):
            if not is_complete(source):
                raise ModelError(f"{source} lacks config.json or weights: fetch the model again")
            return source
        if (found := cached_folder(source)) is not None:
            return found
        if is_offline(settings):
            raise ModelError(self.available(settings).reason)
        found = fetch(source)
        if not is_complete(found):
            raise ModelError(f"{source.repository}@{source.revision} holds no whole model: give --option {self.option}=FOLDER")
        return found


def is_offline(settings: Settings) -> bool:
    """Whether local files only may be used: the run's setting, or ``HF_HUB_OFFLINE``."""
    from huggingface_hub import constants

    return settings.offline or bool(constants.HF_HUB_OFFLINE)


def is_complete(folder: Path) -> bool:
    """Whether a folder holds a configuration and every file of its weights."""
    if not (folder / "config.json").is_file():
        return False
    for name in _WEIGHT_FILES:
        if (folder / name).is_file():
            return True
        index = folder / f"{name}.index.json"
        if index.is_file():
            shards = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
            if all((folder / shard).is_file() for shard in shards):
                return True
    return False


def cached_folder(weights: Weights) -> Path | None:
    """The folder of a complete model in the Hub's local cache. Never uses the network."""
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(weights.repository, "config.json", revision=weights.revision)
    return Path(found).parent if isinstance(found, str) and is_complete(Path(found).parent) else None


def is_on_hub(weights: Weights) -> bool:
    """Whether the Hub has these weights; others are to be supplied."""
    return _HUB_ID.fullmatch(weights.repository) is not None


def fetch(weights: Weights) -> Path:
    """Download a repository's files at its revision into the Hub's cache. Raises ModelError in one line that says what to do."""
    if not is_on_hub(weights):
        raise ModelError(f"{weights.repository} is on no Hub: get the file yourself and give its folder with --weights-dir")
    from huggingface_hub import snapshot_download

    _LOG.warning("downloading %s, about %.0f MB, licence: %s", weights.repository, weights.bytes / 1e6, weights.licence)
    try:
        return Path(snapshot_download(weights.repository, revision=weights.revision, allow_patterns=list(weights.files) or None))
    except Exception as error:  # network, gated, missing: classes differ between hub versions
        raise ModelError(
            f"{weights.repository} can't be fetched ({first_line(error)}): check the network, or accept its licence on the Hub "
            "and log in with `hf auth login`"
        ) from error


def load_model(cls: Any, folder: Path, device: str, dtype: str = "float32") -> Any:
    """``cls`` from a folder, in evaluation mode on ``device``. Raises ModelError unless every weight came from its files."""
    import torch

    from phys_pipeline.families.sources import load_strictly

    return load_strictly(cls, folder, str(folder), dtype=getattr(torch, dtype)).to(device)
