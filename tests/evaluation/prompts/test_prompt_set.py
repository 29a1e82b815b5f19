"""The shipped set is what its page says; broken sets are refused."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from phys_pipeline.errors import DataError
from phys_pipeline.evaluation.prompts import Label, Prompt, PromptSet, load_prompts
from phys_pipeline.evaluation.prompts.label import DIRECTIONS


def test_the_shipped_set_is_labelled_and_balanced():
    prompts = load_prompts()
    assert len(prompts) >= 120 and all(p.label and p.mover and p.text[0].isupper() and p.text.endswith(".") for p in prompts)
    labels = [p.label for p in prompts if p.label]
    directions = Counter(label.direction for label in labels if label.direction)
    assert set(directions) == set(DIRECTIONS)
    for one, other in [
        ("left", "right"), ("up", "down"), ("clockwise", "counterclockwise"), ("zoom_in", "zoom_out"), ("pan_left", "pan_right"),
        ("tilt_up", "tilt_down"), ("roll_clockwise", "roll_counterclockwise"), ("camera_zoom_in", "camera_zoom_out"),
        ("dolly_in", "dolly_out"),
    ]:  # fmt: skip
        assert directions[one] == directions[other]
    amplitudes = Counter(label.amplitude for label in labels)
    assert amplitudes["large"] == amplitudes["slow"] >= 20
    motions = Counter(label.motion for label in labels)
    assert min(motions.values()) >= 16
    simple = sum(label.stratum == "simple" for label in labels)
    assert 0.3 < simple / len(labels) < 0.7


def test_digests_change_with_content_only():
    prompts = load_prompts()
    again = PromptSet("another name", tuple(prompts))
    assert again.sha == prompts.sha
    first = prompts.prompts[0]
    changed = PromptSet("", (Prompt(first.id, first.text, Label("rotation"), first.mover), *prompts.prompts[1:]))
    assert changed.sha != prompts.sha and changed.prompts[0].sha == first.sha
    assert Prompt("a", " A ball. ").sha == Prompt("b", "A ball.").sha != Prompt("c", "A bell.").sha


@pytest.mark.parametrize(
    ("prompts", "words"),
    [
        ((), "is empty"),
        ((Prompt("a", "x"), Prompt("a", "y")), "id 'a' more than once"),
        ((Prompt("a", "A ball."), Prompt("b", " a BALL. ")), "more than once"),
        ((Prompt("a", "  "),), "empty prompt"),
        ((Prompt("a", "x", Label("translation", "pan_left"), "object"),), "does not show"),
        ((Prompt("a", "x", None, "wind"),), "mover"),
    ],
)
def test_broken_sets_are_refused(prompts, words):
    with pytest.raises(DataError, match=words):
        PromptSet("broken", prompts)


def test_plain_text_is_numbered_as_evalcrafter_numbers(tmp_path):
    file = tmp_path / "prompts.txt"
    file.write_text("A ball.\n\nEine Kugel rollt über den Tisch.\n", encoding="utf-8")
    assert [(p.id, p.text, p.label) for p in load_prompts(file)] == [
        ("0000", "A ball.", None),
        ("0001", "Eine Kugel rollt über den Tisch.", None),
    ]


@pytest.mark.parametrize(
    "content",
    [
        "no json",
        "[]",
        '{"schema": "other", "prompts": []}',
        json.dumps({"schema": "phys-pipeline/prompts", "version": 2, "prompts": []}),
        json.dumps({"schema": "phys-pipeline/prompts", "version": 1, "prompts": [{"id": "a"}]}),
        json.dumps({"schema": "phys-pipeline/prompts", "version": 1, "prompts": [{"id": "a", "prompt": "x", "motion": "odd"}]}),
    ],
)
def test_broken_files_are_refused(content, tmp_path):
    file = tmp_path / "set.json"
    file.write_text(content)
    with pytest.raises(DataError):
        load_prompts(file)


def test_missing_and_foreign_files_are_refused(tmp_path):
    with pytest.raises(DataError, match="can't be read"):
        load_prompts(tmp_path / "missing.json")
    (tmp_path / "set.yaml").write_text("")
    with pytest.raises(DataError, match=r"\.json"):
        load_prompts(tmp_path / "set.yaml")
