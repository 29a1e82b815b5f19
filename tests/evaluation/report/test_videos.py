"""Clips are embedded prompt by prompt while there is room, else linked."""

from __future__ import annotations

import base64
from urllib.parse import unquote

import pytest
from evaluation_rows import row

from phys_pipeline.errors import DataError
from phys_pipeline.evaluation.report.videos import sources


@pytest.fixture
def clips(tmp_path):
    """Rows and files of two columns and two prompts, ten bytes each."""
    rows, files = [], {}
    for clip in ("p0", "p1"):
        for column in ("a", "b"):
            file = tmp_path / "videos & more" / column / f"{clip} #1.mp4"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(f"{column}{clip}".encode().ljust(10))
            rows += [row(column, clip, "x", 1.0), row(column, clip, "y", 1.0)]
            files[f"{column}/{clip}#0"] = file
    return rows, files


def test_a_prompt_is_embedded_whole_or_not_at_all(clips, tmp_path):
    found = sources(*clips, tmp_path / "report", limit=39)
    head, _, data = found["b"]["p0", 0].partition(",")
    assert head == "data:video/mp4;base64" and base64.b64decode(data) == b"bp0       "
    for column in "ab":
        url = found[column]["p1", 0]
        assert url == f"../videos%20%26%20more/{column}/p1%20%231.mp4"
        assert (tmp_path / "report" / unquote(url)).resolve() == clips[1][f"{column}/p1#0"].resolve()
    assert all(url.startswith("data:") for urls in sources(*clips, tmp_path, limit=40).values() for url in urls.values())


def test_pictures_and_what_browsers_do_not_play(clips, tmp_path):
    rows, _ = clips
    for name in ("moves.GIF", "old.avi"):
        (tmp_path / name).write_bytes(b"x")
    found = sources(rows, {"a/p0#0": tmp_path / "moves.GIF", "a/p1#0": tmp_path / "old.avi"}, tmp_path)
    assert found == {"a": {("p0", 0): "data:image/gif;base64,eA==", ("p1", 0): "old.avi"}}


def test_clips_without_rows_are_not_shown_and_missing_files_are_errors(clips, tmp_path):
    rows, files = clips
    assert sources(rows, {"a/p7#0": tmp_path / "unknown.mp4"}, tmp_path) == {}
    files["a/p0#0"].unlink()
    with pytest.raises(DataError, match=r"p0 #1.mp4 can't be read for the page"):
        sources(rows, files, tmp_path)
