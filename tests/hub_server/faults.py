"""A wrapper of the server that notes every request and spoils some answers."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from dataclasses import dataclass, field
from typing import Any

from starlette.responses import Response

Headers = dict[str, str]


@dataclass
class Fault:
    """What to do with the next requests that match ``route``, a regular expression for "METHOD /path".

    Either ``status`` takes the place of the answer, or ``drop`` closes the connection without one, or the answer is sent but
    cut off after ``cut`` bytes of the body, with the bit ``flip`` inverted, or ``delay`` seconds late. With ``after`` the
    request is carried out first: the answer is lost, the deed is done. The first ``skip`` matching requests are spared.
    """

    route: str
    status: int | None = None
    times: int = 1
    skip: int = 0
    drop: bool = False
    after: bool = False
    cut: int | None = None
    flip: int | None = None
    delay: float = 0.0
    headers: Headers = field(default_factory=dict)
    body: Any = None  # bytes, or what becomes JSON; default an object with an error
    hits: int = 0


@dataclass
class Request:
    """A request, noted when it arrives, and the status it got (None: no answer yet, or none at all)."""

    method: str
    path: str
    query: str
    headers: Headers
    port: int
    status: int | None = None


class Faults:
    """Faults still to come and requests so far; an ASGI application around another one."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.pending: list[Fault] = []
        self.log: list[Request] = []
        self.lock = threading.Lock()

    def take(self, line: str) -> Fault | None:
        with self.lock:
            for fault in self.pending:
                if not re.search(fault.route, line):
                    continue
                if fault.skip > 0:
                    fault.skip -= 1
                elif fault.hits < fault.times:
                    fault.hits += 1
                    return fault
        return None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        path = scope["raw_path"].decode().split("?")[0]
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        request = Request(scope["method"], path, scope["query_string"].decode(), headers, scope["server"][1])
        self.log.append(request)

        async def noted(message: Any) -> None:
            if message["type"] == "http.response.start":
                request.status = message["status"]
            await send(message)

        await self._answer(self.take(f"{request.method} {path}"), scope, receive, noted, send)

    async def _answer(self, fault: Fault | None, scope: Any, receive: Any, send: Any, raw_send: Any) -> None:
        if fault is None:
            return await self.inner(scope, receive, send)
        if fault.delay:
            await asyncio.sleep(fault.delay)
        replaced = fault.status is not None or fault.drop
        if fault.after or not replaced:
            spoiled = _nowhere if replaced else _spoil(fault, send, raw_send)
            await self.inner(scope, receive, spoiled)
        if fault.drop:
            return _close(raw_send)
        if fault.status is not None:
            body = {"error": f"injected {fault.status}"} if fault.body is None else fault.body
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            kind = "text/html" if isinstance(body, bytes) else "application/json"
            answer = Response(content, fault.status, {"X-Request-Id": "injected", **fault.headers}, media_type=kind)
            await answer(scope, receive, send)


async def _nowhere(message: Any) -> None:
    """An answer that gets lost."""


def _spoil(fault: Fault, send: Any, raw_send: Any) -> Any:
    """A ``send`` that flips a bit of the body, or closes the connection in the middle of it."""
    sent = 0

    async def spoiled(message: Any) -> None:
        nonlocal sent
        body = message.get("body", b"")
        if body and fault.flip is not None and sent <= fault.flip < sent + len(body):
            changed = bytearray(body)
            changed[fault.flip - sent] ^= 1
            message = {**message, "body": bytes(changed)}
        if fault.cut is not None and message["type"] == "http.response.body" and sent + len(body) > fault.cut:
            await send({**message, "body": body[: fault.cut - sent], "more_body": True})
            await asyncio.sleep(0.01)  # what was sent should arrive
            _close(raw_send)
            raise ConnectionResetError
        sent += len(body)
        await send(message)

    return spoiled


def _close(send: Any) -> None:
    """End the connection: ASGI has no word for it, so through uvicorn's object that ``send`` belongs to."""
    send.__self__.transport.close()
