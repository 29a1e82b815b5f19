"""The study's server, over real connections: what it serves, what it refuses, and many participants at once."""

from __future__ import annotations

import errno
import http.client
import json
import re
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from phys_pipeline.errors import ConfigError
from phys_pipeline.evaluation.study.analyse import analyse
from phys_pipeline.evaluation.study.server import StudyServer
from phys_pipeline.evaluation.study.session import Session, read_answers

JSON = {"Content-Type": "application/json"}


@pytest.fixture
def serve(session: Session) -> Iterator[Callable[..., StudyServer]]:
    running: list[StudyServer] = []

    def start(token: str | None = None) -> StudyServer:
        server = StudyServer(session, port=0, token=token)
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        running.append(server)
        return server

    yield start
    for server in running:
        server.shutdown()
        server.server_close()


class Browser:
    """One connection that is kept open."""

    def __init__(self, server: StudyServer) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)

    def ask(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        self.connection.request(method, path, body, headers or {})
        reply = self.connection.getresponse()
        return reply.status, dict(reply.getheaders()), reply.read()

    def post(self, path: str, content: Any) -> tuple[int, Any]:
        status, _, body = self.ask("POST", path, json.dumps(content), JSON)
        return status, json.loads(body)


def test_a_participant_answers_everything_and_resumes(serve, built, session):
    server = serve()
    browser = Browser(server)
    status, state = browser.post("/api/start", {"participant": None})
    assert status == 200 and (state["done"], state["total"]) == (0, 6)
    who = state["participant"]
    while state["next"] is not None:
        if state["done"] == 3:  # the page is opened again
            state = Browser(server).post("/api/start", {"participant": who})[1]
            assert state["done"] == 3
        shown = state["next"]
        for side in ("left", "right"):
            status, headers, body = browser.ask("GET", "/" + shown[side])
            assert status == 200 and headers["Content-Type"] == "video/mp4" and body[4:8] == b"ftyp"
        left = built[1]["files"][shown["left"].removeprefix("videos/")]
        side = "left" if left.get("check", left["column"]) in ("original", "ours") else "right"
        answer = {
            "participant": who,
            "trial": shown["trial"],
            "overall": side,
            "motion": side,
            "seconds": 6,
            "plays": 2,
            "replays": 1,
        }
        status, state = browser.post("/api/answer", answer)
        assert status == 200
    found = analyse(session.study, built[1], read_answers(session.path))
    assert found["participants"] == {"all": 1, "kept": 1}
    assert [p["share"]["value"] for p in found["preferences"]] == [1.0, 1.0]


def test_nothing_served_names_a_column(serve, built):
    browser = Browser(serve())
    page = browser.ask("GET", "/")[2].decode()
    state = browser.ask("POST", "/api/start", "{}", JSON)[2].decode()
    headers = str(browser.ask("GET", "/" + json.loads(state)["next"]["left"])[1])
    secret = {str(value) for entry in built[1]["files"].values() for value in entry.values() if isinstance(value, str)} - {
        "check"
    }
    for text in (state, headers):
        assert not any(word in text for word in secret if not re.fullmatch(r"p\d", word))
        assert "kind" not in text and "columns" not in text and "Last-Modified" not in text
    assert "baseline" not in page and "https://" not in page and "http://" not in page


@pytest.mark.parametrize(
    "path",
    [
        "/study.json", "/answers.jsonl", "/videos/", "/videos/../study.json", "/videos/..%2fstudy.json", "/../study.key.json",
        "/videos//etc/passwd", "//etc/passwd", "/%2e%2e/study.key.json", "/videos/x.mp4", "/api/answer", "/page.html",
        "/videos/\\..\\x",
    ],
)  # fmt: skip
def test_every_other_address_is_404(path, serve):
    assert Browser(serve()).ask("GET", path)[0] == 404


def test_ranges(serve, session):
    browser = Browser(serve())
    name = sorted(session.study.files)[0]
    path, whole = f"/videos/{name}", session.study.video(name).read_bytes()
    size = len(whole)
    for asked, start, end in [
        ("bytes=0-99", 0, 100), ("bytes=100-", 100, size), ("bytes=-50", size - 50, size), (f"bytes=10-{size + 999}", 10, size),
        (f"bytes=-{size + 5}", 0, size),
    ]:  # fmt: skip
        status, headers, body = browser.ask("GET", path, headers={"Range": asked})
        assert status == 206 and body == whole[start:end]
        assert headers["Content-Range"] == f"bytes {start}-{end - 1}/{size}"
    for asked in (f"bytes={size}-", "bytes=9-3", "bytes=-0"):
        status, headers, _ = browser.ask("GET", path, headers={"Range": asked})
        assert status == 416 and headers["Content-Range"] == f"bytes */{size}"
    for asked in ("bytes=-", "bytes=0-1,5-6", "lines=1-2", ""):
        status, headers, body = browser.ask("GET", path, headers={"Range": asked})
        assert status == 200 and body == whole
    status, headers, body = browser.ask("HEAD", path)
    assert status == 200 and headers["Content-Length"] == str(size) and body == b"" and headers["Accept-Ranges"] == "bytes"


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"x" * 5000, JSON, 413),
        (b"{}", {"Content-Type": "text/plain"}, 415),
        (b"[]", JSON, 400),
        (b"{", JSON, 400),
        (b"[" * 4000, JSON, 400),
        (b"\xff\xfe", JSON, 400),
        (b'{"participant": "../../x"}', JSON, 409),
        (b'{"participant": {"a": 1}}', JSON, 409),
    ],
)
def test_bad_requests_are_refused_and_the_server_goes_on(body, headers, status, serve):
    server = serve()
    got, _, reply = Browser(server).ask("POST", "/api/start", body, headers)
    assert got == status and "error" in json.loads(reply)
    assert Browser(server).post("/api/start", {})[0] == 200


def test_a_request_without_length_is_refused(serve):
    server = serve()
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=5) as raw:
        raw.sendall(b"POST /api/start HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n\r\n")
        assert b" 411 " in raw.recv(4096)


def test_an_answer_twice_is_refused_once(serve):
    browser = Browser(serve())
    state = browser.post("/api/start", {})[1]
    answer = {"participant": state["participant"], "trial": state["next"]["trial"], "overall": "left", "motion": "left"}
    answer |= {"seconds": 3, "plays": 1, "replays": 0}
    assert browser.post("/api/answer", {**answer, "motion": "middle"})[0] == 409
    assert browser.post("/api/answer", answer)[0] == 200
    status, reply = browser.post("/api/answer", answer)
    assert status == 409 and "reload" in reply["error"]


def test_the_token_opens_everything_and_nothing_opens_without(serve, session):
    server = serve("correct-horse")
    browser = Browser(server)
    video = f"/videos/{sorted(session.study.files)[0]}"
    for path in ("/", video, "/?token=wrong", "/?token="):
        assert browser.ask("GET", path)[0] == 403
    assert browser.post("/api/start", {})[0] == 403
    assert server.url.endswith("/?token=correct-horse")
    status, headers, _ = browser.ask("GET", "/?token=correct-horse")
    assert status == 200 and "HttpOnly" in headers["Set-Cookie"] and "SameSite=Strict" in headers["Set-Cookie"]
    cookie = {"Cookie": headers["Set-Cookie"].split(";")[0]}
    assert session.study.digest[:16] in cookie["Cookie"]  # another study on this host has another cookie
    assert browser.ask("GET", video, headers=cookie)[0] == 200
    assert browser.ask("POST", "/api/start", "{}", {**JSON, **cookie})[0] == 200
    assert browser.ask("GET", video, headers={"Cookie": cookie["Cookie"].replace("=", "=in")})[0] == 403


def test_the_page_may_only_load_from_here(serve):
    status, headers, body = Browser(serve()).ask("GET", "/")
    page = body.decode()
    nonce = re.search(r"'nonce-([^']+)'", headers["Content-Security-Policy"])
    assert status == 200 and nonce and page.count(f'nonce="{nonce[1]}"') == 2 and "{{" not in page
    assert "default-src 'none'" in headers["Content-Security-Policy"] and "<title>Video study</title>" in page


def test_many_participants_at_once(serve, session):
    server = serve()
    failures: list[Any] = []

    def take_part() -> None:
        browser = Browser(server)
        state = browser.post("/api/start", {})[1]
        who = state["participant"]
        while state["next"] is not None:
            browser.ask("GET", "/" + state["next"]["left"], headers={"Range": "bytes=0-"})
            answer = {"participant": who, "trial": state["next"]["trial"], "overall": "left", "motion": "right"}
            status, state = browser.post("/api/answer", {**answer, "seconds": 2, "plays": 1, "replays": 0})
            if status != 200:
                failures.append(state)
                return

    threads = [threading.Thread(target=take_part) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    answers = read_answers(session.path)
    assert not failures and len(answers) == 20 * 6 and len({answer.participant for answer in answers}) == 20


def test_a_full_disk_is_told_and_the_answer_can_be_sent_again(serve, session, monkeypatch, capsys):
    browser = Browser(serve())
    state = browser.post("/api/start", {})[1]
    answer = {"participant": state["participant"], "trial": state["next"]["trial"], "overall": "left", "motion": "left"}
    answer |= {"seconds": 3, "plays": 1, "replays": 0}

    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("phys_pipeline.evaluation.study.session.os.write", full)
        status, reply = browser.post("/api/answer", answer)
    assert status == 503 and "could not be stored" in reply["error"] and "No space" in capsys.readouterr().err
    assert browser.post("/api/answer", answer)[0] == 200 and len(read_answers(session.path)) == 1


def test_errors_do_not_show_addresses(serve, session, monkeypatch, capsys):
    server = serve()

    def broken(*_: Any) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(session.study, "video", broken)
    with pytest.raises((http.client.HTTPException, OSError)):
        Browser(server).ask("GET", "/videos/x.mp4")
    server.shutdown()
    server.server_close()
    shown = capsys.readouterr().err
    assert "RuntimeError: broken" in shown and "127.0.0.1" not in shown


def test_a_taken_port_is_named(serve, session):
    server = serve()
    with pytest.raises(ConfigError, match="another --host or --port"):
        StudyServer(session, port=server.server_port)
