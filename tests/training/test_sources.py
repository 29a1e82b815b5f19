import builtins
import csv
import errno
import json
import os

import pytest
from PIL import Image

from phys_pipeline.errors import ConfigError, DataError
from training.config import TrainConfig
from training.sources import file_digest, filter_entries, find_clips, list_entries


def write_clip(folder, name, caption="a grey square flickers"):
    """Bytes that stand for a clip: finding never decodes."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(name.encode())
    if caption is not None:
        (folder / name).with_suffix(".txt").write_text(caption, encoding="utf-8")


def config(source, **settings):
    return TrainConfig(**{"data": str(source), **settings})


def write_csv(path, rows):
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def test_clips_are_found_with_their_captions(tmp_path):
    write_clip(tmp_path, "b.mp4", caption="\ufeff  two\nlines  of text \n")
    write_clip(tmp_path / "sub", "a.mp4")
    (tmp_path / "notes.md").write_text("not a clip")
    Image.new("RGB", (8, 8)).save(tmp_path / "thumbnail.png")  # needs no caption
    clips, skipped = find_clips(config(tmp_path))
    assert [(c.name, c.caption) for c in clips] == [("b.mp4", "two lines of text"), ("sub/a.mp4", "a grey square flickers")]
    assert clips[0].digest == file_digest(tmp_path / "b.mp4")
    assert [s.name for s in skipped] == ["thumbnail.png"] and "still picture" in skipped[0].reason


def test_missing_captions_are_all_named_in_one_line(tmp_path):
    write_clip(tmp_path, "a.mp4", caption=None)
    write_clip(tmp_path, "b.mp4", caption=" \n")
    write_clip(tmp_path, "c.mp4")
    with pytest.raises(DataError) as caught:
        find_clips(config(tmp_path))
    message = str(caught.value)
    assert "a.mp4 (write a.txt)" in message and "b.mp4 (write b.txt)" in message
    assert "c.mp4" not in message and "\n" not in message
    clips, skipped = find_clips(config(tmp_path, missing_captions="skip"))
    assert [c.name for c in clips] == ["c.mp4"] and [s.name for s in skipped] == ["a.mp4", "b.mp4"]


def test_bad_folder_and_bad_caption(tmp_path):
    with pytest.raises(DataError, match="no such folder"):
        find_clips(config(tmp_path / "nowhere"))
    write_clip(tmp_path, "a.mp4")
    (tmp_path / "a.txt").write_bytes(b"caf\xe9")
    with pytest.raises(DataError, match=r"a\.mp4 \(a\.txt is not UTF-8 text"):
        find_clips(config(tmp_path))
    write_clip(tmp_path, "b.mp4", caption=None)
    (tmp_path / "b.txt").mkdir()
    _, skipped = find_clips(config(tmp_path, missing_captions="skip"))
    assert [s.reason for s in skipped] == [
        "no caption; a.txt is not UTF-8 text; save it as UTF-8", "no caption; b.txt can't be read (Is a directory)",
    ]  # fmt: skip


def test_links_are_followed_once_and_broken_ones_named(tmp_path):
    write_clip(tmp_path / "elsewhere", "a.mp4")
    data = tmp_path / "data"
    write_clip(data / "sub", "b.mp4")
    (data / "linked").symlink_to(tmp_path / "elsewhere")
    (data / "sub" / "loop").symlink_to(data)
    (data / "gone.mp4").symlink_to(tmp_path / "nowhere.mp4")
    (data / "self.mp4").symlink_to(data / "self.mp4")
    clips, skipped = find_clips(config(data))
    assert [c.name for c in clips] == ["linked/a.mp4", "sub/b.mp4"]
    assert [(s.name, s.reason.partition(":")[0]) for s in skipped] == [
        ("gone.mp4", "a symbolic link to nothing"), ("self.mp4", "a symbolic link to nothing"),
    ]  # fmt: skip


def test_files_that_can_not_be_clips_have_a_reason(tmp_path):
    write_clip(tmp_path, "a.mp4")
    os.mkfifo(tmp_path / "pipe.mp4")
    (tmp_path / os.fsdecode(b"caf\xe9.mp4")).write_bytes(b"x")
    clips, skipped = find_clips(config(tmp_path))
    assert [c.name for c in clips] == ["a.mp4"]
    assert {s.name: s.reason for s in skipped} == {
        "caf\\udce9.mp4": "its name is not UTF-8; rename it", "pipe.mp4": f"not a regular file: {tmp_path / 'pipe.mp4'}",
    }  # fmt: skip


def test_what_the_system_refuses_to_read_is_skipped(tmp_path, monkeypatch):
    """Refused by hand: whoever runs the tests may be allowed everything."""
    for name in ("a.mp4", "b.mp4"):
        write_clip(tmp_path, name)
    write_clip(tmp_path / "locked", "c.mp4")
    scan, start = os.scandir, builtins.open

    def refusing(call, *refused):
        def called(path, *arguments, **options):
            if os.path.basename(path) in refused:
                raise PermissionError(errno.EACCES, "Permission denied", path)
            return call(path, *arguments, **options)

        return called

    monkeypatch.setattr(os, "scandir", refusing(scan, "locked"))
    monkeypatch.setattr(builtins, "open", refusing(start, "b.mp4"))
    clips, skipped = find_clips(config(tmp_path))
    assert [c.name for c in clips] == ["a.mp4"]
    assert {s.name: s.reason for s in skipped} == {
        "locked": "a folder that can't be read (Permission denied)", "b.mp4": "can't be read (Permission denied)",
    }  # fmt: skip


def test_a_clip_listed_twice_counts_once_but_may_have_two_captions(tmp_path):
    write_clip(tmp_path, "a.mp4", caption=None)
    rows = [{"video": name, "caption": caption} for name, caption in (("a.mp4", "x"), ("./a.mp4", "x"), ("a.mp4", "y"))]
    clips, skipped = find_clips(config(write_csv(tmp_path / "t.csv", rows)))
    assert [(c.name, c.caption) for c in clips] == [("a.mp4", "x"), ("a.mp4", "y")]
    assert [(s.name, s.reason) for s in skipped] == [("./a.mp4", "listed before with the same caption")]


def test_a_table_with_a_mark_of_byte_order(tmp_path):
    write_clip(tmp_path, "a.mp4", caption=None)
    (tmp_path / "t.csv").write_text("\ufeffvideo,caption\na.mp4,a dog\n", encoding="utf-8")
    assert [c.caption for c in find_clips(config(tmp_path / "t.csv"))[0]] == ["a dog"]
    (tmp_path / "t.csv").write_text("video,caption\na.mp4,a dog\n", encoding="utf-16")
    with pytest.raises(DataError, match="not UTF-8"):
        find_clips(config(tmp_path / "t.csv"))


def test_an_error_names_fifty_clips_at_most(tmp_path):
    for i in range(60):
        write_clip(tmp_path, f"{i:02d}.mp4", caption=None)
    with pytest.raises(DataError, match=r"^60 clip.*49\.mp4 \(write 49\.txt\), and 10 more; one line"):
        find_clips(config(tmp_path))


def test_a_table_names_clips_and_captions(tmp_path):
    for name in ("a.mp4", "b.mp4"):
        write_clip(tmp_path / "videos", name, caption=None)
    rows = [
        {"video": "a.mp4", "caption": " one,\n two "},
        {"video": "b.mp4", "caption": "three"},
        {"video": "c.mp4", "caption": "x"},
    ]
    table = write_csv(tmp_path / "t.csv", rows)
    lines = tmp_path / "t.jsonl"
    lines.write_text("\n".join(json.dumps({"path": r["video"], "text": r["caption"]}) for r in rows) + "\n\n", encoding="utf-8")
    for source in (table, lines):
        clips, skipped = find_clips(config(source, video_root=str(tmp_path / "videos")))
        assert [(c.name, c.caption) for c in clips] == [("a.mp4", "one, two"), ("b.mp4", "three")]
        assert [s.name for s in skipped] == ["c.mp4"] and "no such file" in skipped[0].reason
    assert [s.name for s in find_clips(config(table))[1]] == ["a.mp4", "b.mp4", "c.mp4"]  # relative to the table


def test_absolute_paths_stay_out_of_names(tmp_path):
    for name in ("a.mp4", "sub/b.mp4"):
        write_clip((tmp_path / "secret" / name).parent, name.split("/")[-1], caption=None)
    rows = [{"video": str(tmp_path / "secret" / name), "caption": "x"} for name in ("a.mp4", "sub/b.mp4")]
    clips, _ = find_clips(config(write_csv(tmp_path / "t.csv", rows)))
    assert [c.name for c in clips] == ["a.mp4", "sub/b.mp4"] and all(c.path.is_file() for c in clips)
    scores = write_csv(tmp_path / "s.csv", [{"video": rows[1]["video"], "composite": 0.5}])
    kept, _ = find_clips(config(tmp_path / "t.csv", data_scores=str(scores), data_filters={"composite": "<1"}))
    assert [c.name for c in kept] == ["sub/b.mp4"]


OPENVID = [  # the columns of OpenVid-1M.csv
    {
        "video": f"{i}.mp4", "caption": f"clip {i}", "aesthetic score": 4.5 + i / 2, "motion score": 3.0 * i,
        "temporal consistency score": 0.99, "camera motion": motion, "frame": 120, "fps": 24.0, "seconds": 5.0,
    }
    for i, motion in enumerate(["static", "pan_left", "zoom_in", ""])
]  # fmt: skip


@pytest.mark.parametrize(
    ("filters", "kept"),
    [
        ({"aesthetic score": ">=5"}, [1, 2, 3]),
        ({"aesthetic score": ">=5", "camera motion": "static|Zoom_In"}, [2]),
        ({"motion score": [">0", "<9"]}, [1, 2]),
        ({"frame": 120, "camera motion": "!=static|pan_left"}, [2]),
        ({"fps": "24"}, [0, 1, 2, 3]),
    ],
)
def test_filters_of_openvid(tmp_path, filters, kept):
    for i in range(4):
        write_clip(tmp_path, f"{i}.mp4", caption=None)
    clips, skipped = find_clips(config(write_csv(tmp_path / "OpenVid-1M.csv", OPENVID), data_filters=filters))
    assert [c.name for c in clips] == [f"{i}.mp4" for i in kept]
    assert len(clips) + len(skipped) == 4 and all(s.reason for s in skipped)


def test_filters_say_why(tmp_path):
    table = write_csv(tmp_path / "t.csv", OPENVID)
    wanted = config(table, data_filters={"motion score": ">1", "camera motion": "zoom_in"})
    _, skipped = filter_entries(list_entries(wanted), wanted)
    assert [s.reason for s in skipped] == [
        "motion score is 0, not >1", "camera motion is pan_left, not zoom_in", "no value for 'camera motion'",
    ]  # fmt: skip
    with pytest.raises(DataError, match=r"no column 'aesthetics'; its columns are 'video', 'caption', 'aesthetic score'"):
        find_clips(config(table, data_filters={"aesthetics": ">5"}))
    with pytest.raises(ConfigError, match="'five', which is not a number"):
        find_clips(config(table, data_filters={"frame": ">five"}))
    write_clip(tmp_path / "folder", "a.mp4")
    with pytest.raises(DataError, match="a folder has none"):
        find_clips(config(tmp_path / "folder", data_filters={"composite": "<1"}))


def test_scores_of_another_file_are_joined(tmp_path):
    for name in ("a.mp4", "b.mp4", "c.mp4"):
        write_clip(tmp_path / "clips", name)
    scores = tmp_path / "scores.jsonl"
    rows = [{"video": "a.mp4", "composite": 0.4, "has_cut": False}, {"video": "b.mp4", "composite": 0.5, "has_cut": True}]
    scores.write_text("\n".join(map(json.dumps, rows)))
    filters = {"composite": "<0.6", "has_cut": False}
    clips, skipped = find_clips(config(tmp_path / "clips", data_scores=str(scores), data_filters=filters))
    assert [c.name for c in clips] == ["a.mp4"]
    assert [s.reason for s in skipped] == ["has_cut is true, not false", "no value for 'composite'"]
    scores.write_text(json.dumps({"video": "elsewhere.mp4", "composite": 1}))
    with pytest.raises(DataError, match="scores no clip"):
        find_clips(config(tmp_path / "clips", data_scores=str(scores)))


def test_a_table_without_paths_and_a_missing_caption(tmp_path):
    with pytest.raises(DataError, match=r"row 1: no video, file, path, file_name among its columns 'name'"):
        find_clips(config(write_csv(tmp_path / "t.csv", [{"name": "x"}])))
    write_clip(tmp_path, "a.mp4", caption=None)
    table = write_csv(tmp_path / "t.csv", [{"video": "a.mp4", "caption": ""}])
    with pytest.raises(DataError, match=r"a\.mp4 \(fill its caption/text\)"):
        find_clips(config(table))
