"""The page: one file, every text a text, the red block first, data that its script can read."""

from __future__ import annotations

import html
import json
import re
from contextlib import contextmanager
from html.parser import HTMLParser

import browser
import numpy as np
import pytest
from evaluation_report import HOSTILE, LABEL, hostile_report, hostile_rows

from phys_pipeline.evaluation.guards import RED_LINE
from phys_pipeline.evaluation.report.document import document
from phys_pipeline.evaluation.report.html import html_text
from phys_pipeline.evaluation.report.videos import sources
from phys_pipeline.media import write_video

_VOID = {"meta", "input", "img", "br", "line", "circle"}


class Reader(HTMLParser):
    """Collects elements, texts and problems of nesting."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag, attributes):
        self.seen.append((tag, dict(attributes)))
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.seen.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-1:]}"
        self.open.pop()

    def handle_data(self, data):
        self.texts.append(data)


def page(clips=None) -> str:
    report = hostile_report()
    return html_text(report, document(report), clips or {})


def data_of(text: str) -> dict:
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    return json.loads(found)


def test_the_page_is_one_file_and_well_nested():
    text = page({"ours": {("p000", 0): "data:video/mp4;base64,AAAA"}})
    reader = Reader(text)
    outside = [a for _, a in reader.seen if (a.get("src") or a.get("href") or "").strip()]
    assert not outside and "@import" not in text and "url(" not in text
    assert [tag for tag, _ in reader.seen].count("script") == 2


def test_hostile_texts_are_texts():
    text = page()
    reader = Reader(text)
    assert not [a for _, attributes in reader.seen for a in attributes if a.startswith("on")]
    assert "img" not in [tag for tag, _ in reader.seen] and "b" not in [tag for tag, _ in reader.seen]
    assert any(LABEL in part for part in reader.texts)
    assert text.count("</script>") == 2
    assert [clip["prompt"] for clip in data_of(text)["clips"]] == list(HOSTILE)


def test_the_red_block_is_above_every_value():
    text = page()
    assert '<section class="alert" role="alert">' in text
    assert text.index(RED_LINE) < text.index("At a glance") < text.index("<h2>Values</h2>")


def test_numbers_are_those_of_the_report():
    report, text = hostile_report(), page()
    table = text[text.index("<caption>Means</caption>") :]
    table = table[: table.index("</table>")]
    for info in report["metrics"].values():
        (row,) = [row for row in table.split("<tr") if f">{html.escape(info['label'])}" in row]
        for column, cell in zip(("baseline", "ours"), row.split("<td>")[1:3], strict=True):
            numbers = [float(n) for n in re.findall(r"-?\d+\.\d+", cell)]
            value = report["values"][column][info["key"]]
            assert numbers == pytest.approx([value["mean"], *value["ci"]], abs=0.51 * 10 ** -info["decimals"])


def test_data_has_every_used_value_at_its_clips_place():
    report, data = hostile_report(), data_of(page())
    places = [(clip["id"], clip["seed"]) for clip in data["clips"]]
    for column, metrics in report["per_video"].items():
        for metric, rows in metrics.items():
            used = {(row["id"], row["seed"]): row["value"] for row in rows if row["used"]}
            assert data["values"][column][metric] == [used.get(place) for place in places]


def test_without_videos_there_is_no_viewer():
    assert 'id="viewer"' not in page()
    assert 'id="viewer"' in page({"ours": {("p000", 0): "a.mp4"}})


@pytest.fixture
def opened(tmp_path):
    """Opens the page with clips of two prompts in a browser of a given width."""
    videos = {}
    for column in ("baseline", "ours"):
        for clip in ("p001", "p002"):
            file = videos[f"{column}/{clip}#0"] = tmp_path / f"{column}-{clip}.mp4"
            write_video(file, np.random.default_rng(0).integers(0, 255, (16, 32, 32, 3), np.uint8), 16.0)
    file = tmp_path / "page.html"
    file.write_text(page(sources(hostile_rows(), videos, tmp_path)), encoding="utf-8")

    @contextmanager
    def open_page(width: int):
        with browser.Page(tmp_path / f"profile{width}", width) as window:
            window.open(file.as_uri())
            yield window
            assert window.console == []

    return open_page


@pytest.mark.skipif(browser.EXECUTABLE is None, reason="no Chromium is installed")
@pytest.mark.slow
def test_in_a_browser_clips_play_in_step_and_the_table_sorts(opened):
    with opened(1200) as window:
        times = "[...document.querySelectorAll('video')].map((video) => video.currentTime)"
        assert window.wait("document.querySelectorAll('video').length") == 2
        window.wait("document.querySelector('video').currentTime > 0.3")
        first, second = window.evaluate(times)
        assert abs(first - second) < 0.15
        window.press(" ")
        assert window.evaluate("[...document.querySelectorAll('video')].every((video) => video.paused)")
        window.evaluate("byId('time').value = 500, byId('time').oninput({target: byId('time')})")
        window.wait("[...document.querySelectorAll('video')].every((video) => Math.abs(video.currentTime - 0.5) < 0.07)")
        window.evaluate("byId('next').click()")
        assert window.evaluate("byId('prompt').textContent") == HOSTILE[2]
        window.evaluate("byId('metric').value = 'flow_score', byId('metric').onchange()")
        window.evaluate("document.querySelectorAll('#rows th')[3].click()")
        cells = "[...document.querySelectorAll('#rows tbody tr')].map((row) => row.cells[3].textContent)"
        values = [float(text) for text in window.evaluate(cells)]
        assert len(values) == len(HOSTILE) and values == sorted(values)
        window.evaluate("document.querySelectorAll('#rows th')[3].click()")
        assert [float(text) for text in window.evaluate(cells)] == sorted(values, reverse=True)
        window.evaluate("[...document.querySelectorAll('#rows tbody tr')].find((row) => row.dataset.clip === '1').click()")
        assert window.evaluate("byId('prompt').textContent") == HOSTILE[1]


@pytest.mark.skipif(browser.EXECUTABLE is None, reason="no Chromium is installed")
@pytest.mark.slow
@pytest.mark.parametrize("width", [360, 1600])
def test_in_a_browser_nothing_is_wider_than_the_window(opened, width):
    with opened(width) as window:
        assert window.evaluate("document.documentElement.scrollWidth") <= width
        assert window.evaluate("document.querySelector('.alert').getBoundingClientRect().top") < 700
