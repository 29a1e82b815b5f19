"""The process that talks to the Hub: it is ended at its deadline, told from a dead one, and gives its errors back."""

import os
import threading
import time

import pytest
from hub_server import Fault

from phys_pipeline.errors import HubError
from phys_pipeline.hub import Hub


def test_answers_errors_and_deadlines(here):
    with Hub() as hub:
        assert hub.call("whoami") == {"name": "owner", "organisations": ["lab"]}
        with pytest.raises(HubError, match="check the name") as caught:
            hub.call("info", repo_id="owner/none")
        assert caught.value.kind == "missing"
        process = hub._worker._process
        here.inject(Fault("whoami", delay=60, times=9))
        started = time.monotonic()
        with pytest.raises(HubError, match="did not finish `whoami` of it within 1 seconds") as caught:
            hub.call("whoami", seconds=1, attempts=1)
        assert caught.value.kind == "timeout" and time.monotonic() - started < 20
        assert process.poll() is not None  # ended, not left alone
        here.calm()
        hub.leave_xet()
        assert hub.call("whoami")["name"] == "owner"  # in a new one
        last = hub._worker._process
        os.kill(last.pid, 9)
        last.wait()
        assert hub.call("whoami")["name"] == "owner"  # died: one more try
        last = hub._worker._process
    assert last.poll() is not None


def test_cancelled_by_another_thread(here):
    """The process is ended at once, and nothing is tried again."""
    here.inject(Fault("whoami", delay=60, times=9))
    with Hub() as hub:
        threading.Thread(target=lambda: (_until(lambda: here.log), hub.cancel()), daemon=True).start()
        started = time.monotonic()
        with pytest.raises(HubError, match="was cancelled") as caught:
            hub.call("whoami")
        assert caught.value.kind == "cancelled" and time.monotonic() - started < 50 and len(here.log) == 1
        with pytest.raises(HubError, match="was cancelled"):
            hub.call("whoami")
        assert hub._worker._process is None


def _until(true):
    while not true():
        time.sleep(0.02)


def test_what_passes_is_tried_again_and_the_rest_is_not(client, here):
    here.inject(Fault("whoami", status=503, times=2))
    assert client.call("whoami")["name"] == "owner" and len(client.waits) == 2
    here.inject(Fault("whoami", status=429, headers={"Retry-After": "300"}, times=9))
    with pytest.raises(HubError, match="wait 301 seconds"):
        client.call("whoami")
    assert len(client.waits) == 2  # too long to wait for the user
    here.calm()
    here.inject(Fault("whoami", status=503, times=9))
    with pytest.raises(HubError, match="answers 503"):
        client.call("whoami")
    assert max(client.waits) <= 30
