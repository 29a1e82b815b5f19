import importlib.util
import sys

import pytest

from phys_pipeline.errors import ConfigError, DataError
from phys_pipeline.tables import read_table, typed, write_table

ROWS = [{"video": "a, b.mp4", "score": 0.5, "cut": True}, {"video": 'ü "c".mp4', "score": None, "cut": False}]


def test_rows_come_back(tmp_path):
    for name in ("t.jsonl", "t.csv"):
        write_table(tmp_path / name, ROWS, ["video", "score", "cut"])
    assert read_table(tmp_path / "t.jsonl") == ROWS
    text = [{"video": "a, b.mp4", "score": "0.5", "cut": "true"}, {"video": 'ü "c".mp4', "score": "", "cut": "false"}]
    assert read_table(tmp_path / "t.csv") == text


@pytest.mark.skipif(importlib.util.find_spec("pyarrow") is None, reason="the extra `data` is not installed")
def test_parquet_keeps_types(tmp_path):
    write_table(tmp_path / "t.parquet", ROWS, ["video", "score", "cut"])
    assert read_table(tmp_path / "t.parquet") == ROWS


def test_parquet_without_pyarrow_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ConfigError, match=r"pip install pyarrow.*or use \.jsonl"):
        write_table(tmp_path / "t.parquet", ROWS, ["video"])


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("t.csv", "video,caption\na.mp4,one, two\n", "line 2: more cells than columns"),
        ("t.jsonl", '{"video": "a"}\n{"video"\n', "line 2: not JSON"),
        ("t.jsonl", "[1]\n", "line 1: expected an object"),
    ],
)
def test_bad_lines_are_named(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=message):
        read_table(tmp_path / name)


def test_unknown_suffix_and_missing_file(tmp_path):
    with pytest.raises(ConfigError, match=r"ends with \.csv, \.jsonl or \.parquet"):
        read_table(tmp_path / "t.xlsx")
    with pytest.raises(DataError, match="no such table"):
        read_table(tmp_path / "t.csv")


def test_cells_are_what_they_spell():
    assert [typed(cell) for cell in ("0.5", "1e-3", "true", "false", "", "inf", None, "12")] == [
        0.5, 0.001, True, False, None, "inf", None, 12,
    ]  # fmt: skip
