"""Where a base model comes from: the embedded tiny model, a local folder, or the Hub; and loading its parts strictly."""

from __future__ import annotations

import importlib
import json
import logging
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from phys_pipeline.errors import ModelError, first_line

if TYPE_CHECKING:
    from phys_pipeline.families.base import FamilySpec

logger = logging.getLogger(__name__)

TINY = "tiny"
DESCRIPTION_FILE = "phys_pipeline.json"
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
_LIBRARIES = ("diffusers", "transformers", "phys_pipeline")


def tiny_folder() -> Path:
    """Folder of the model that comes with the package (present once it has been trained)."""
    return Path(__file__).parents[1] / "assets" / "tiny_hunyuan"


def local_folder(source: str | Path | None, spec: FamilySpec, components: tuple[str, ...]) -> Path:
    """The local folder of ``source`` with the named subfolders in it, downloading from the Hub if it is an ``owner/name``.

    Raises ModelError if it can't be had or its ``model_index.json`` names another pipeline class.
    """
    if source is None or str(source) == TINY:
        folder = tiny_folder()
        if not (folder / "model_index.json").is_file():
            raise ModelError("the embedded tiny model is not in this checkout: run training/pretrain_tiny.py to make it")
    elif Path(source).is_dir():
        folder = Path(source)
        if not (folder / "model_index.json").is_file():
            raise ModelError(f"{folder} has no model_index.json: give the folder of a whole model in the diffusers layout")
    elif Path(source).exists():
        raise ModelError(f"{source} is a file: give the folder of a whole model in the diffusers layout")
    elif _HUB_ID.fullmatch(str(source)):
        folder = _snapshot(str(source), ("model_index.json", DESCRIPTION_FILE))
        if not (folder / "model_index.json").is_file():
            raise ModelError(f"{source} is not in the diffusers layout: {_way_to_get(spec)}")
        _check_class(folder, str(source), spec)
        wanted = [f"{c}/*.{suffix}" for c in components for suffix in ("json", "safetensors", "txt", "model")]
        folder = _snapshot(str(source), ("model_index.json", DESCRIPTION_FILE, *wanted))
    else:
        raise ModelError(f"there is no model folder {source}: give a local folder, a Hub id such as {spec.hub_id}, or 'tiny'")
    _check_class(folder, str(source), spec)
    for component in components:
        if not (folder / component).is_dir():
            raise ModelError(f"{source or TINY} has no {component} folder: {_way_to_get(spec)}")
    return folder


def _way_to_get(spec: FamilySpec) -> str:
    if spec.modules.get("pipeline", "").startswith("phys_pipeline."):  # the Hub has the official files, in their own layout
        return f"make it of the official files with `phys-pipeline convert --family {spec.name} SOURCE FOLDER`"
    return f"fetch it whole with `hf download {spec.hub_id}`"


def description(source: str | Path | None) -> dict[str, Any]:
    """The model's ``phys_pipeline.json`` as a dict; {} if it has none. Never downloads."""
    path: Path | None
    if source is None or str(source) == TINY:
        path = tiny_folder() / DESCRIPTION_FILE
    elif Path(source).is_dir():
        path = Path(source) / DESCRIPTION_FILE
    else:
        path = _cached(str(source))
    if path is None or not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelError(f"{path} is not valid JSON ({error}): repair or delete it") from error
    if not isinstance(content, dict) or not isinstance(content.get("generation", {}), dict):
        raise ModelError(f"{path} must hold an object with an object 'generation': repair or delete it")
    return content


def pipeline_settings(folder: str | Path) -> dict[str, Any]:
    """The settings of the pipeline itself in a local folder's ``model_index.json``, such as Wan 2.2's ``boundary_ratio``."""
    index = json.loads((Path(folder) / "model_index.json").read_text(encoding="utf-8"))
    return {key: value for key, value in index.items() if not key.startswith("_") and not _is_component(value)}


def pipeline_class(source: str | Path | None) -> str | None:
    """The pipeline class that the source's ``model_index.json`` names, None without one; of a Hub id it fetches that file."""
    if source is None or str(source) == TINY:
        folder = tiny_folder()
    elif Path(source).is_dir():
        folder = Path(source)
    elif _HUB_ID.fullmatch(str(source)) and not Path(source).exists():
        folder = _snapshot(str(source), ("model_index.json", DESCRIPTION_FILE))
    else:
        return None
    if not (folder / "model_index.json").is_file():
        return None
    return _class_name(folder, str(source))


def hub_commit(folder: str | Path) -> str | None:
    """The commit of a folder in the Hub's cache; None for any other folder."""
    folder = Path(folder)
    return folder.name if folder.parent.name == "snapshots" else None


def load_component(folder: Path, name: str, dtype: torch.dtype | None = None, modules: Collection[str] = ()) -> Any:
    """Load one subfolder with the class that ``model_index.json`` names; every weight must come from the files.

    The class is of diffusers, transformers or phys_pipeline, or of one of ``modules``, which a family brings with it. diffusers
    and transformers fill missing weights with random numbers and go on; here that is a ModelError.
    """
    entry = json.loads((folder / "model_index.json").read_text(encoding="utf-8")).get(name)
    library, class_name = entry if isinstance(entry, list) and len(entry) == 2 else ("", "")
    if str(library).split(".")[0] not in _LIBRARIES and library not in modules:
        raise ModelError(f"model_index.json of {folder} names {entry} as its {name}: only diffusers, transformers and "
                         "phys_pipeline classes are loaded")  # fmt: skip
    try:
        cls = getattr(importlib.import_module(library), class_name)
        if dtype is None:
            return cls.from_pretrained(folder / name)
    except Exception as error:  # as in load_strictly
        raise _unloadable(f"{name} of {folder}", error) from error
    keyword = "dtype" if library == "transformers" else "torch_dtype"
    return load_strictly(cls, folder / name, f"{name} of {folder}", **{keyword: dtype})


def load_strictly(cls: Any, folder: Path, what: str, **keywords: Any) -> Any:
    """``cls.from_pretrained(folder)`` in evaluation mode. Raises ModelError unless every weight came from the files.

    ``what`` names the model in the message; ``keywords`` are from_pretrained's.
    """
    try:
        with _no_progress_bars():
            component, info = cls.from_pretrained(folder, output_loading_info=True, **keywords)
    except Exception as error:  # OSError, ValueError, SafetensorError, ... : the libraries have no common base
        raise _unloadable(what, error) from error
    missing = sorted(k for k in info.get("missing_keys", ()) if not k.endswith("position_ids"))
    if missing or info.get("mismatched_keys"):
        which = missing[0] if missing else f"{info['mismatched_keys'][0]}"
        raise ModelError(f"the weights of {what} lack {which} ({len(missing)} missing): fetch the model again")
    return component.eval()


def _unloadable(what: str, error: Exception) -> ModelError:
    return ModelError(f"can't load {what} ({first_line(error)}): fetch the model again")


@contextmanager
def _no_progress_bars() -> Iterator[None]:
    from transformers.utils import logging as messages

    shown = messages.is_progress_bar_enabled()
    messages.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            messages.enable_progress_bar()


def _is_component(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(part is None or isinstance(part, str) for part in value)


def _class_name(folder: Path, source: str) -> str | None:
    """The ``_class_name``, without the module that diffusers writes before the name of a class that isn't its own."""
    try:
        found = json.loads((folder / "model_index.json").read_text(encoding="utf-8")).get("_class_name")
    except (OSError, ValueError, AttributeError) as error:
        raise ModelError(f"can't read model_index.json of {source} ({first_line(error)}): fetch the model again") from error
    return str(found[-1] if isinstance(found, list) and found else found) if found else None


def _check_class(folder: Path, source: str, spec: FamilySpec) -> None:
    found = _class_name(folder, source)
    if found != spec.pipeline_class:
        raise ModelError(f"{source} holds a {found}, not a {spec.pipeline_class}: give a {spec.name} model such as {spec.hub_id}")


def _snapshot(source: str, patterns: tuple[str, ...]) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(source, allow_patterns=list(patterns)))
    except Exception as error:  # network, gated, missing repository: classes differ between hub versions
        raise ModelError(
            f"can't get {source} from the Hub ({first_line(error)}): check the name and network, run "
            f"`hf download {source}` where there is one, or give a local folder"
        ) from error


def _cached(source: str) -> Path | None:
    if not _HUB_ID.fullmatch(source):
        return None
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(source, DESCRIPTION_FILE)
    return Path(found) if isinstance(found, str) else None
