import json
import shutil
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from training_run import encode_after_a_death, make_base, settings

from phys_pipeline.errors import DataError, ModelError
from phys_pipeline.families import get_family
from training.encoding import Encoder, Outcome
from training.filling import cache_report, fill_cache, in_rounds, over_engine, over_ranks, prepare_dataset
from training.pool import Failure, in_processes
from training.sources import find_clips


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """Five clips: two of equal bytes, one too short."""
    root = make_base(tmp_path_factory.mktemp("base"), clips=3, frames=7)
    shutil.copy(root / "clips" / "0.mp4", root / "clips" / "again.mp4")
    (root / "clips" / "again.txt").write_text("the first clip in other words")
    make_base(root / "more", clips=1, frames=3)
    for suffix in (".mp4", ".txt"):
        shutil.copy(root / "more" / "clips" / f"0{suffix}", root / "clips" / f"short{suffix}")
    return root


def encoder_of(config):
    return Encoder(config, get_family("hunyuan_video"), torch.device("cpu"))


def files(folder):
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in Path(folder).rglob("*") if p.is_file()}


def alone(encoder):
    return over_ranks(encoder, 0, 1, list)


def test_processes_that_share_the_work_write_the_same_bytes(base, tmp_path):
    config = settings(base, tmp_path, cache_dir=str(tmp_path / "one"))
    one = encoder_of(config)
    alone_report = cache_report(one, alone(one))
    encoders = [encoder_of(replace(config, cache_dir=str(tmp_path / "two"))) for _ in range(2)]
    meeting, one_at_a_time, sent, reports, found = threading.Barrier(2), threading.Lock(), {}, {}, {}

    def run(rank):
        def gather(own):
            sent[rank] = own
            meeting.wait()
            joined = sent[0] + sent[1]
            meeting.wait()
            return joined

        def do(kind, item):
            with one_at_a_time:  # models are not made for threads, which stand for processes here
                return Encoder.do(encoder, kind, item)

        encoder = encoders[rank]
        encoder.do = do
        reports[rank] = cache_report(encoder, over_ranks(encoder, rank, 2, gather), write=rank == 0)
        found[rank] = fill_cache(encoder, over_ranks(encoder, rank, 2, gather))

    threads = [threading.Thread(target=run, args=(rank,)) for rank in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert files(tmp_path / "one") == files(tmp_path / "two")
    assert reports[0] == alone_report.replace(str(tmp_path / "one"), str(tmp_path / "two")) and reports[1] is None
    assert found[0] == found[1] and found[0].count("reused") == 4 and found[0].captions_reused == 4


def test_the_report_counts_every_clip_of_both_sources_and_lists_it(base, tmp_path):
    (base / "more" / "clips" / "notes.png").write_bytes(b"no caption needed")
    changes = {"validation_data": str(base / "more" / "clips"), "frames": 1, "motion_weight": 0, "missing_captions": "skip"}
    encoder = encoder_of(settings(base, tmp_path, cache_dir=str(tmp_path / "cache"), **changes))
    report = cache_report(encoder, alone(encoder))
    assert [line.split() for line in report.splitlines()[:4]] == [
        ["encoded", "reused", "skipped"], ["clips", "4", "2", "1"], ["captions", "4", "1"],
        ["skipped", "notes.png:", "no", "caption;", "write", "notes.txt"],
    ]  # fmt: skip
    rows = [json.loads(line) for line in (tmp_path / "cache" / "clips.jsonl").read_text().splitlines()]
    status = {(Path(row["data"]).parent.name, row["video"]): (row["status"], row["windows"]) for row in rows}
    assert len(rows) == len(status) == 7 and status["more", "notes.png"] == ("skipped", None)
    encoder = encoder_of(encoder.config)
    assert [line.split() for line in cache_report(encoder, alone(encoder)).splitlines()[1:3]] == [
        ["clips", "0", "6", "1"], ["captions", "0", "5"],
    ]  # fmt: skip


def test_no_usable_clip_is_an_error_with_the_list_written(base, tmp_path):
    encoder = encoder_of(settings(base, tmp_path, cache_dir=str(tmp_path / "cache"), frames=13))
    with pytest.raises(DataError, match=r"no usable clip in .*again\.mp4: too short: 7 frames"):
        cache_report(encoder, alone(encoder))
    assert (tmp_path / "cache" / "clips.jsonl").read_text().count("too short") == 5
    assert not (tmp_path / "cache" / "text").exists()


def test_an_engine_gets_only_what_the_cache_lacks(base, tmp_path):
    config = settings(base, tmp_path, cache_dir=str(tmp_path / "cache"))
    encoder, calls = encoder_of(config), []

    def engine(jobs, workers, function):
        for job in reversed(jobs):
            _, kind, item = job.arguments
            calls.append((workers, kind))
            name = getattr(item, "name", item)
            dies = name == "2.mp4"
            yield job, Failure("its process died 2 times") if dies else encoder.do(kind, item)

    filled = fill_cache(encoder, over_engine(encoder, engine, 3))
    assert [(clip.name, outcome) for clip, outcome in filled.clips] == [
        ("0.mp4", Outcome("encoded", 1)), ("1.mp4", Outcome("encoded", 1)),
        ("2.mp4", Outcome("skipped", 0, "its process died 2 times")), ("again.mp4", Outcome("reused", 1)),
        ("short.mp4", Outcome("skipped", 0, "too short: 3 frames at 8 fps, needs 5")),
    ]  # fmt: skip
    assert calls == [(3, "clip")] * 4 + [(3, "caption")] * 3
    calls.clear()
    dataset, _ = prepare_dataset(config, get_family("hunyuan_video"), device=torch.device("cpu"))
    assert len(dataset) == 4  # the training run encodes what is left


@pytest.mark.slow
def test_a_killed_process_of_this_machine_is_replaced_and_its_clip_is_not_lost(base, tmp_path):
    one = encoder_of(settings(base, tmp_path, cache_dir=str(tmp_path / "one")))
    two = encoder_of(replace(one.config, cache_dir=str(tmp_path / "two")))
    clips, _ = find_clips(one.config)
    spread = over_engine(two, lambda jobs, workers, _: in_processes(jobs, workers, encode_after_a_death), 1)
    assert spread("clip", clips[:3]) == alone(one)("clip", clips[:3])
    (base / "clips" / "died.while.encoding").unlink()
    (left,) = [file for file in files(tmp_path / "two") if ".partial" in file]  # of the process that was killed
    assert files(tmp_path / "one") == {file: data for file, data in files(tmp_path / "two").items() if file != left}


def test_errors_of_an_engine_are_raised(base, tmp_path):
    encoder = encoder_of(settings(base, tmp_path, cache_dir=str(tmp_path / "cache")))
    for result, message in (
        (ModelError("not finite"), "not finite"),
        (Failure("died"), "the caption 'x' can't be encoded: died"),
    ):
        spread = over_engine(encoder, lambda jobs, *_, result=result: ((job, result) for job in jobs), 1)
        with pytest.raises(ModelError, match=message):
            spread("caption", ["x"])


def test_processes_meet_before_a_long_share_is_done():
    meetings, others = [], iter([True, True, True, True, False])

    def gather(own):
        meetings.append(own[0])
        return [*own, next(others)]

    assert in_rounds([1, 2, 3], lambda item: 10 * item, gather, seconds=0) == [10, 20, 30]
    assert meetings == [True, True, True, False, False]  # one item a round, then it waits for the other
    assert in_rounds([], None, lambda own: own) == []
