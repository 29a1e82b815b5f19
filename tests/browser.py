"""A headless Chromium driven over its debugging pipe: no driver and no package needed."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

EXECUTABLE = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Page:
    """One page of a browser that lives as long as the ``with`` block.

    Args:
        profile: an empty folder for the browser's files.
        width, height: of the window, in pixels.
    """

    def __init__(self, profile: Path, width: int = 1200, height: int = 900) -> None:
        self._number, self._rest = 0, b""
        self.console: list[str] = []  # errors and warnings that the page gave
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()
        command = [
            str(EXECUTABLE), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
            "--remote-debugging-pipe", "--autoplay-policy=no-user-gesture-required", "--no-proxy-server",
            f"--user-data-dir={profile}", f"--window-size={width},{height}", "about:blank",
        ]  # fmt: skip
        redirected = ["bash", "-c", f'exec "$@" 3<&{to_browser} 4>&{from_browser}', "bash", *command]
        self._process = subprocess.Popen(redirected, pass_fds=(to_browser, from_browser), stderr=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(from_browser)
        self._session: str | None = None
        targets = self._until(lambda: [t for t in self._call("Target.getTargets")["targetInfos"] if t["type"] == "page"])
        self._session = self._call("Target.attachToTarget", targetId=targets[0]["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self._call(f"{domain}.enable")
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def __enter__(self) -> Page:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._read)
        os.close(self._write)

    def open(self, url: str) -> None:
        """Go to an address and wait until it is loaded."""
        self._call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'")

    def evaluate(self, expression: str) -> Any:
        """The JSON value of a JavaScript expression."""
        reply = self._call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True, userGesture=True)
        assert "exceptionDetails" not in reply, reply["exceptionDetails"]
        return reply["result"].get("value")

    def wait(self, expression: str, seconds: float = 20.0) -> Any:
        """Wait until an expression is true; returns its value."""
        return self._until(lambda: self.evaluate(expression), expression, seconds)

    def press(self, key: str) -> None:
        """Press and release one key, for example "1", "Enter" or " "."""
        code = {"Enter": 13, "Backspace": 8}.get(key) or ord(key)
        text = "\r" if key == "Enter" else key if len(key) == 1 else ""
        self._call("Input.dispatchKeyEvent", type="keyDown", key=key, text=text, windowsVirtualKeyCode=code)
        self._call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def move(self, x: float, y: float) -> None:
        """Move the mouse to a place in the window."""
        self._call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self._call("Page.captureScreenshot", captureBeyondViewport=True)["data"]))

    def _until(self, condition: Any, what: str = "the browser", seconds: float = 20.0) -> Any:
        limit = time.monotonic() + seconds
        while not (value := condition()):
            assert time.monotonic() < limit, f"waited {seconds:g} s in vain for {what}"
            time.sleep(0.05)
        return value

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            reply = self._receive()
            if reply.get("id") == self._number:
                assert "error" not in reply, reply["error"]
                return dict(reply["result"])
            if reply.get("method") == "Runtime.exceptionThrown":
                self.console.append(str(reply["params"]["exceptionDetails"]))
            if reply.get("method") == "Log.entryAdded" and reply["params"]["entry"]["level"] in ("error", "warning"):
                self.console.append(reply["params"]["entry"]["text"])

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            assert select.select([self._read], [], [], 30)[0], "the browser does not answer"
            chunk = os.read(self._read, 1 << 16)
            assert chunk, "the browser has ended"
            self._rest += chunk
        line, self._rest = self._rest.split(b"\0", 1)
        return dict(json.loads(line))
