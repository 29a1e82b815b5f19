import pytest

from benchmarks import resolution
from benchmarks.discrimination import SAMPLES


def test_page_has_a_row_for_every_size_and_limit(tmp_path):
    arguments = ["--clips", str(SAMPLES), "--sides", "48", "64", "--processes", "0", "--windows", "1"]
    resolution.main([*arguments, "--scores", str(tmp_path / "scores.jsonl"), "--report", str(tmp_path / "page.md")])
    page = (tmp_path / "page.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith(("| 48 ", "| 64 "))]
    assert len(rows) == 6 and rows[0].startswith("| 48 | none |") and rows[5].startswith("| 64 | 24 |")
    kept_whole = [row.split("|")[3] for row in rows[:2]]
    assert kept_whole[0] == kept_whole[1]  # 48 pixels have no frequency above 48 cycles to keep


def test_clips_that_are_too_small_are_refused(tmp_path):
    with pytest.raises(SystemExit, match="no clip of the tuning part"):
        resolution.main(["--sides", "5000", "--report", str(tmp_path / "page.md"), "--scores", str(tmp_path / "scores.jsonl")])
