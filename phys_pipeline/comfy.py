"""``phys-pipeline comfy install``: put the ComfyUI nodes, beside this package or in it, into a ComfyUI."""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from phys_pipeline.errors import ConfigError
from phys_pipeline.subcommands import run_subcommand

PACK = "physmotion"  # the folder's name in custom_nodes; workflows don't hold it
_USAGE = "usage: phys-pipeline comfy install --path COMFYUI [--copy]"
_LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.pyc")


def main(arguments: Sequence[str]) -> int:
    return run_subcommand("comfy", _USAGE, {"install": install}, arguments)


def install(arguments: Sequence[str]) -> int:
    """``phys-pipeline comfy install``."""
    parser = argparse.ArgumentParser(prog="phys-pipeline comfy install", description="Put the nodes into a ComfyUI.")
    parser.add_argument("--path", required=True, type=Path, metavar="COMFYUI", help="ComfyUI's folder: it has custom_nodes in it")
    parser.add_argument("--copy", action="store_true", help="copy the files instead of linking to them")
    options = parser.parse_args(arguments)
    target = install_nodes(options.path, copy=options.copy)
    print(f"installed {target}: start ComfyUI again, the nodes are under PhysMotion")
    print("ComfyUI's own Python needs this package, too: python -m pip install phys-pipeline, or -e CHECKOUT")
    return 0


def install_nodes(comfyui: Path, *, copy: bool = False) -> Path:
    """Link, or copy, the pack into ``custom_nodes`` and return its place there. What an earlier run installed is replaced.

    Raises ConfigError for a folder that is no ComfyUI, or where something else has the pack's name.
    """
    source = _nodes(Path(__file__).resolve().parent)
    nodes = comfyui.expanduser() / "custom_nodes"
    if not nodes.is_dir():
        raise ConfigError(f"{comfyui} has no folder custom_nodes: give ComfyUI's own folder, or its --base-directory")
    target = nodes / PACK
    if target.is_symlink():
        target.unlink()
    elif target.exists() and not _is_ours(target):
        raise ConfigError(f"{target} is something else: move it away, or give another ComfyUI")
    if not copy:
        if target.exists():
            shutil.rmtree(target)
        try:
            target.symlink_to(source, target_is_directory=True)
        except OSError as error:  # Windows without the right to make links
            raise ConfigError(f"can't link {target} ({error.strerror}): use --copy") from error
        return target
    with tempfile.TemporaryDirectory(prefix=f".{PACK}-", dir=nodes) as scratch:
        shutil.copytree(source, Path(scratch) / PACK, ignore=_LEFT_OUT)
        if target.exists():
            os.replace(target, Path(scratch) / "old")
        os.replace(Path(scratch) / PACK, target)
    return target


def _nodes(package: Path) -> Path:
    """The pack of a checkout, or of an installed package."""
    for folder in (package.parent / "comfy_nodes", package / "comfy_nodes"):
        if (folder / "pyproject.toml").is_file():
            return folder
    raise ConfigError("the ComfyUI nodes are missing from this installation: install the package again")


def _is_ours(folder: Path) -> bool:
    about = folder / "pyproject.toml"
    return about.is_file() and 'DisplayName = "PhysMotion"' in about.read_text(encoding="utf-8")
