"""Split files: written, read, overridden, compared; the shipped one is what the rules give today."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import pytest

from phys_pipeline.errors import DataError
from phys_pipeline.evaluation.prompts import Label, Prompt, PromptSet, label_by_rules, load_prompts
from phys_pipeline.evaluation.prompts.split import Split, author_label, compare, counts, make_split, read_overrides

SET = PromptSet(
    "small", (Prompt("a", "A ball rolls.", Label("mixed")), Prompt("b", "A cart moves left.", Label("translation", "left")))
)


def by_rules(prompt: Prompt) -> Label:
    return label_by_rules(prompt.text)


def test_a_split_survives_its_file(tmp_path):
    split = make_split(SET, by_rules, "rules")
    split.write(tmp_path / "split.json")
    assert Split.read(tmp_path / "split.json") == split


def test_overrides_win_and_must_name_prompts_of_the_set():
    split = make_split(SET, by_rules, "rules", {"a": {"motion": "translation", "direction": "right"}})
    changed = split.labels[SET.by_id["a"].sha]
    assert (changed.direction, changed.labeller, changed.confidence) == ("right", "override", 1.0)
    assert split.labels[SET.by_id["b"].sha].labeller == "rules"
    with pytest.raises(DataError, match="lacks: c"):
        make_split(SET, by_rules, "rules", {"c": {"motion": "other"}})


def test_comparison_names_what_differs():
    first = make_split(SET, author_label, "author")
    second = make_split(SET, author_label, "other", {"b": {"motion": "translation", "direction": "right"}})
    kappa, differ = compare(first, second, "direction")
    assert differ == [("b", "left", "right")] and kappa.agreement == 0.5
    assert compare(first, second, "motion")[1] == []
    stranger = make_split(PromptSet("x", (Prompt("a", "Rain."),)), by_rules, "rules")
    with pytest.raises(DataError, match="in common"):
        compare(first, stranger, "motion")


def test_counts_are_ordered_and_complete():
    labels = [Label("rotation"), Label("rotation", "clockwise"), Label("mixed")]
    assert counts(labels, "motion") == {"rotation": 2, "mixed": 1}
    assert counts(labels, "direction") == {"none": 2, "clockwise": 1}


def test_prompts_without_labels_need_another_labeller():
    with pytest.raises(DataError, match="another labeller"):
        author_label(Prompt("a", "Rain."))


def test_the_shipped_split_is_what_the_rules_say():
    shipped = resources.files("phys_pipeline.evaluation.prompts").joinpath("splits", "motion_rules.json")
    assert Split.read(Path(str(shipped))) == make_split(load_prompts(), by_rules, "rules")


@pytest.mark.parametrize("content", ["x", "{}", '{"schema": "phys-pipeline/split", "version": 1, "labels": [{}]}'])
def test_other_files_are_refused(content, tmp_path):
    file = tmp_path / "file.json"
    file.write_text(content)
    with pytest.raises(DataError):
        Split.read(file)
    file.write_text('{"a": 1}')
    with pytest.raises(DataError, match="look like"):
        read_overrides(file)
