"""Tables escape what is not ours, and show what is better and what is missing."""

from __future__ import annotations

from types import SimpleNamespace

from phys_pipeline.web.context import status_html
from phys_pipeline.web.engine.jobs import Progress
from phys_pipeline.web.tables import html_table, measured_table, warnings_html

BAD = "<img src=x onerror=alert(1)>"


def test_nothing_is_html_that_is_not_ours():
    for text in (html_table(BAD, ["", BAD], [[BAD, BAD]]), warnings_html([BAD]), status_html(Progress(BAD, 1, 2, 0.5))):
        assert "<img" not in text and "&lt;img" in text
    assert 'value="0.500"' in status_html(Progress("x", 1, 2, 0.5))


def test_metrics():
    info = {"direction": "down", "decimals": 2, "unit": "px", "label": "Jerk"}
    infos = {key: SimpleNamespace(**{**info, "label": key}) for key in ("jerk", "gone")}
    measured = {
        "metrics": {"jerk": {"values": [1.0, 2.0], "reason": ""}, "gone": {"values": [None, None], "reason": "too short"}},
        "warnings": ["B moves less"],
    }
    text = measured_table(measured, infos, ["A", BAD])
    assert "<td>1.00</td><td>2.00</td><td>lower is better</td><td>A</td>" in text
    assert "gone: too short" in text and "B moves less" in text and "<img" not in text
