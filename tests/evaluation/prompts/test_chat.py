"""The chat labeller against a real HTTP server on this machine: answers, cache, retries, and a key that leaks nowhere."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from phys_pipeline.errors import ConfigError, DataError
from phys_pipeline.evaluation.prompts.chat import KEY, MODEL, RUBRIC, URL, ChatLabeller
from phys_pipeline.evaluation.prompts.prompt_set import Prompt

SECRET = "sk-not-a-real-key"
PROMPT = Prompt("a", "A gear rotates clockwise.")
GOOD = '{"motion": "rotation", "direction": "clockwise", "amplitude": null, "confidence": 0.8, "words": ["rotates"]}'


class Endpoint:
    """Replies in order (the last one for ever): a status, headers and a body each; keeps what was asked."""

    def __init__(self) -> None:
        self.replies: list[tuple[int, dict[str, str], str]] = []
        self.requests: list[tuple[str, dict[str, str], Any]] = []
        self.delay = 0.0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.requests.append((self.path, dict(self.headers), json.loads(body)))
                status, headers, text = outer.replies.pop(0) if len(outer.replies) > 1 else outer.replies[0]
                time.sleep(outer.delay)
                with contextlib.suppress(OSError):  # the client may have gone
                    self.send_response(status)
                    for name, value in headers.items():
                        self.send_header(name, value)
                    self.send_header("Content-Length", str(len(text.encode())))
                    self.end_headers()
                    self.wfile.write(text.encode())

            do_GET = do_POST

            def log_message(self, *_: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"

    def answers(self, *texts: str) -> None:
        self.replies = [(200, {}, json.dumps({"choices": [{"message": {"content": text}}]})) for text in texts]


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    made = Endpoint()
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture
def make(endpoint: Endpoint, tmp_path: Path) -> Callable[..., ChatLabeller]:
    return lambda **settings: ChatLabeller(endpoint.url, "tester", SECRET, tmp_path / "cache", **{"pause": 0.01, **settings})


def test_one_request_with_rubric_prompt_and_temperature_0(endpoint, make):
    endpoint.answers(GOOD)
    label = make()(PROMPT)
    assert (label.motion, label.direction, label.labeller, label.confidence) == ("rotation", "clockwise", "chat:tester", 0.8)
    (path, headers, body), = endpoint.requests  # fmt: skip
    assert path == "/v1/chat/completions" and headers["Authorization"] == f"Bearer {SECRET}"
    assert body["temperature"] == 0 and body["model"] == "tester"
    assert RUBRIC in body["messages"][0]["content"] and PROMPT.text in body["messages"][1]["content"]


def test_answers_are_cached_per_prompt_and_model_without_the_key(endpoint, make, tmp_path):
    endpoint.answers(GOOD)
    assert make()(PROMPT) == make()(PROMPT) == make()(Prompt("other id", PROMPT.text))
    assert len(endpoint.requests) == 1
    files = [file for file in (tmp_path / "cache").rglob("*") if file.is_file()]
    assert len(files) == 1 and SECRET not in files[0].read_text()
    other = make()
    other.model = "another"
    other(PROMPT)
    make()(Prompt("b", "A ball."))
    assert len(endpoint.requests) == 3
    files[0].write_text("damaged")
    make()(PROMPT)
    assert len(endpoint.requests) == 4


@pytest.mark.parametrize(
    "text", [f"```json\n{GOOD}\n```", f"I think so: {GOOD}", GOOD.replace("rotation", "mixed"), GOOD.replace("0.8", '"0.8"')]
)
def test_answers_in_other_wrapping_are_read(text, endpoint, make):
    endpoint.answers(text)
    assert make()(PROMPT).motion in ("rotation", "mixed")


def test_passing_trouble_is_tried_again(endpoint, make):
    endpoint.answers("no idea", '{"motion": "sideways"}', GOOD)
    endpoint.replies[:0] = [(503, {}, "busy"), (429, {"Retry-After": "0"}, "slow down"), (200, {}, "not json"), (200, {}, "{}")]
    assert make(retries=6)(PROMPT).motion == "rotation"
    assert len(endpoint.requests) == 7


def test_tries_end(endpoint, make, tmp_path):
    endpoint.replies = [(500, {}, f"broken, your key was {SECRET}")]
    with pytest.raises(DataError, match="status 500") as caught:
        make(retries=2)(PROMPT)
    assert len(endpoint.requests) == 3 and SECRET not in str(caught.value)
    assert not list((tmp_path / "cache").rglob("*.json"))


def test_refusals_are_not_tried_again(endpoint, make):
    endpoint.replies = [(401, {}, "who are you?")]
    with pytest.raises(DataError, match="status 401: who are you"):
        make()(PROMPT)
    assert len(endpoint.requests) == 1


def test_a_slow_server_times_out(endpoint, make):
    endpoint.answers(GOOD)
    endpoint.delay = 1.0
    with pytest.raises(DataError, match="timed out"):
        make(retries=0, timeout=0.2)(PROMPT)


def test_a_redirect_does_not_carry_the_key_away(endpoint, make):
    endpoint.replies = [(302, {"Location": endpoint.url + "/elsewhere"}, "")]
    with pytest.raises(DataError, match="status 302"):
        make()(PROMPT)
    assert len(endpoint.requests) == 1


def test_an_absent_server_is_named_without_the_key(tmp_path):
    labeller = ChatLabeller("http://127.0.0.1:9/v1", "tester", SECRET, tmp_path, retries=0)
    with pytest.raises(DataError, match=r"127\.0\.0\.1:9") as caught:
        labeller(PROMPT)
    assert SECRET not in str(caught.value)


def test_the_environment_describes_the_endpoint(tmp_path):
    with pytest.raises(ConfigError, match=f"{URL} and {MODEL}"):
        ChatLabeller.from_environment(tmp_path, {})
    labeller = ChatLabeller.from_environment(tmp_path, {URL: "https://host/v1/", MODEL: "m", KEY: SECRET})
    assert labeller.url == "https://host/v1/chat/completions" and labeller.name == "chat:m"
    assert SECRET not in repr(labeller)


def test_a_key_is_not_sent_in_the_clear(tmp_path):
    with pytest.raises(ConfigError, match="no TLS") as caught:
        ChatLabeller("http://example.org/v1", "m", SECRET, tmp_path)
    assert SECRET not in str(caught.value)
    ChatLabeller("http://example.org/v1", "m", "", tmp_path)
    with pytest.raises(ConfigError, match="https"):
        ChatLabeller("ftp://example.org", "m", "", tmp_path)
