"""The server on two ports of 127.0.0.1: the Hub's own, and one for large files, as the real one has."""

from __future__ import annotations

import re
import socket
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse

from hub_server.api import Api
from hub_server.faults import Fault, Faults, Request
from hub_server.files import Files
from hub_server.store import Account, Refused, Repo, Store

TOKEN, READER, STRANGER = "hf_testtokenthatmaywrite0000", "hf_testtokenthatmayread00000", "hf_testtokenofsomeoneelse000"


class HubServer:
    """A running Hub. Use it as a context manager.

    ``xet`` chooses how large files travel: Xet's chunks, or Git LFS; ``part_size`` makes the latter upload in parts. The
    account "owner" has a token that may write and one that may only read; "stranger" is somebody else.
    """

    def __init__(self, root: Path, xet: bool = True, part_size: int | None = None) -> None:
        self.root, self.store = root, Store(root, xet)
        self.store.accounts |= {
            TOKEN: Account("owner", organisations=("lab",)),
            READER: Account("owner", role="read"),
            STRANGER: Account("stranger"),
        }
        api = Api(self.store)
        files = Files(api)
        files.part_size = part_size
        application = Starlette(routes=[*api.routes(), *files.routes()], exception_handlers={Refused: refuse})
        self.faults = Faults(with_raw_slashes(application))
        sockets = [_bound(), _bound()]
        api.base, files.downloads = (f"http://127.0.0.1:{s.getsockname()[1]}" for s in sockets)
        self.url, self.download_port = api.base, sockets[1].getsockname()[1]
        self._servers = [
            uvicorn.Server(uvicorn.Config(self.faults, log_level=60, lifespan="off", timeout_keep_alive=120)) for _ in sockets
        ]
        self._threads = [
            threading.Thread(target=server.run, kwargs={"sockets": [s]}, daemon=True)
            for server, s in zip(self._servers, sockets, strict=True)
        ]

    def __enter__(self) -> HubServer:
        for thread in self._threads:
            thread.start()
        while not all(server.started for server in self._servers):
            time.sleep(0.01)
        return self

    def __exit__(self, *_: object) -> None:
        for server in self._servers:
            server.should_exit = server.force_exit = True
        for thread in self._threads:
            thread.join(10)

    def environment(self, home: Path, token: str | None = TOKEN, xet: bool | None = None) -> dict[str, str]:
        """What to add to a child process's environment so that huggingface_hub talks to this server and keeps its files in
        ``home``. "" stands for no token."""
        xet = self.store.xet is not None if xet is None else xet
        return {
            "HF_ENDPOINT": self.url, "HF_HOME": str(home), "HF_HUB_CACHE": str(home / "hub"), "HF_XET_CACHE": str(home / "xet"),
            "HF_HUB_OFFLINE": "0", "TRANSFORMERS_OFFLINE": "0", "HF_TOKEN": token or "", "HF_HUB_DISABLE_XET": str(int(not xet)),
            "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_UPDATE_CHECK": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1",
        }  # fmt: skip

    # what tests ask and do
    def repo(self, name: str) -> Repo:
        return self.store.repos["model", name]

    def read(self, name: str, path: str) -> bytes:
        """A file at the head of a model repository."""
        return self.store.read(self.repo(name).head.tree[path])

    def inject(self, *faults: Fault) -> None:
        self.faults.pending += faults

    def calm(self) -> None:
        self.faults.pending.clear()

    @property
    def log(self) -> list[Request]:
        return self.faults.log


async def refuse(_: Any, error: Any) -> JSONResponse:
    headers = {"X-Request-Id": "test", "X-Error-Message": error.message, **error.headers}
    if error.code:
        headers["X-Error-Code"] = error.code
    return JSONResponse({"error": error.message}, error.status, headers)


def with_raw_slashes(inner: Any) -> Any:
    """A revision such as ``refs/pr/1`` arrives as one segment, ``refs%2Fpr%2F1``, and has to stay one."""

    async def application(scope: Any, receive: Any, send: Any) -> None:
        raw = scope["raw_path"].decode().split("?")[0]
        await inner({**scope, "path": unquote(re.sub("%2[fF]", "%252F", raw))}, receive, send)

    return application


def _bound() -> socket.socket:
    found = socket.socket()
    found.bind(("127.0.0.1", 0))
    return found
