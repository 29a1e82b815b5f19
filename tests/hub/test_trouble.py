"""Every error of the client becomes one line that says what to do, without a token."""

import errno
import json

import httpx2
import pytest
from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled
from huggingface_hub.utils import hf_raise_for_status

from phys_pipeline.hub.trouble import explain, without_tokens

TOKEN = "hf_abcdefghijklmnopqrstuvwxyz"


def answer(status, code=None, text="", **headers):
    if code:
        headers["X-Error-Code"] = code
    request = httpx2.Request("GET", "http://127.0.0.1/api/models/owner/name")
    response = httpx2.Response(status, headers={"X-Error-Message": text, **headers}, request=request)
    with pytest.raises(HfHubHTTPError) as caught:
        hf_raise_for_status(response)
    return caught.value


def wrapped(cause):
    error = LocalEntryNotFoundError("can't find the file")
    error.__cause__ = cause
    return error


def not_json():
    try:
        json.loads("<html>")
    except ValueError as error:
        return error


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (answer(401, text="Invalid credentials"), "login", "hf auth login"),
        (answer(401, "RepoNotFound"), "missing", "check the name"),
        (answer(404, "RepoNotFound"), "missing", "check the name"),
        (answer(403, "GatedRepo"), "gated", "ask for access"),
        (answer(404, "RevisionNotFound"), "revision", "no revision v9"),
        (answer(403, text=f"not with {TOKEN}"), "forbidden", "token that may write"),
        (answer(409), "conflict", "exists already"),
        (answer(412), "stale", "someone else"),
        (answer(429, RateLimit='"api";r=0;t=56'), "rate", "wait 57 seconds"),
        (answer(429, **{"Retry-After": "5"}), "rate", "wait 6 seconds"),
        (answer(429), "rate", "wait 60 seconds"),
        (answer(503), "server", "some minutes"),
        (wrapped(answer(504)), "server", "some minutes"),
        (answer(400, text="bad card"), "other", "bad card"),
        (httpx2.ConnectError("refused"), "network", "check network, proxy and HF_ENDPOINT"),
        (httpx2.ReadTimeout(""), "network", "check network"),
        (wrapped(httpx2.ReadError(f"{TOKEN}")), "network", "check network"),
        (ConnectionError("xet"), "network", "check network"),
        (OfflineModeIsEnabled("offline"), "offline", "unset it"),
        (OSError(errno.ENOSPC, "No space left"), "disk", "HF_HOME"),
        (not_json(), "server", "no JSON"),
        (ValueError("Invalid metadata in README.md.\n- \"license\" is wrong"), "other", "Invalid metadata"),
        (KeyError("x"), "other", "correct that"),
    ],
)  # fmt: skip
def test_one_line_that_says_what_to_do(error, kind, words):
    found = explain(error, "owner/name", "v9")
    assert found.kind == kind and words in str(found)
    assert "\n" not in str(found) and TOKEN not in str(found) and ("owner/name" in str(found) or kind in ("rate", "disk"))


def test_tokens_are_never_shown():
    assert without_tokens(f"Bearer {TOKEN}, api_org_abcdefghijk") == "Bearer hf_***, api_***"


@pytest.mark.parametrize(
    "token", ["hf_oauth_eyJhbGciOi.eyJzdWIiOi-x_Y.c2lnbmF0dXJl-_", "hf_jwt_eyJhbGci.eyJzdWIi.c2ln", TOKEN, "api_org_abcdefgh"]
)
def test_no_part_of_a_token_of_any_kind_is_left(token):
    text = without_tokens(f"refused: Bearer {token}, again")
    assert not any(part in text for part in token.split("_", 2)[-1].split(".")) and text.endswith(", again")
