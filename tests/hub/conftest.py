"""A Hub on the loopback address for each test, and what runs a program against it in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hub_server import HubServer

ROOT = Path(__file__).parents[2]


@pytest.fixture
def hub(tmp_path):
    """A Hub without Xet: large files travel by Git LFS."""
    with HubServer(tmp_path / "hub", xet=False) as server:
        yield server


@pytest.fixture
def run(tmp_path):
    """Run Python or a program against a server; the HF_* variables are read at import, so in a child process."""

    def run(server, *arguments, token="default", home="home", xet=None, check=True, timeout=240, **environment):
        tokens = {} if token == "default" else {"token": token}
        own = {**os.environ, **server.environment(tmp_path / home, xet=xet, **tokens), **environment}
        own["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
        command = (
            [sys.executable, *arguments] if arguments[0] != "hf" else [str(Path(sys.executable).with_name("hf")), *arguments[1:]]
        )
        done = subprocess.run(command, capture_output=True, text=True, env=own, timeout=timeout)
        assert not check or done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return done

    return run


@pytest.fixture
def here(hub, tmp_path, monkeypatch):
    """This process talks to the server: huggingface_hub reads its variables at import, so its constants are replaced too."""
    import huggingface_hub.constants as constants
    import huggingface_hub.utils._http as http

    home = tmp_path / "cache"
    for name, value in hub.environment(home).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(constants, "ENDPOINT", hub.url)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", hub.url + "/{repo_id}/resolve/{revision}/{filename}")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(home / "hub"))
    monkeypatch.setattr(constants, "HF_HOME", str(home))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(home / "token"))
    monkeypatch.setattr(http, "_HUB_ORIGINS", frozenset([*http._HUB_ORIGINS, http._url_origin(hub.url)]))
    return hub


@pytest.fixture
def client(here, monkeypatch):
    """Calls of the Hub in this process, without waits: for tests of many faults."""
    import time

    from phys_pipeline.hub import Hub
    from phys_pipeline.hub.operations import perform

    waits = []
    monkeypatch.setattr(time, "sleep", waits.append)
    hub = Hub(lambda operation, arguments, seconds: perform(operation, arguments))
    hub.waits = waits
    return hub
