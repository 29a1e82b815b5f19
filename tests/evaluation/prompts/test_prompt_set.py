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


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_what_the_export_writes_is_read_back_with_its_labels(suffix, tmp_path):
    from phys_pipeline.evaluation.prompts.command import export

    file = tmp_path / f"prompts{suffix}"
    assert export(["-o", str(file)]) == 0
    shipped, found = load_prompts(), load_prompts(file)
    assert [(p.id, p.text) for p in found] == [(p.id, p.text) for p in shipped]
    assert [p.label.sample_labels() for p in found if p.label] == [p.label.sample_labels() for p in shipped if p.label]


def test_a_table_needs_only_the_prompts(tmp_path):
    (tmp_path / "mine.csv").write_text('prompt\na red ball rolls left\n"a dog, a cat"\n', encoding="utf-8")
    assert [(p.id, p.text, p.label) for p in load_prompts(tmp_path / "mine.csv")] == [
        ("0000", "a red ball rolls left", None), ("0001", "a dog, a cat", None),
    ]  # fmt: skip
    (tmp_path / "mine.jsonl").write_text('{"caption": "a dog"}\n', encoding="utf-8")
    with pytest.raises(DataError, match="column prompt"):
        load_prompts(tmp_path / "mine.jsonl")
