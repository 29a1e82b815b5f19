"""The study as a web page: a small HTTP server of the standard library around one :class:`Session`.

Serves the page, the videos of the study (with byte ranges) and three JSON calls; every other address is 404. File names are
looked up, never joined to a path. Neither addresses nor access are logged.

    POST api/start   {"participant": id or null}       -> {"participant", "done", "total", "next"}
    POST api/answer  {"participant", "trial", ...}     -> {"done", "total", "next"}
    GET  videos/NAME.mp4
"""

from __future__ import annotations

import html
import http.cookies
import json
import re
import secrets
import sys
import urllib.parse
from dataclasses import asdict
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from pathlib import Path
from typing import Any

from phys_pipeline.errors import ConfigError
from phys_pipeline.evaluation.study.session import Refused, Session, Trial

_LARGEST_BODY = 4096  # bytes
_CHUNK = 1 << 16
_RANGE = re.compile(r"bytes=(\d*)-(\d*)")
_TOKEN = re.compile(r"[A-Za-z0-9_-]{8,}")
_PAGE = resources.files(__package__).joinpath("page.html")


class StudyServer(ThreadingHTTPServer):
    """Serves ``session`` at ``host:port`` (port 0 takes a free one). With ``token``, only visitors whose link has it.

    Raises ConfigError for a place that can't be listened at, or a token that does not fit a link and a cookie.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, session: Session, host: str = "127.0.0.1", port: int = 8000, token: str | None = None) -> None:
        if token is not None and not _TOKEN.fullmatch(token):
            raise ConfigError("the token needs 8 or more letters, digits, - and _")
        self.session, self.token = session, token
        self.cookie = f"study-{session.study.digest[:16]}"  # studies of one host have no cookie in common
        self.page = _PAGE.read_text(encoding="utf-8").replace("{{study}}", session.study.digest[:16])
        self.page = self.page.replace("{{title}}", html.escape(session.study.title))
        try:
            super().__init__((host, port), _Handler)
        except (OSError, OverflowError) as error:
            raise ConfigError(f"can't serve at {host}:{port} ({error}): choose another --host or --port") from None

    @property
    def url(self) -> str:
        """The link for participants."""
        host, port = self.server_address[:2]
        shown = host.decode() if isinstance(host, bytes) else host
        return f"http://{shown}:{port}/" + (f"?token={self.token}" if self.token else "")

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say what went wrong, without the participant's address."""
        error = sys.exc_info()[1]
        if not isinstance(error, (ConnectionError, TimeoutError)):  # a browser that went away is no error
            print(f"error while serving: {type(error).__name__}: {error}", file=sys.stderr, flush=True)


class _Handler(BaseHTTPRequestHandler):
    server: StudyServer
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "study", ""
    timeout = 60  # seconds without a byte from the other side

    def do_GET(self) -> None:
        path = urllib.parse.urlsplit(self.path).path
        if not self._admitted():
            self._refuse(HTTPStatus.FORBIDDEN, "open the link that you were given")
        elif path == "/":
            self._send_page()
        elif (file := self.server.session.study.video(path.removeprefix("/videos/"))) is not None and path.startswith("/videos/"):
            self._send_video(file)
        else:
            self._refuse(HTTPStatus.NOT_FOUND, "nothing here")

    do_HEAD = do_GET

    def do_POST(self) -> None:
        calls = {"/api/start": self._start, "/api/answer": self._answer}
        call = calls.get(urllib.parse.urlsplit(self.path).path)
        given = self._body()
        if given is None:
            return
        if not self._admitted():
            self._refuse(HTTPStatus.FORBIDDEN, "open the link that you were given")
        elif call is None:
            self._refuse(HTTPStatus.NOT_FOUND, "nothing here")
        else:
            try:
                self._send_json(call(given))
            except Refused as error:
                self._refuse(HTTPStatus.CONFLICT, str(error))
            except OSError as error:  # a full disk
                print(f"error: an answer could not be stored: {error}", file=sys.stderr, flush=True)
                self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "the answer could not be stored")

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: an access log would hold the participants' addresses."""

    def _start(self, given: dict[str, Any]) -> dict[str, Any]:
        participant = given.get("participant") or self.server.session.new_participant()
        return {"participant": participant, **self._state(participant)}

    def _answer(self, given: dict[str, Any]) -> dict[str, Any]:
        participant = given.get("participant", "")
        self.server.session.record(participant, given)
        return self._state(participant)

    def _state(self, participant: str) -> dict[str, Any]:
        done, total = self.server.session.progress(participant)
        return {"done": done, "total": total, "next": _shown(self.server.session.next_trial(participant))}

    def _admitted(self) -> bool:
        token, name = self.server.token, self.server.cookie
        if token is None:
            return True
        query = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)
        cookies: http.cookies.SimpleCookie = http.cookies.SimpleCookie()
        try:
            cookies.load(self.headers.get("Cookie", ""))
        except http.cookies.CookieError:
            cookies.clear()
        offered = [*query.get("token", []), *([cookies[name].value] if name in cookies else [])]
        return any(secrets.compare_digest(text.encode(), token.encode()) for text in offered)

    def _body(self) -> dict[str, Any] | None:
        """The JSON object that was sent; None when it was refused. A form of another site can't send this type."""
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal():
            self._refuse(HTTPStatus.LENGTH_REQUIRED, "no length given", close=True)
        elif int(length) > _LARGEST_BODY:
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too long", close=True)
        elif self.headers.get_content_type() != "application/json":
            self._refuse(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "send application/json", close=True)
        else:
            try:
                given = json.loads(self.rfile.read(int(length)))
            except (ValueError, RecursionError):
                given = None
            if isinstance(given, dict):
                return given
            self._refuse(HTTPStatus.BAD_REQUEST, "send a JSON object")
        return None

    def _send_page(self) -> None:
        nonce = secrets.token_urlsafe(16)
        policy = (
            f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; media-src 'self'; connect-src 'self'; "
            "img-src data:; "
            "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )
        headers = {"Content-Security-Policy": policy, "Cache-Control": "no-store"}
        if self.server.token is not None:
            headers["Set-Cookie"] = f"{self.server.cookie}={self.server.token}; HttpOnly; SameSite=Strict; Path=/"
        self._send(HTTPStatus.OK, self.server.page.replace("{{nonce}}", nonce).encode(), "text/html; charset=utf-8", headers)

    def _send_json(self, content: dict[str, Any], status: HTTPStatus = HTTPStatus.OK, **headers: str) -> None:
        body = json.dumps(content, ensure_ascii=False).encode()
        self._send(status, body, "application/json", {"Cache-Control": "no-store", **headers})

    def _refuse(self, status: HTTPStatus, message: str, close: bool = False) -> None:
        """An error as JSON; ``close`` where the rest of the request was not read."""
        self.close_connection = self.close_connection or close
        self._send_json({"error": message}, status, **({"Connection": "close"} if close else {}))

    def _send_video(self, file: Path) -> None:
        size = file.stat().st_size
        headers = {"Accept-Ranges": "bytes", "Cache-Control": "private, max-age=86400"}
        asked = _RANGE.fullmatch(self.headers.get("Range", ""))
        start, end = 0, size - 1
        if asked and asked.group(0) != "bytes=-":
            first, last = asked.groups()
            start = int(first) if first else max(0, size - int(last))
            end = min(int(last), size - 1) if first and last else size - 1
            if start > end:
                self._send(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, b"", "video/mp4", {"Content-Range": f"bytes */{size}"})
                return
            headers["Content-Range"] = f"bytes {start}-{end}/{size}"
        self._head(
            HTTPStatus.PARTIAL_CONTENT if "Content-Range" in headers else HTTPStatus.OK, end - start + 1, "video/mp4", headers
        )
        if self.command == "HEAD":
            return
        with file.open("rb") as stream:
            stream.seek(start)
            left = end - start + 1
            while left and (chunk := stream.read(min(_CHUNK, left))):
                try:
                    self.wfile.write(chunk)
                except OSError:  # players close a connection when they have enough
                    self.close_connection = True
                    return
                left -= len(chunk)

    def _send(self, status: HTTPStatus, body: bytes, kind: str, headers: dict[str, str]) -> None:
        self._head(status, len(body), kind, headers)
        if self.command != "HEAD":
            self.wfile.write(body)

    def _head(self, status: HTTPStatus, length: int, kind: str, headers: dict[str, str]) -> None:
        self.send_response(status)
        always = {"Content-Type": kind, "Content-Length": str(length)}
        always |= {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}
        for name, value in {**always, **headers}.items():
            self.send_header(name, value)
        self.end_headers()


def _shown(trial: Trial | None) -> dict[str, Any] | None:
    """A trial for the page: videos by address, nothing about their columns."""
    if trial is None:
        return None
    return {**asdict(trial), "left": f"videos/{trial.left}", "right": f"videos/{trial.right}"}
