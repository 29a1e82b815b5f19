"""The long format has every row once, reads back to the same numbers, and nothing in it is a formula."""

from __future__ import annotations

import csv
import io

import pytest
from evaluation_report import HOSTILE, hostile_report, hostile_rows

from phys_pipeline.evaluation.report.csv import FIELDS, csv_text, plain


def read() -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(csv_text(hostile_report()))))


def test_every_row_is_there_with_the_same_number():
    rows, lines = hostile_rows(), read()
    assert tuple(lines[0]) == FIELDS and len(lines) == len(rows)
    found = {(line["column"], line["video_id"], int(line["seed"]), line["metric"]): line for line in lines}
    for row in rows:
        line = found[row.model, row.id, row.seed, row.metric]
        assert (float(line["value"]) if line["value"] else None) == row.value
        assert line["status"] == row.status and line["used"] == ("yes" if row.value is not None else "no")
        assert line["stratum"] == row.labels.get("stratum", "simple" if row.id != "p000" else "complex")


def test_no_text_is_a_formula_and_prompts_stay_readable():
    for line in read():
        for field in ("column", "metric", "prompt", "reason", "video_id", "backend"):
            assert line[field][:1] not in ("=", "+", "-", "@", "\t", "\r")
    prompts = {line["prompt"] for line in read()}
    assert HOSTILE[6] in prompts and HOSTILE[7] in prompts and "'" + HOSTILE[0] in prompts


@pytest.mark.parametrize("text", ["=1", " =1", "+1", "-1", "@x", "\t=1", "\r1"])
def test_formulas_get_an_apostrophe(text):
    assert plain(text) == "'" + text


@pytest.mark.parametrize("text", ["", " ", "a=1", "1-2", "é"])
def test_other_text_stays(text):
    assert plain(text) == text
