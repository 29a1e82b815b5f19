"""All files or an error before the first; what is written is what was returned."""

from __future__ import annotations

import json

import pytest
from evaluation_rows import COLUMNS, INFOS, RUN, column_rows, plausible_values

from phys_pipeline.errors import ConfigError, DataError
from phys_pipeline.evaluation.report import trace, write_report

NAMES = ["report.csv", "report.html", "report.json", "report.md", "report.tex"]


@pytest.fixture(scope="module")
def rows():
    return column_rows("baseline", plausible_values(6)) + column_rows("ours", plausible_values(6, 0.0))


def test_five_files_and_nothing_else(rows, tmp_path):
    clip = tmp_path / "clip.mp4"
    clip.write_bytes(b"0123456789")
    report = write_report(rows, INFOS, COLUMNS, RUN, tmp_path / "new" / "folder", videos={"ours/p000#0": clip}, tables=("T1a",))
    folder = tmp_path / "new" / "folder"
    assert sorted(path.name for path in folder.iterdir()) == NAMES
    assert json.loads((folder / "report.json").read_text(encoding="utf-8")) == report
    assert len(trace(report, "ours", "flow_score")) == 6
    assert "T1a. Baseline and ours, HunyuanVideo" in (folder / "report.md").read_text(encoding="utf-8")
    assert "data:video/mp4;base64" in (folder / "report.html").read_text(encoding="utf-8")
    again = write_report(rows, INFOS, COLUMNS, RUN, folder, embed_limit=0, videos={"ours/p000#0": clip})
    assert again == report and "../../clip.mp4" in (folder / "report.html").read_text(encoding="utf-8")


def test_a_frozen_column_has_the_red_line_in_every_text(rows, tmp_path):
    write_report(rows, INFOS, COLUMNS, RUN, tmp_path)
    for name in ("report.html", "report.json", "report.md", "report.tex"):
        assert "temporal gains are not separable from reduced motion" in (tmp_path / name).read_text(encoding="utf-8")


def test_an_error_leaves_no_file(rows, tmp_path):
    with pytest.raises(ConfigError, match="T2 needs"):
        write_report(rows, INFOS, COLUMNS, RUN, tmp_path, tables=("T2",))
    with pytest.raises(DataError, match="can't be read for the page"):
        write_report(rows, INFOS, COLUMNS, RUN, tmp_path, videos={"ours/p000#0": tmp_path / "missing.mp4"})
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("x")
    with pytest.raises(DataError, match="can't be written to"):
        write_report(rows, INFOS, COLUMNS, RUN, tmp_path / "file")
