import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from phys_pipeline.errors import DataError
from phys_pipeline.evaluation.evaluator import Evaluator, Shard
from phys_pipeline.evaluation.metric import Settings
from phys_pipeline.evaluation.registry import select
from phys_pipeline.evaluation.rows import read_rows
from phys_pipeline.evaluation.sample import VideoSample
from phys_pipeline.media import Video, write_video

ROOT = Path(__file__).parents[2]
KEYS = ("brightness", "frame_count")


def calls(folder):
    return (folder / "calls.txt").read_text().splitlines() if (folder / "calls.txt").exists() else []


def by_key(rows):
    return {(row.sample, row.metric): row for row in rows}


def without_times(rows):
    return [{**row.__dict__, "seconds": 0, "written": 0} for row in rows]


def test_every_metric_has_a_row_whatever_happens(fakes, clip):
    keys = select(["all"])
    rows = by_key(Evaluator(keys, Settings(), fakes).run([clip("a", labels={"action": "run"}), clip("odd")]))
    assert set(rows) == {(f"m/{sample}", key) for sample in ("a", "odd") for key in keys}
    assert rows["m/a", "brightness"].value == pytest.approx((100 + 3.5) / 255)
    assert (rows["m/a", "brightness"].width, rows["m/a", "brightness"].frames, rows["m/a", "brightness"].fps) == (8, 8, 8.0)
    assert rows["m/a", "heavy"].status == "ok" and rows["m/odd", "heavy"].reason == "it has no label action"
    assert rows["m/a", "missing"].status == "skipped" and "--fetch" in rows["m/a", "missing"].reason
    assert rows["m/a", "broken"].status == "failed" and "the file is" in rows["m/a", "broken"].reason
    assert rows["m/odd", "surprising"].reason == "ZeroDivisionError: division by zero"
    assert rows["m/a", "surprising"].value == 1.0 and rows["m/a", "forgotten"].status == "failed"
    assert rows["m/a", "outside"].status == "failed" and "outside [0, 1]" in rows["m/a", "outside"].reason
    assert rows["m/a", "steps"].status == "standin" and rows["m/a", "steps"].value == pytest.approx(1.0)
    assert rows["m/a", "both"].value == rows["m/a", "brightness"].value + 8


def test_a_stand_in_can_be_left_out(fakes, clip):
    rows = by_key(Evaluator(("steps",), Settings(standins=False), fakes).run([clip()]))
    assert rows["m/a", "steps"].value is None and "a better one" in rows["m/a", "steps"].reason


def test_short_clips_are_skipped_by_what_needs_more_frames(fakes, clip):
    rows = by_key(Evaluator(select(["all"]), Settings(), fakes).run([clip(frames=4), clip("one", frames=1)]))
    assert rows["m/a", "frame_count"].reason == "4 frame(s), needs 5" and rows["m/a", "brightness"].value is not None
    assert rows["m/one", "steps"].status == "skipped" and rows["m/a", "both"].status == "skipped"


def test_a_clip_that_cannot_be_decoded_is_reported_and_the_others_go_on(fakes, clip, tmp_path):
    (tmp_path / "bad.mp4").write_bytes(b"no video")
    samples = [VideoSample("bad", "m", path=tmp_path / "bad.mp4"), VideoSample("gone", "m", path=tmp_path / "gone.mp4"), clip()]
    rows = by_key(Evaluator(KEYS, Settings(), fakes).run(samples))
    assert {rows[f"m/{name}", "brightness"].status for name in ("bad", "gone")} == {"failed"}
    assert rows["m/bad", "brightness"].value is None and rows["m/bad", "brightness"].reason
    assert rows["m/a", "brightness"].status == "ok"


def test_a_wrong_rate_is_a_failure_not_a_guess(fakes, tmp_path):
    write_video(tmp_path / "v.mp4", Video.from_frames(np.zeros((8, 16, 16, 3), np.uint8), 24))
    right, wrong = (VideoSample(str(fps), "m", path=tmp_path / "v.mp4", fps=fps) for fps in (24.0, 8.0))
    rows = by_key(Evaluator(KEYS, Settings(), fakes).run([right, wrong]))
    assert rows["m/24.0", "brightness"].status == "ok"
    assert (
        rows["m/8.0", "brightness"].status == "failed"
        and "8 frames per second, its file 24" in rows["m/8.0", "brightness"].reason
    )


def test_what_is_there_is_not_measured_again_and_failures_are(fakes, clip):
    samples = [clip("a"), clip("bad", level=13)]
    first = Evaluator(KEYS, Settings(), fakes).run(samples)
    assert by_key(first)["m/bad", "brightness"].reason == "thirteen"
    Evaluator(KEYS, Settings(), fakes).run(samples)
    measured = [line for line in calls(fakes) if line.startswith("brightness")]
    assert measured == ["brightness m/a", "brightness m/bad", "brightness m/bad"]


@pytest.mark.parametrize("change", ["pixels", "protocol", "version", "option"])
def test_another_clip_protocol_version_or_option_is_measured_again(fakes, clip, monkeypatch, change):
    from dataclasses import replace

    from evaluation.fake_metrics import Brightness

    Evaluator(("brightness",), Settings(), fakes).run([clip()])
    evaluator = Evaluator(("brightness",), Settings(), fakes)
    sample = clip(level=101) if change == "pixels" else clip()
    if change == "protocol":
        evaluator = Evaluator(("brightness",), Settings(protocol="evalcrafter"), fakes)
    if change == "option":
        evaluator = Evaluator(("brightness",), Settings(options={"x": 1}), fakes)
    if change == "version":
        monkeypatch.setattr(Brightness, "infos", tuple(replace(i, version=2) for i in Brightness.infos))
        from phys_pipeline.evaluation import registry

        registry.infos.cache_clear()
        evaluator = Evaluator(("brightness",), Settings(), fakes)
    rows = evaluator.run([sample])
    assert len(rows) == 1 and rows[0].digest == sample.digest
    assert [line for line in calls(fakes) if line.startswith("brightness")] == ["brightness m/a"] * 2


def test_a_metric_whose_weights_have_come_is_measured_then(fakes, clip, monkeypatch, tmp_path):
    assert Evaluator(("missing",), Settings(), fakes).run([clip()])[0].status == "skipped"
    (tmp_path / "weights").write_text("")
    monkeypatch.setenv("PHYS_TEST_WEIGHTS", str(tmp_path / "weights"))
    assert Evaluator(("missing",), Settings(), fakes).run([clip()])[0].value == 2.0


def test_models_are_loaded_one_after_the_other(fakes, clip):
    Evaluator(("brightness", "heavy"), Settings(), fakes).run([clip("a"), clip("b")])
    order = [line for line in calls(fakes) if line.split()[0] in ("setup", "close")]
    assert order == ["setup Brightness", "close Brightness", "setup Heavy", "close Heavy"]


@pytest.mark.slow
def test_two_workers_give_what_one_gives_and_survive_a_clip_that_kills_them(fakes, clip, tmp_path):
    samples = [clip(f"{i}", level=100 + i) for i in range(6)]
    one = Evaluator(KEYS, Settings(), tmp_path / "one").run(samples)
    deadly = [clip("bad once", level=14), clip("bad always", level=14)]
    two = Evaluator(KEYS, Settings(), tmp_path / "two").run([*samples, *deadly], workers=2)
    rows = by_key(two)
    assert rows["m/bad always", "brightness"].reason == "its process died 2 times (exit code -9)"
    assert rows["m/bad once", "brightness"].status == "ok"
    assert without_times(row for row in two if not row.id.startswith("bad")) == without_times(one)


SHARD = """
import sys
sys.path[:0] = [{root!r}, {tests!r}]
from pathlib import Path
from evaluation import fake_metrics
from phys_pipeline.evaluation import evaluator, registry
registry.CLASSES = fake_metrics.CLASSES
evaluator.flow_name = lambda settings: "none"
from phys_pipeline.evaluation.evaluator import Evaluator, Shard
from phys_pipeline.evaluation.manifest import read_samples
from phys_pipeline.evaluation.metric import Settings
rank, world = int(sys.argv[1]), int(sys.argv[2])
print(len(Evaluator(("brightness",), Settings(), sys.argv[3]).run(read_samples(["m=" + sys.argv[4]]), shard=Shard(rank, world))))
"""


def start(videos, out, rank, world):
    code = SHARD.format(root=str(ROOT), tests=str(ROOT / "tests"))
    command = [sys.executable, "-c", code, str(rank), str(world), str(out), str(videos)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | {"PHYS_TEST_CALLS": ""})


@pytest.fixture(scope="module")
def videos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("videos")
    for i in range(12):
        pixels = np.full((6, 16, 16, 3), 20 * i, np.uint8)
        write_video(folder / f"{i:02d}.mp4", Video.from_frames(pixels, 8))
    return folder


@pytest.mark.slow
def test_two_launched_processes_give_the_report_of_one(fakes, videos, tmp_path):
    from phys_pipeline.evaluation.manifest import read_samples

    both = [start(videos, tmp_path / "two", rank, 2) for rank in range(2)]
    assert [process.communicate(timeout=120)[0].strip() for process in both] == ["12", "6"]
    one = Evaluator(("brightness",), Settings(), tmp_path / "one").run(read_samples([f"m={videos}"]))
    assert without_times(read_rows(tmp_path / "two")) == without_times(one)


@pytest.mark.slow
def test_a_killed_run_goes_on_where_it_was(fakes, videos, tmp_path):
    process = start(videos, tmp_path / "out", 0, 1)
    deadline = time.time() + 60
    while not (tmp_path / "out" / "rows.jsonl").exists() or not read_rows(tmp_path / "out"):
        assert time.time() < deadline
        time.sleep(0.002)
    process.kill()
    process.communicate()
    before = read_rows(tmp_path / "out")
    assert before
    with (tmp_path / "out" / "rows.jsonl").open("a") as stream:
        stream.write('{"sample": "m/99", "met')  # a line that the kill cut off
    again = start(videos, tmp_path / "out", 0, 1)
    assert again.communicate(timeout=120)[0].strip() == "12"
    assert set(map(json.dumps, without_times(before))) <= set(map(json.dumps, without_times(read_rows(tmp_path / "out"))))
    assert len((tmp_path / "out" / "rows.jsonl").read_text().splitlines()) == 12


def test_another_process_that_stops_is_noticed(fakes, clip, monkeypatch):
    from phys_pipeline.evaluation import evaluator

    monkeypatch.setattr(evaluator, "_PATIENCE", 0.1)
    monkeypatch.setattr(evaluator, "_POLL", 0.05)
    with pytest.raises(DataError, match="1 results of other processes did not come; run again"):
        Evaluator(("brightness",), Settings(), fakes).run([clip("a"), clip("b")], shard=Shard(0, 2))


def test_samples_need_names_of_their_own_and_there_must_be_one(fakes, clip):
    evaluator = Evaluator(KEYS, Settings(), fakes)
    with pytest.raises(DataError, match="share a name, for example m/a"):
        evaluator.run([clip(), clip()])
    with pytest.raises(DataError, match="no video"):
        evaluator.run([])
