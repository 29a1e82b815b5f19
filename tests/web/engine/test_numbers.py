"""What comes from a page or an API call is never trusted."""

from __future__ import annotations

import math

import pytest

from phys_pipeline.errors import ConfigError
from phys_pipeline.web.engine.numbers import number, text, whole


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, None, "3", True, [], 1e30, -1])
def test_numbers(value):
    for check in (number, whole):
        with pytest.raises(ConfigError, match="frames"):
            check(value, "frames", 0, 100)


def test_good_numbers():
    assert whole(3.0, "n", 0, 5) == 3 and isinstance(whole(3.0, "n", 0, 5), int) and number(2, "n", 0, 5) == 2.0
    with pytest.raises(ConfigError, match="whole number"):
        whole(2.5, "n", 0, 5)


@pytest.mark.parametrize("value", ["", "  \n", None, 4, "x" * 1001, "\x00\x1b"])
def test_texts(value):
    with pytest.raises(ConfigError, match="prompt"):
        text(value, "prompt")


def test_control_characters_become_spaces():
    assert text(" a red\nsquare\x00 moves <b>right</b> ", "prompt") == "a red square moves <b>right</b>"
