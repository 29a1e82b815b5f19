import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from phys_pipeline.errors import DataError
from phys_pipeline.media import Video, write_video
from phys_pipeline.media.synthetic import textured_clip
from phys_pipeline.tables import read_table
from training.config import TrainConfig
from training.scores import COLUMNS, score_clip, score_entries
from training.sources import Entry, find_clips, list_entries

SAMPLES = Path(__file__).parents[2] / "samples" / "clips"


def read_text_or_die(path, preset):
    """Stands for scoring: the file says what happens to the process that reads it."""
    text = path.read_text()
    with (path.parent.parent / "calls.txt").open("a") as stream:
        stream.write(f"{path.name}\n")
    if text == "dies" or (text == "dies once" and (path.parent.parent / "calls.txt").read_text().count(path.name) == 1):
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.02)
    return {"composite": float(len(text)), "dominant": "rotation"}


@pytest.fixture
def entries(tmp_path):
    (tmp_path / "clips").mkdir()
    for i in range(9):
        (tmp_path / "clips" / f"{i}.mp4").write_text("x" * i)
    return [Entry(tmp_path / "clips" / f"{i}.mp4", f"{i}.mp4", f"clip {i}") for i in range(9)]


def test_no_clip_is_lost_or_counted_twice_when_processes_are_killed(entries, tmp_path):
    entries[2].path.write_text("dies once")
    entries[5].path.write_text("dies")
    rows = score_entries(entries, tmp_path / "s.jsonl", workers=2, score=read_text_or_die)
    assert (
        [row["video"] for row in rows] == [e.name for e in entries] == [row["video"] for row in read_table(tmp_path / "s.jsonl")]
    )
    assert [row.get("error") for row in rows if row.get("error")] == ["its process died 2 times (exit code -9)"]
    assert rows[2]["composite"] == len("dies once")
    calls = (tmp_path / "calls.txt").read_text().split()
    assert {name: calls.count(name) for name in set(calls)} == {e.name: 1 + (i in (2, 5)) for i, e in enumerate(entries)}
    assert not (tmp_path / "s.jsonl.partial.jsonl").exists()


def test_an_interrupted_run_goes_on(entries, tmp_path):
    score_entries(entries[:4], tmp_path / "s.jsonl", score=read_text_or_die)
    (tmp_path / "s.jsonl").rename(tmp_path / "s.jsonl.partial.jsonl")  # as a killed run leaves it, its last line cut off
    with (tmp_path / "s.jsonl.partial.jsonl").open("a") as stream:
        stream.write('{"video": "4.mp4", "compo')
    (tmp_path / "calls.txt").unlink()
    entries[1].path.write_text("changed since")
    rows = score_entries(entries, tmp_path / "s.jsonl", workers=2, score=read_text_or_die)
    assert len(rows) == 9 and rows[1]["composite"] == len("changed since")
    assert sorted((tmp_path / "calls.txt").read_text().split()) == [f"{i}.mp4" for i in (1, 4, 5, 6, 7, 8)]
    (tmp_path / "calls.txt").unlink()
    assert score_entries(entries, tmp_path / "s.jsonl", workers=2, score=read_text_or_die) == rows
    assert not (tmp_path / "calls.txt").exists()  # a second run scores nothing


@pytest.mark.slow
def test_a_killed_command_goes_on(tmp_path):
    output, record = tmp_path / "s.csv", tmp_path / "s.csv.partial.jsonl"
    command = [sys.executable, "-m", "phys_pipeline", "data", "score", str(SAMPLES), "-o", str(output)]
    root = SAMPLES.parents[1]
    run = subprocess.Popen(command, cwd=root, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    until = time.monotonic() + 60
    while not (record.is_file() and record.read_bytes().count(b"\n") >= 2) and time.monotonic() < until:
        time.sleep(0.01)
    run.kill()
    run.wait()
    assert not output.exists()
    first = {json.loads(line)["video"] for line in record.read_text().splitlines()}
    assert 2 <= len(first) < 6
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "6 clips scored" in done.stdout, done.stderr
    names = [row["video"] for row in read_table(output)]
    assert len(names) == len(set(names)) == 6 and not record.exists()


def test_no_clips(tmp_path):
    with pytest.raises(DataError, match="no clip"):
        score_entries([], tmp_path / "s.csv")


def test_columns_of_a_clip_and_their_use_as_filters(tmp_path):
    clip = textured_clip(16, 64, 64, seed=3, rotation=0.08).video
    (tmp_path / "clips").mkdir()
    write_video(tmp_path / "clips" / "roll.mp4", Video.from_tensor(clip, fps=8))
    (tmp_path / "clips" / "bad.mp4").write_bytes(b"nonsense")
    for name in ("roll", "bad"):
        (tmp_path / "clips" / f"{name}.txt").write_text(name)
    config = TrainConfig(data=str(tmp_path / "clips"))
    bad, roll = score_entries(list_entries(config), tmp_path / "s.csv", score=score_clip)
    assert roll.keys() == set(COLUMNS) and (roll["frames"], roll["width"], roll["dominant"]) == (16, 64, "rotation")
    assert roll["rotation_deg_per_s"] > 20 and roll["has_cut"] is False and roll["error"] is None
    assert "bad.mp4" in bad["error"] and bad["composite"] is None
    filters = {"composite": "<0.9", "has_cut": "false", "dominant": "rotation|scaling"}
    clips, skipped = find_clips(TrainConfig(data=config.data, data_scores=str(tmp_path / "s.csv"), data_filters=filters))
    assert [c.name for c in clips] == ["roll.mp4"] and [s.reason for s in skipped] == ["no value for 'composite'"]
