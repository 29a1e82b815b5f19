"""Clips of two columns that differ in size, rate or length are found."""

from __future__ import annotations

import pytest
from evaluation_rows import row

from phys_pipeline.evaluation.report.mismatch import identical, mismatches


def lines(first: dict, second: dict, clips=("p0", "p0")):
    rows = [row("a", clips[0], "x", 1.0, **first), row("b", clips[1], "x", 1.0, **second)]
    return mismatches(rows, ["a", "b"])


@pytest.mark.parametrize("change", [{"width": 128}, {"height": 64}, {"frames": 17}, {"fps": 24.0}, {"fps": None}])
@pytest.mark.parametrize("clips", [("p0", "p0"), ("p0", "p1")])
def test_every_difference_counts_for_the_same_prompt_and_for_others(change, clips):
    assert lines({}, {}, clips) == []
    (line,) = lines({}, change, clips)
    assert "a and b" in line and "64x48, 16 frames, 8 fps" in line
    assert ("unknown rate" in line) is (change == {"fps": None})


def test_rounding_of_a_rate_and_clips_that_nobody_decoded_do_not_count():
    assert lines({"fps": 23.976}, {"fps": 24000 / 1001}) == []
    assert lines({}, {"width": 0, "height": 0, "frames": 0, "fps": None}) == []


def test_columns_with_several_sizes_match_prompt_by_prompt():
    rows = [row(model, f"p{i}", "x", 1.0, width=64 * (1 + i)) for model in "ab" for i in range(2)]
    assert mismatches(rows, ["a", "b"]) == []
    rows[1] = row("a", "p1", "x", 1.0, width=64)
    assert mismatches(rows, ["a", "b"]) == [
        "a and b differ in 1 of 2 clips, for example p1: 64x48, 16 frames, 8 fps and 128x48, 16 frames, 8 fps"
    ]


def test_the_same_file_for_the_same_prompt_is_found():
    rows = [row("a", "p0", "x", 1.0, digest="1"), row("b", "p0", "x", 1.0, digest="1"), row("b", "p1", "x", 1.0, digest="1")]
    assert identical(rows, ["a", "b"]) == ["a and b show the same video for 1 prompts, for example p0"]
    assert identical(rows[:1] + rows[2:], ["a", "b"]) == [] and identical(rows, ["a"]) == []
    unknown = [row("a", "p0", "x", 1.0, digest=""), row("b", "p0", "x", 1.0, digest="")]
    assert identical(unknown, ["a", "b"]) == []
