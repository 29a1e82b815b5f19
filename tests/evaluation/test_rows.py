import pytest

from phys_pipeline.errors import DataError
from phys_pipeline.evaluation.rows import Row, RowFile, read_rows


def row(sample="m/a", metric="x", value=1.0, **more):
    return Row(sample, sample.split("/")[1], "m", None, metric, value, "ok", **more)


def written(folder, *rows, name="rows.jsonl"):
    file = RowFile(folder / name)
    file.append(rows)
    file.close()


def test_rows_come_back_sorted_and_the_later_one_counts(tmp_path):
    written(
        tmp_path, row("m/b", written=1.0), row("m/a", value=1.0, written=2.0, details={"n": [1, None]}, per_frame=[0.5, None])
    )
    written(tmp_path, row("m/a", value=3.0, written=1.0), row("m/b", value=4.0, written=2.0), name="rows-1.jsonl")
    assert [(r.sample, r.value) for r in read_rows(tmp_path)] == [("m/a", 1.0), ("m/b", 4.0)]
    assert read_rows(tmp_path)[0].details == {"n": [1, None]} and read_rows(tmp_path)[0].per_frame == [0.5, None]
    assert read_rows(tmp_path / "nothing") == []


def test_a_line_that_was_cut_off_is_left_out_and_removed(tmp_path, caplog):
    written(tmp_path, row())
    with (tmp_path / "rows.jsonl").open("ab") as stream:
        stream.write('{"sample": "m/ü'.encode()[:-1])
    assert [r.sample for r in read_rows(tmp_path)] == ["m/a"] and "cut off" in caplog.text
    written(tmp_path, row("m/b"))
    assert [r.sample for r in read_rows(tmp_path)] == ["m/a", "m/b"]
    assert len((tmp_path / "rows.jsonl").read_bytes().splitlines()) == 2


def test_a_file_of_one_cut_line_becomes_empty(tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"sample"')
    written(tmp_path)
    assert (tmp_path / "rows.jsonl").read_bytes() == b""


def test_nan_is_never_written_and_other_lines_are_refused(tmp_path):
    with pytest.raises(ValueError):
        written(tmp_path, row(value=float("nan")))
    (tmp_path / "rows.jsonl").write_text("[1]\n")
    with pytest.raises(DataError, match=r"rows.jsonl, line 1 is no row"):
        read_rows(tmp_path)


def test_fields_of_a_later_version_are_ignored(tmp_path):
    written(tmp_path, row())
    text = (tmp_path / "rows.jsonl").read_text().replace('{"sample"', '{"from_the_future": 1, "sample"')
    (tmp_path / "rows.jsonl").write_text(text)
    assert read_rows(tmp_path)[0].value == 1.0


def test_a_folder_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="can't be written"):
        RowFile(tmp_path / "file" / "rows.jsonl")
