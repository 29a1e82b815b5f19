"""Real ComfyUI for the tests in this folder, built by ``make test-comfy``; without COMFY_CACHE pytest leaves the folder out."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
if str(HERE) not in sys.path:
    sys.path.insert(0, str(HERE))

import build  # noqa: E402
from server import Server  # noqa: E402

ROOT = HERE.parents[1]
VERSIONS = NEWEST, OLDEST = [engine.version for engine in build.ENGINES]


@pytest.fixture(scope="session")
def environment() -> Path:
    found = build.find(Path(os.environ.get("COMFY_CACHE", ROOT / ".comfy")))
    if found is None:
        pytest.exit("no ComfyUI where COMFY_CACHE says: `make test-comfy` builds it", returncode=1)
    return found


@pytest.fixture(scope="session")
def models(environment, tmp_path_factory) -> Path:
    """A folder of tiny models and adapters, laid out as ComfyUI's models."""
    from assets import write_models

    return write_models(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="session")
def servers(environment, models, tmp_path_factory):
    """A function that gives the server of a version. Each is started once, for all files; the newest has the real pages."""
    with ExitStack() as stack:

        @cache
        def running(version):
            base = tmp_path_factory.mktemp(f"comfyui-{version}")
            (base / "models").symlink_to(models)
            return stack.enter_context(Server(environment, version, base, frontend=version == NEWEST))

        yield running


@pytest.fixture(scope="session", params=VERSIONS)
def server(request, servers):
    """Both versions, for what depends on ComfyUI's own code."""
    return servers(request.param)


@pytest.fixture(scope="session", params=[NEWEST])
def newest(request, servers):
    """For what rests on this package, and takes long. The parameter puts the version into the test's name."""
    return servers(request.param)


@pytest.fixture(scope="session", params=[OLDEST])
def oldest(request, servers):
    """As ``newest``; which one a test takes only shares the work out."""
    return servers(request.param)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """The tests of a version run in one process, so that its server is started once. (xdist's groups have no effect in
    pytest 9.2: they set a node's ``_nodeid``, which isn't read there.)"""
    from xdist.scheduler import LoadScopeScheduling

    class ByVersion(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            named = [version for version in VERSIONS if f"[{version}" in nodeid]
            return named[0] if named else super()._split_scope(nodeid)

    return ByVersion(config, log)
