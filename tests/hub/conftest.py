"""A Hub on the loopback address for each test, and what runs a program against it in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))  # also where this file is loaded first

from hub_server import HubServer


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
