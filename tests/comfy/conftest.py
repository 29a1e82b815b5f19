"""Real ComfyUI for the tests in this folder; they are left out where ``make test-comfy`` has not built it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
if str(HERE) not in sys.path:
    sys.path.insert(0, str(HERE))

import build  # noqa: E402
from server import Server  # noqa: E402

ROOT = HERE.parents[1]
VERSIONS = [engine.version for engine in build.ENGINES]


@pytest.fixture(scope="session")
def environment() -> Path:
    found = build.find(Path(os.environ.get("COMFY_CACHE", ROOT / ".comfy")))
    if found is None:
        pytest.skip("no ComfyUI here: `make test-comfy` builds it")
    return found


@pytest.fixture(scope="session")
def models(environment, tmp_path_factory) -> Path:
    """A folder of tiny models and adapters, laid out as ComfyUI's models."""
    from assets import write_models

    return write_models(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="session", params=VERSIONS)
def server(request, environment, models, tmp_path_factory):
    base = tmp_path_factory.mktemp(f"comfyui-{request.param}")
    (base / "models").symlink_to(models)
    with Server(environment, request.param, base) as running:
        yield running


@pytest.fixture(scope="session")
def newest(environment, models, tmp_path_factory):
    """The newest version only, with the real pages."""
    base = tmp_path_factory.mktemp("comfyui-pages")
    (base / "models").symlink_to(models)
    with Server(environment, VERSIONS[0], base, frontend=True) as running:
        yield running
