"""Columns, their roles, and what each is measured against."""

from __future__ import annotations

import pytest

from phys_pipeline.errors import ConfigError
from phys_pipeline.evaluation.report.columns import Column, baseline_of, control_column


def test_a_column_without_key_or_with_an_unknown_role_is_an_error():
    with pytest.raises(ConfigError, match="key"):
        Column("")
    with pytest.raises(ConfigError, match=r"unknown role 'best'; use one of baseline, base_loss"):
        Column("a", role="best")


def test_labels_default_to_keys():
    assert Column("a").to_dict()["label"] == "a" and Column("a", "A").to_dict()["label"] == "A"
    assert control_column("control:half_speed").label == "half speed"


def test_each_column_has_the_baseline_of_its_base():
    columns = [
        Column("ours-x", role="ours", base="x"), Column("base-x", role="baseline", base="x"),
        Column("base-y", role="baseline", base="y"), Column("ours-y", role="ours", base="y"), control_column("control:frozen"),
    ]  # fmt: skip
    against = {column.key: (found := baseline_of(column, columns)) and found.key for column in columns}
    assert against == {
        "ours-x": "base-x", "base-x": None, "base-y": None, "ours-y": "base-y", "control:frozen": "base-x",
    }  # fmt: skip


def test_without_a_baseline_the_first_column_is_it():
    columns = [control_column("control:frozen"), Column("a"), Column("b")]
    assert [(found := baseline_of(column, columns)) and found.key for column in columns] == ["a", None, "a"]
