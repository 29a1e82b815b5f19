"""What went wrong with the Hub, in one line that says what to do. No line ever shows a token."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from typing import Any

from phys_pipeline.errors import HubError, first_line

TRANSIENT = ("rate", "server", "network", "timeout")  # worth another try
_TOKEN = re.compile(r"\b(hf|api)_[\w-]{6,}(?:\.[\w-]+)*")  # OAuth's have three parts with dots between
_NETWORK = ("ConnectError", "ConnectTimeout", "ReadTimeout", "WriteTimeout", "PoolTimeout", "ReadError", "WriteError",
            "RemoteProtocolError", "LocalProtocolError", "ProxyError", "ConnectionError", "ConnectionResetError",
            "ConnectionRefusedError", "NetworkError", "TimeoutException", "IncompleteRead", "XetDownloadError")  # fmt: skip


def without_tokens(text: str) -> str:
    """``text`` with everything that looks like an access token made unreadable."""
    return _TOKEN.sub(r"\1_***", text)


def explain(error: BaseException, repo_id: str, revision: str | None = None) -> HubError:
    """An error of huggingface_hub, its HTTP library or hf_xet as ours. They share no base class, and the error that says most
    is often the cause of the one that arrives."""
    chain = list(_chain(error))
    response = next((found for e in chain if (found := getattr(e, "response", None)) is not None), None)
    names = {base.__name__ for e in chain for base in type(e).__mro__}
    if "OfflineModeIsEnabled" in names:
        return HubError(f"{repo_id} is not in the cache and HF_HUB_OFFLINE=1 forbids to ask the Hub: unset it once", "offline")
    if any(isinstance(e, OSError) and e.errno in (errno.ENOSPC, errno.EDQUOT) for e in chain):
        return HubError(f"the disk is full: make room for {repo_id}, or set HF_HOME to a folder on another disk", "disk")
    if response is not None:
        return _by_status(response, names, repo_id, revision)
    if "LocalTokenNotFoundError" in names:
        return _not_logged_in(repo_id)
    if names & set(_NETWORK):
        cause = next((e for e in reversed(chain) if type(e).__name__ in _NETWORK), error)
        reason = without_tokens(first_line(cause)).rstrip(".: ")
        return HubError(f"no connection to the Hub for {repo_id} ({reason}): check network, proxy and HF_ENDPOINT, then run the "
                        "same command again", "network")  # fmt: skip
    if "EntryNotFoundError" in names:
        return HubError(f"the files of {repo_id} can't be had from the Hub or the cache ({without_tokens(first_line(error))}): "
                        "run the same command again", "network")  # fmt: skip
    if "JSONDecodeError" in names:
        return HubError(f"the Hub's answer about {repo_id} is no JSON: it may be down, try again in some minutes", "server")
    reason = without_tokens(first_line(error)).rstrip(".: ")
    return HubError(f"the Hub refused {repo_id} ({reason}): correct that and run the same command again", "other")


def _by_status(response: Any, names: set[str], repo_id: str, revision: str | None) -> HubError:
    status, said = response.status_code, without_tokens(_said(response))
    page = f"https://huggingface.co/{repo_id}"
    if "GatedRepoError" in names:
        return HubError(f"{repo_id} is gated: ask for access on {page}, then run `hf auth login` (a fine-grained token needs "
                        "read access to gated repositories)", "gated")  # fmt: skip
    if "RevisionNotFoundError" in names:
        return HubError(f"{repo_id} has no revision {revision}: {page}/tree/main lists branches and tags", "revision")
    if "RemoteEntryNotFoundError" in names:
        return HubError(f"a file is missing in {repo_id} at {revision}: {page}/tree/{revision} lists the files", "entry")
    if "RepositoryNotFoundError" in names:
        return HubError(f"there is no repository {repo_id} that you may see: check the name, and for a private one run "
                        "`hf auth login`", "missing")  # fmt: skip
    if status == 401:
        return _not_logged_in(repo_id)
    if status == 403:
        return HubError(f"the Hub forbids it for {repo_id} ({said}): use a token that may write there, made at "
                        "https://huggingface.co/settings/tokens, with `hf auth login`", "forbidden")  # fmt: skip
    if status == 404:
        return HubError(f"{repo_id} was not found ({said}): check the name", "missing")
    if status == 409:
        return HubError(f"{repo_id}: it exists already ({said})", "conflict")
    if status == 412:
        return HubError(f"{repo_id} was changed by someone else at the same time: run the same command again", "stale")
    if status == 429:
        wait = _wait(response)
        return HubError(f"the Hub limits how often it may be asked: wait {wait:.0f} seconds, then run the same command again",
                        "rate", wait)  # fmt: skip
    if status >= 500:
        return HubError(f"the Hub answers {status} for {repo_id}: it has trouble, run the same command again in some minutes",
                        "server")  # fmt: skip
    return HubError(f"the Hub refused {repo_id} with {status} ({said}): correct that and run the same command again", "other")


def _not_logged_in(repo_id: str) -> HubError:
    return HubError(f"the Hub wants a valid token for {repo_id}: run `hf auth login`, or set HF_TOKEN", "login")


def _wait(response: Any) -> float:
    """Seconds that a 429 asks to wait; a minute if it doesn't say."""
    limited = re.search(r"\bt=(\d+)", response.headers.get("RateLimit", ""))
    given = limited[1] if limited else response.headers.get("Retry-After", "")
    return float(given) + 1 if re.fullmatch(r"\d{1,6}", given) else 60.0


def _said(response: Any) -> str:
    """The server's own words, one short line."""
    said = response.headers.get("X-Error-Message")
    if not said:
        try:
            content = response.json()
            said = content.get("error") if isinstance(content, dict) else None
        except Exception:  # not JSON, or the body was never read
            said = None
    return str(said or f"status {response.status_code}").strip().splitlines()[0][:200].rstrip(".")


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
