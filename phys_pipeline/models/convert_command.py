"""``phys-pipeline convert --family FAMILY SOURCE FOLDER``: official weights into a diffusers folder that this package loads."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from phys_pipeline.atomic import atomic_file
from phys_pipeline.errors import ConfigError, ModelError, first_line
from phys_pipeline.models.conversion import PICKLES, convert

# family -> module with CONVERSIONS, FILES (small JSON files of the whole folder) and PARTS (subfolder -> how to get it); where it
# has HUB_FILES (paths in the repository), no other weights of a Hub repository or of a copy of it are fetched or looked at
_FAMILIES = {
    "mvdit": "phys_pipeline.models.mvdit_conversion",
    "open_sora_1_2": "phys_pipeline.models.open_sora_conversion",
    "open_sora_2": "phys_pipeline.models.open_sora_2_conversion",
}


def conversions_of(family: str) -> Any:
    """The module that knows a family's official files; spelled with dashes and dots or with underscores. ConfigError if none."""
    name = family.lower().replace("-", "_").replace(".", "_").removesuffix("_0")  # open-sora-2.0
    if name not in _FAMILIES:
        raise ConfigError(f"nothing to convert for {family!r}: use one of {', '.join(sorted(_FAMILIES))}")
    return importlib.import_module(_FAMILIES[name])


def main(arguments: Sequence[str] | None = None) -> int:
    """Convert one file; called again with the others, it completes the same folder. Returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="phys-pipeline convert",
        description="Write an official checkpoint as a folder in the diffusers layout. Every tensor is checked by name and shape "
        "first; about 2 GB of them are in memory at a time. Run it once for each official file, with the same FOLDER.",
        epilog="Try: phys-pipeline convert --family open-sora-1.2 hpcai-tech/OpenSora-STDiT-v3 models/open_sora",
    )
    parser.add_argument("source", metavar="SOURCE", help="official file, folder with it, or Hub id")
    parser.add_argument("folder", metavar="FOLDER", help="model folder that gets the part, made if need be")
    parser.add_argument("--family", required=True, help=f"one of {', '.join(sorted(_FAMILIES))}")
    options = parser.parse_args(arguments)
    module, folder = conversions_of(options.family), Path(options.folder)
    written = [
        convert(source, folder, module.CONVERSIONS) for source in _sources(options.source, getattr(module, "HUB_FILES", ()))
    ]
    for name, content in module.FILES.items():
        _write_json(folder / name, content)
    for part in written:
        print(f"wrote {part}")
    for part, advice in module.PARTS.items():
        if not (folder / part).is_dir():
            print(f"still to do for {folder}: {part} ({advice})")
    return 0


def _sources(source: str, names: Sequence[str]) -> list[Path]:
    """The file or folder ``source`` means; those of its files that are in ``names``, where it has some. A Hub id is fetched: the
    small files and the weights alone, and of the weights those in ``names``, if there are any."""
    path = Path(source)
    if not path.exists() and source.count("/") == 1:
        path = _fetched(source, names)
    return [path / name for name in names if (path / name).is_file()] or [path]


def _fetched(source: str, names: Sequence[str]) -> Path:
    from huggingface_hub import snapshot_download

    weights = names or ("*.safetensors", *(f"*{ending}" for ending in PICKLES))
    not_in_folders = None if names else ["*/*"]
    try:
        return Path(snapshot_download(source, allow_patterns=["config.json", *weights], ignore_patterns=not_in_folders))
    except Exception as error:  # network, gated, missing: the classes differ between versions
        raise ModelError(f"{source} is no file here and can't be fetched ({first_line(error)}): check its name") from error


def _write_json(file: Path, content: Mapping[str, Any]) -> None:
    """A file that is there already stays, so that what someone changed in it does too."""
    if file.exists():
        print(f"kept {file}", file=sys.stderr)
        return
    with atomic_file(file) as temporary:
        temporary.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")
