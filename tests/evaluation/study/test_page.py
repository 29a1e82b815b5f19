"""The page in a real browser: consent, videos in step, keys, answers, resuming. Skipped where no Chromium is installed."""

from __future__ import annotations

import threading

import browser
import pytest

from phys_pipeline.evaluation.study.server import StudyServer
from phys_pipeline.evaluation.study.session import read_answers

pytestmark = pytest.mark.skipif(browser.EXECUTABLE is None, reason="no Chromium is installed")

SEEN = "seen && !document.querySelector('fieldset').disabled"


@pytest.fixture
def server(session):
    made = StudyServer(session, port=0, token="correct-horse")
    threading.Thread(target=made.serve_forever, args=(0.05,), daemon=True).start()
    yield made
    made.shutdown()
    made.server_close()


@pytest.mark.slow
def test_a_participant_with_a_keyboard(server, session, tmp_path):
    profile = tmp_path / "profile"
    with browser.Page(profile) as page:
        page.open(server.url)
        assert page.evaluate("document.getElementById('begin').disabled")
        assert page.evaluate("document.getElementById('trial').hidden")
        page.evaluate("document.getElementById('agree').click()")
        page.evaluate("document.getElementById('begin').click()")
        page.wait("!document.getElementById('trial').hidden")
        first = session.study.plan(page.evaluate("participant"))[0]
        assert page.evaluate("document.getElementById('text').textContent") == first.text
        page.press("1")
        assert page.evaluate("new FormData(form).get('overall')") is None  # not before both have played
        page.wait(SEEN)
        page.wait("plays >= 3")
        assert page.evaluate("Math.abs(left.currentTime - right.currentTime)") < 0.15
        page.press(" ")
        page.press("1")
        page.press("2")
        page.press("Backspace")
        assert page.evaluate("new FormData(form).get('overall')") is None
        page.press("2")
        assert page.evaluate("document.getElementById('send').disabled")
        page.press("1")
        page.press("Enter")
        page.wait("document.getElementById('count').textContent.startsWith('1 of 6')")
        (answer,) = read_answers(session.path)
        assert (answer.trial, answer.left, answer.overall, answer.motion) == (first.trial, first.left, "right", "left")
        assert answer.replays == 1 and answer.plays >= 4 and 1 < answer.seconds < 60
        page.evaluate("window.fetch = () => Promise.reject(new TypeError('Failed to fetch'))")
        page.wait(SEEN)
        for key in ("1", "1", "Enter"):
            page.press(key)
        page.wait("document.getElementById('error').textContent.startsWith(\"The server can't be reached: your answer\")")
        page.open(server.url)  # the same browser goes on where it was
        page.wait("document.getElementById('count').textContent.startsWith('1 of 6')")
        for done in range(2, 7):
            page.wait(SEEN)
            page.press("1")
            page.press("1")
            page.press("Enter")
            page.wait(f"{'trial === null' if done == 6 else f'trial.position === {done}'}")
        page.wait("!document.getElementById('end').hidden")
        assert page.console == []
    assert [answer.position for answer in read_answers(session.path)] == list(range(6))


@pytest.mark.slow
def test_prompts_are_shown_as_text_and_narrow_windows_do_not_scroll_sideways(server, session, tmp_path):
    with browser.Page(tmp_path / "profile", width=380, height=800) as page:
        page.open(server.url)
        page.evaluate("left.preload = right.preload = 'none'")  # as telephones do that save data
        page.evaluate("document.getElementById('agree').click()")
        page.evaluate("document.getElementById('begin').click()")
        page.wait("!document.getElementById('trial').hidden")
        page.evaluate("document.getElementById('replay').click()")
        page.wait(SEEN)
        assert page.evaluate("replays") == 0
        assert page.evaluate("document.getElementById('text').children.length") == 0
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert page.evaluate("left.getBoundingClientRect().bottom <= right.getBoundingClientRect().top + 60")
        page.screenshot(tmp_path / "narrow.png")
        assert page.console == []
