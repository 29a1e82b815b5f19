"""Labels by a language model behind an OpenAI-compatible endpoint (``POST BASE/chat/completions``).

Base address, model and key come from the environment alone: ``PHYS_PIPELINE_CHAT_URL``, ``PHYS_PIPELINE_CHAT_MODEL`` and, where
the endpoint needs one, ``PHYS_PIPELINE_CHAT_KEY``. The key is sent to that address and nowhere else: it is never stored or shown,
redirects are refused, and without TLS it goes to this machine only. Answers are cached, one file per prompt, rubric and model.
"""

from __future__ import annotations

import hashlib
import http.client
import ipaddress
import json
import os
import re
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from phys_pipeline.atomic import atomic_file
from phys_pipeline.errors import ConfigError, DataError
from phys_pipeline.evaluation.prompts.label import DIRECTIONS, Label
from phys_pipeline.evaluation.prompts.prompt_set import Prompt

URL, MODEL, KEY = "PHYS_PIPELINE_CHAT_URL", "PHYS_PIPELINE_CHAT_MODEL", "PHYS_PIPELINE_CHAT_KEY"
RUBRIC = resources.files(__package__).joinpath("rubric.md").read_text(encoding="utf-8")
RUBRIC_VERSION = hashlib.sha256(RUBRIC.encode()).hexdigest()[:12]

_ANSWER = (
    'Answer with one JSON object and nothing else: {"motion": ..., "direction": ... or null, "amplitude": ... or null, '
    '"confidence": a number from 0 to 1, "words": [the words of the prompt that decided]}.'
)
_LARGEST_REPLY = 1_000_000  # bytes
_LONGEST_WAIT = 60.0  # seconds between two tries, whatever the server asks for


class ChatLabeller:
    """Asks a chat model for labels, at temperature 0.

    Args:
        url: base address, for example "https://HOST/v1".
        model: name that the endpoint knows.
        key: bearer token; "" sends none.
        cache: folder of earlier answers.
        retries: further tries after a time-out, a lost connection, status 429 or 5xx, or an answer that is no label.
        timeout: seconds for one request.
        pause: seconds before the second try; doubles each time.
    """

    def __init__(
        self, url: str, model: str, key: str, cache: Path, *, retries: int = 4, timeout: float = 60.0, pause: float = 1.0
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"{URL} is {url!r}: use an address like https://HOST/v1")
        if key and parts.scheme == "http" and not _is_this_machine(parts.hostname):
            raise ConfigError(f"{URL} has no TLS, so {KEY} would travel in the clear: use https, or leave {KEY} out")
        self.url, self.model, self.cache = url.rstrip("/") + "/chat/completions", model, cache
        self.retries, self.timeout, self.pause = retries, timeout, pause
        self._key = key
        self._open = urllib.request.build_opener(_NoRedirect).open

    @classmethod
    def from_environment(cls, cache: Path, environment: Mapping[str, str] = os.environ) -> ChatLabeller:
        """The labeller that the environment describes. Raises ConfigError when the address or the model is not set."""
        missing = [name for name in (URL, MODEL) if not environment.get(name)]
        if missing:
            raise ConfigError(f"labels by a language model need {' and '.join(missing)} in the environment (and {KEY}, if asked)")
        return cls(environment[URL], environment[MODEL], environment.get(KEY, ""), cache)

    @property
    def name(self) -> str:
        return f"chat:{self.model}"

    def __call__(self, prompt: Prompt) -> Label:
        """The label of a prompt: cached, or asked for. Raises DataError when the endpoint gives none."""
        model = hashlib.sha256(self.model.encode()).hexdigest()[:12]
        file = self.cache / RUBRIC_VERSION / model / f"{prompt.sha}.json"
        if file.is_file():
            try:
                return self._label(json.loads(file.read_text(encoding="utf-8"))["answer"])
            except (json.JSONDecodeError, KeyError, TypeError, DataError):
                pass  # a damaged entry is asked for again
        answer = self._ask(prompt.text)
        label = self._label(answer)
        with atomic_file(file) as temporary:
            entry = {"prompt": prompt.text, "model": self.model, "rubric": RUBRIC_VERSION, "answer": answer}
            temporary.write_text(json.dumps(entry, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
        return label

    def _ask(self, text: str) -> str:
        body = {
            "model": self.model,
            "temperature": 0,
            "messages": [{"role": "system", "content": f"{RUBRIC}\n{_ANSWER}"}, {"role": "user", "content": f"Prompt: {text}"}],
        }
        trouble, wait = "", 0.0
        for attempt in range(self.retries + 1):
            time.sleep(wait)
            wait = self.pause * 2**attempt
            try:
                answer = _answer(self._post(json.dumps(body).encode()))
                self._label(answer)
                return answer
            except urllib.error.HTTPError as error:
                with error:
                    trouble = f"status {error.code}: {_excerpt(error, self._key)}"
                    wait = _asked_wait(error.headers.get("Retry-After"), wait)
                if error.code != 429 and error.code < 500:
                    break
            except (OSError, http.client.HTTPException) as error:  # URLError and time-outs are OSErrors
                trouble = str(getattr(error, "reason", error) or type(error).__name__)
            except DataError as error:
                trouble = str(error)
        raise DataError(f"{urlsplit(self.url).netloc.rpartition('@')[2]} gave no label for {text[:60]!r}: {trouble}")

    def _post(self, body: bytes) -> bytes:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        request = urllib.request.Request(self.url, data=body, headers=headers, method="POST")
        with self._open(request, timeout=self.timeout) as response:
            reply: bytes = response.read(_LARGEST_REPLY + 1)
        if len(reply) > _LARGEST_REPLY:
            raise DataError("the reply is longer than a megabyte")
        return reply

    def _label(self, answer: str) -> Label:
        """The label in a model's answer, which may stand in a code fence or behind some text."""
        found = re.search(r"\{.*\}", answer, re.DOTALL)
        try:
            fields: Any = json.loads(found.group()) if found else None
        except json.JSONDecodeError:
            fields = None
        if not isinstance(fields, dict):
            raise DataError(f"the answer is no JSON object: {answer[:80]!r}")
        motion, direction, words = fields.get("motion"), fields.get("direction"), fields.get("words")
        if isinstance(direction, str) and direction in DIRECTIONS and DIRECTIONS[direction][0] != motion:
            direction = None  # models like to name one for mixed motion, too
        return Label.from_dict(
            {
                "motion": motion,
                "direction": direction or None,
                "amplitude": fields.get("amplitude") or None,
                "confidence": fields.get("confidence", 0.5),
                "labeller": self.name,
                "matched": [str(word) for word in words] if isinstance(words, list) else [],
            }
        )


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the key to another address: it stays an HTTPError."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _answer(reply: bytes) -> str:
    try:
        content = json.loads(reply)["choices"][0]["message"]["content"]
    except (ValueError, KeyError, IndexError, TypeError):
        raise DataError(f"the reply has no choices[0].message.content: {reply[:80]!r}") from None
    if not isinstance(content, str):
        raise DataError("the answer is not text")
    return content


def _excerpt(error: urllib.error.HTTPError, key: str) -> str:
    """What the server says, on one line; should it repeat the key, the key is taken out."""
    text = " ".join(error.read(2000).decode("utf-8", "replace").split()) or str(error.reason)
    return (text.replace(key, "[key]") if key else text)[:200]


def _asked_wait(header: str | None, otherwise: float) -> float:
    try:
        return min(max(0.0, float(header or "")), _LONGEST_WAIT)
    except ValueError:
        return otherwise


def _is_this_machine(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
