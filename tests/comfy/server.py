"""A real ComfyUI in a process of its own, on a free port of 127.0.0.1, and how to talk to it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PACK = "physmotion"
Graph = dict[str, dict[str, Any]]  # a prompt as the API takes it: node number to class_type and inputs


class Refused(Exception):
    """The server did not take a prompt; ``errors`` is what it answered."""

    def __init__(self, errors: dict[str, Any]) -> None:
        super().__init__(json.dumps(errors, indent=1)[:2000])
        self.errors = errors


class Server:
    """Starts with the first ``with``; the process is stopped by its number at the end.

    Args:
        environment: the folder that ``build.py`` made.
        base: a folder for models, inputs and outputs; the packs are linked into it.
        frontend: whether it serves the real pages, or an empty one.
        environ: more variables, such as a Hub's address; without them it is offline.
    """

    def __init__(
        self, environment: Path, version: str, base: Path, *, frontend: bool = False, environ: Mapping[str, str] | None = None
    ) -> None:
        self.base, self.version = base, version
        for folder in ("custom_nodes", "web", "input", "output", "models/loras", "models/diffusers"):
            (base / folder).mkdir(parents=True, exist_ok=True)
        (base / "web" / "index.html").write_text("ok", encoding="utf-8")
        for name, source in ((PACK, ROOT / "comfy_nodes"), ("physmotion_test", ROOT / "tests" / "comfy" / "pack")):
            if not (base / "custom_nodes" / name).exists():
                (base / "custom_nodes" / name).symlink_to(source)
        self._environment, self._pages, self._environ = environment, base / "web", dict(environ or {})
        if frontend:
            self._pages = environment / "frontend" / "comfyui_frontend_package" / "static"
        self.log = base / "server.log"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Server:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "PYTHON"))}
        environ = {
            **kept, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "HF_HOME": str(self.base / "hub"),
            "PYTHONPATH": os.pathsep.join([str(ROOT / "tests" / "comfy" / "shim"), str(ROOT)]), "PYTHONDONTWRITEBYTECODE": "1",
            **self._environ,
        }  # fmt: skip
        command = [
            str(self._environment / "server" / "bin" / "python"), "main.py", "--cpu",
            "--listen", "127.0.0.1", "--port", str(self.port),
            "--base-directory", str(self.base), "--database-url", "sqlite:///:memory:", "--disable-api-nodes", "--cache-classic",
            "--front-end-root", str(self._pages),
        ]  # fmt: skip
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                command, cwd=self._environment / "comfyui" / self.version, env=environ, stdout=log, stderr=subprocess.STDOUT
            )
        try:
            self._wait_until_up()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(20)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def get(self, path: str) -> Any:
        return json.loads(self.read(path))

    def read(self, path: str) -> bytes:
        with urllib.request.urlopen(self.url + path, timeout=300) as answer:
            return answer.read()

    def post(self, path: str, content: Any) -> Any:
        request = urllib.request.Request(
            self.url + path, json.dumps(content).encode(), {"Content-Type": "application/json"}, method="POST"
        )
        try:
            with urllib.request.urlopen(request, timeout=300) as answer:
                return json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            if error.code == 400:
                raise Refused(json.loads(error.read())) from None
            raise

    def queue(self, graph: Graph) -> str:
        """The number of a queued prompt. Raises Refused also where only some of its outputs are refused."""
        answer = self.post("/prompt", {"prompt": graph})
        if answer.get("node_errors"):
            raise Refused(answer)
        return str(answer["prompt_id"])

    def finished(self, prompt: str, seconds: float = 600) -> Result:
        """The result of a prompt, waited for."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            entry = self.get(f"/history/{prompt}").get(prompt)
            if entry is not None and entry["status"].get("messages"):
                return Result(entry)
            assert self._process is not None and self._process.poll() is None, "the server ended:\n" + self.tail()
            time.sleep(0.05)
        raise TimeoutError(f"prompt {prompt} is not finished after {seconds} s:\n" + self.tail())

    def run(self, graph: Graph, seconds: float = 600) -> Result:
        return self.finished(self.queue(graph), seconds)

    @contextmanager
    def listening(self) -> Iterator[list[tuple[str, Any]]]:
        """What the server tells its pages meanwhile: messages with their data, and texts on nodes as ("text", the text)."""
        from websockets.exceptions import ConnectionClosed
        from websockets.sync.client import connect

        heard: list[tuple[str, Any]] = []

        def listen() -> None:
            try:
                for message in channel:
                    if isinstance(message, str):
                        content = json.loads(message)
                        heard.append((content["type"], content.get("data")))
                    elif int.from_bytes(message[:4], "big") == 3:
                        length = int.from_bytes(message[4:8], "big")
                        heard.append(("text", message[8 + length :].decode()))
            except ConnectionClosed:
                pass

        with connect(f"ws://127.0.0.1:{self.port}/ws?clientId=tests", max_size=None) as channel:
            thread = threading.Thread(target=listen)
            thread.start()
            try:
                yield heard
            finally:
                channel.close()
                thread.join(20)

    def tail(self) -> str:
        return "\n".join(self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-40:])

    def _wait_until_up(self) -> None:
        end = time.monotonic() + 600
        while time.monotonic() < end:
            assert self._process is not None
            if self._process.poll() is not None:
                raise RuntimeError("ComfyUI ended while it started:\n" + self.tail())
            try:
                self.get("/system_stats")
                return
            except OSError:
                time.sleep(0.2)
        raise TimeoutError("ComfyUI did not start:\n" + self.tail())


class Result:
    """What a prompt left in the history."""

    def __init__(self, entry: dict[str, Any]) -> None:
        self.status: str = entry["status"]["status_str"]
        self.outputs: dict[str, Any] = entry["outputs"]
        self.messages: list[tuple[str, dict[str, Any]]] = [(name, content) for name, content in entry["status"]["messages"]]

    def message(self, name: str) -> dict[str, Any] | None:
        return next((content for kind, content in self.messages if kind == name), None)

    @property
    def cached(self) -> set[str]:
        """Numbers of the nodes that were not executed again."""
        return set((self.message("execution_cached") or {"nodes": []})["nodes"])

    @property
    def error(self) -> str | None:
        """The message of the node that failed."""
        failed = self.message("execution_error")
        return None if failed is None else f"{failed['node_type']}: {failed['exception_message'].strip()}"

    def text(self, node: str) -> str:
        return str(self.outputs[node]["text"][0])

    def ok(self) -> Result:
        assert self.status == "success", self.error or self.messages
        return self


def output_file(server: Server, entry: dict[str, str]) -> Path:
    """The file that an entry of ``outputs`` names."""
    return server.base / entry["type"] / entry["subfolder"] / entry["filename"]
