import json
from pathlib import Path

import pytest

from phys_pipeline.errors import DataError
from phys_pipeline.evaluation.manifest import read_samples


@pytest.fixture
def folder(tmp_path):
    for name in ("0001.mp4", "0002_seed3.mp4", "0002-seed4.webm", "notes.txt", ".hidden.mp4"):
        (tmp_path / name).write_text("")
    return tmp_path


def test_a_column_is_a_folder_and_seeds_are_in_the_names(folder):
    samples = read_samples([f"ours={folder}"])
    assert [(s.model, s.id, s.seed) for s in samples] == [("ours", "0001", None), ("ours", "0002", 4), ("ours", "0002", 3)]
    assert [s.model for s in read_samples([str(folder)])] == [folder.name] * 3
    only = read_samples([str(folder / "0002_seed3.mp4")])
    assert [(s.model, s.id, s.seed) for s in only] == [("video", "0002", 3)]


def test_prompts_are_joined_by_id(folder):
    table = folder / "prompts.jsonl"
    rows = [{"id": "0001", "prompt": "a dog runs", "action": "run"}, {"id": "0002", "prompt": "zoom in", "motion": "scaling"}]
    table.write_text("\n".join(map(json.dumps, rows)))
    samples = read_samples([f"a={folder}"], table)
    assert [s.prompt for s in samples] == ["a dog runs", "zoom in", "zoom in"]
    assert samples[0].labels == {"action": "run"} and samples[1].labels == {"motion": "scaling"}
    table.write_text(json.dumps(rows[0]))
    with pytest.raises(DataError, match="has no prompt for a/0002#4: add a row with id 0002"):
        read_samples([f"a={folder}"], table)


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_a_manifest_says_everything(folder, suffix):
    row = {
        "video": "0001.mp4",
        "model": "base",
        "id": "x",
        "prompt": "ein Ball, schräg",
        "seed": 7,
        "fps": 24,
        "amplitude": "slow",
    }
    table = folder / f"m{suffix}"
    text = (
        json.dumps(row)
        if suffix == ".jsonl"
        else "\ufeff" + ",".join(row) + "\n" + ",".join(f'"{v}"' for v in row.values()) + "\n"
    )
    table.write_text(text, encoding="utf-8")
    (sample,) = read_samples([str(table)])
    assert (sample.name, sample.prompt, sample.fps, sample.labels) == (
        "base/x#7",
        "ein Ball, schräg",
        24.0,
        {"amplitude": "slow"},
    )
    assert sample.path == folder / "0001.mp4"


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"model": "a"}, "row 1: has no video"),
        ({"video": "x.mp4"}, "row 1: has no model"),
        ({"video": "x.mp4", "model": "a", "amplitude": "fast"}, "amplitude='fast' is not one of large, slow"),
        ({"video": "x.mp4", "model": "a", "colour": "red"}, "unknown column 'colour'"),
        ({"video": "x.mp4", "model": "a", "seed": "one"}, "row 1: invalid literal"),
    ],
)
def test_rows_that_cannot_be_used_are_named(tmp_path, row, message):
    (tmp_path / "m.jsonl").write_text(json.dumps(row))
    with pytest.raises(DataError, match=message):
        read_samples([str(tmp_path / "m.jsonl")])


@pytest.mark.parametrize(
    ("source", "message"),
    [("nowhere", "neither a manifest, a video nor"), ("a=nowhere", "no folder of videos"), ("=.", "give the column a name")],
)
def test_sources_that_are_not_there(source, message):
    with pytest.raises(DataError, match=message):
        read_samples([source])


def test_an_empty_folder_and_a_broken_table_are_said(tmp_path):
    with pytest.raises(DataError, match="holds no video"):
        read_samples([f"a={tmp_path}"])
    (tmp_path / "m.jsonl").write_text('{"video": "a.mp4", "model": "m"}\n{"video"')
    with pytest.raises(DataError, match="line 2: not JSON"):
        read_samples([str(tmp_path / "m.jsonl")])
    (tmp_path / "m.csv").write_bytes("video,model\nä.mp4,m".encode("latin-1"))
    with pytest.raises(DataError, match="not UTF-8"):
        read_samples([str(Path(tmp_path / "m.csv"))])


def test_the_shipped_prompts_are_known_by_their_name(tmp_path):
    from phys_pipeline.evaluation.prompts.prompt_set import load_prompts

    first = next(iter(load_prompts()))
    (tmp_path / f"{first.id}_seed0.mp4").write_text("")
    (sample,) = read_samples([f"a={tmp_path}"], "motion")
    assert sample.prompt == first.text and sample.labels == first.label.sample_labels() and sample.seed == 0
