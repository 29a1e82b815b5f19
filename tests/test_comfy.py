"""`phys-pipeline comfy install` and the pack's files, without ComfyUI."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from phys_pipeline.cli import main
from phys_pipeline.comfy import PACK, install_nodes
from phys_pipeline.errors import ConfigError

NODES = Path(__file__).resolve().parent.parent / "comfy_nodes"
TEXTS = {language: json.loads((NODES / "locales" / language / "nodeDefs.json").read_text("utf-8")) for language in ("en", "zh")}


@pytest.fixture
def comfyui(tmp_path):
    (tmp_path / "custom_nodes").mkdir()
    return tmp_path


def test_link(comfyui, capsys):
    assert main(["comfy", "install", "--path", str(comfyui)]) == 0
    assert (comfyui / "custom_nodes" / PACK).resolve() == NODES
    assert "pip install" in capsys.readouterr().out


def test_copy_replaces_what_was_installed(comfyui):
    for _ in range(2):
        target = install_nodes(comfyui, copy=True)
        assert not target.is_symlink() and (target / "nodes" / "lora.py").is_file()
        (target / "nodes" / "lora.py").unlink()
    assert install_nodes(comfyui).is_symlink()
    assert not install_nodes(comfyui, copy=True).is_symlink()
    assert NODES.is_dir() and (NODES / "nodes" / "lora.py").is_file()
    assert [path.name for path in (comfyui / "custom_nodes").iterdir()] == [PACK]


def test_another_pack_of_that_name_stays(comfyui):
    other = comfyui / "custom_nodes" / PACK
    other.mkdir()
    (other / "__init__.py").touch()
    with pytest.raises(ConfigError, match="move it away"):
        install_nodes(comfyui)
    assert (other / "__init__.py").is_file()


def test_from_a_wheel(comfyui, tmp_path):
    """What the build puts into a wheel, without the rest of the package: it installs without the checkout beside it."""
    build = [sys.executable, "setup.py", "-q", "build_py", "--build-lib", str(tmp_path / "wheel")]
    source = tmp_path / "source"
    (source / "phys_pipeline").mkdir(parents=True)
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(NODES.parent / name, source / name)
    for name in ("__init__.py", "comfy.py", "errors.py", "subcommands.py"):
        shutil.copy(NODES.parent / "phys_pipeline" / name, source / "phys_pipeline" / name)
    shutil.copytree(NODES, source / "comfy_nodes", ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run(build, cwd=source, check=True)
    install = "import pathlib, phys_pipeline.comfy as c; print(c.__file__); c.install_nodes(pathlib.Path('.'), copy=True)"
    environ = {**os.environ, "PYTHONPATH": str(tmp_path / "wheel")}
    run = subprocess.run([sys.executable, "-c", install], cwd=comfyui, env=environ, capture_output=True, text=True)
    assert run.returncode == 0 and run.stdout.startswith(str(tmp_path / "wheel")), run.stderr

    def files(folder):
        found = [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc"]
        return {path.relative_to(folder): path.read_bytes() for path in found}

    assert files(comfyui / "custom_nodes" / PACK) == files(NODES)


def test_no_comfyui(tmp_path, capsys):
    assert main(["comfy", "install", "--path", str(tmp_path)]) == 2
    assert "custom_nodes" in capsys.readouterr().err


def test_every_language_has_every_text():
    """Keys are the same in both languages, and no text is empty."""

    def keys(value):
        return {name: keys(content) for name, content in value.items()} if isinstance(value, dict) else bool(value.strip())

    assert keys(TEXTS["en"]) == keys(TEXTS["zh"])


def test_every_node_has_a_help_page():
    assert {path.stem for path in (NODES / "web" / "docs").iterdir()} == set(TEXTS["en"])


def test_the_pack_imports_only_what_it_may():
    """Within the pack imports are relative: ComfyUI puts its own modules first on the path. No code is run from strings."""
    allowed = {"comfy", "comfy_api", "comfy_execution", "comfy_extras", "folder_paths", "server", "phys_pipeline"}
    allowed |= {"torch", "numpy", "PIL"}
    for path in NODES.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for found in ast.walk(tree):
            names = [alias.name for alias in found.names] if isinstance(found, ast.Import) else []
            names += [found.module] if isinstance(found, ast.ImportFrom) and not found.level else []
            for name in names:
                top = name.split(".")[0]
                assert top in allowed or top in sys.stdlib_module_names, f"{path.name} imports {name}"
            called = found.func.id if isinstance(found, ast.Call) and isinstance(found.func, ast.Name) else ""
            assert called not in ("eval", "exec", "__import__"), path.name
