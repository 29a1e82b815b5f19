import importlib.util
import json
import os
import signal
import sys
from dataclasses import replace

import pytest
from training_run import encode_after_a_death, make_base, settings

from phys_pipeline.cli import main
from phys_pipeline.errors import ConfigError
from training.cluster import in_ray
from training.encoding import do_in_worker, make_encoder
from training.filling import cache_report, over_engine, over_ranks
from training.pool import Failure, Job
from training.scores import score_clip, score_entries
from training.sources import Entry, list_entries

needs_ray = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="the extra `cluster` is not installed"),
]


@pytest.fixture(scope="module")
def two_workers():
    """A Ray of this machine, which ends with these tests."""
    import ray

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=80 << 20, _node_ip_address="127.0.0.1")
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return make_base(tmp_path_factory.mktemp("base"), clips=5, frames=9)


def length_or_death(path):
    if path.read_text() == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    return len(path.read_text())


def score_after_a_death(path, preset):
    """The third clip's process is killed when it has scored the clip, once."""
    row = score_clip(path, preset)
    if path.name == "2.mp4" and not (path.parent / "died.while.scoring").exists():
        (path.parent / "died.while.scoring").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return row


class TestRay:
    pytestmark = needs_ray

    def test_a_job_whose_process_dies_twice_fails_and_no_other(self, two_workers, tmp_path):
        jobs = []
        for i in range(5):
            (tmp_path / str(i)).write_text("dies" if i == 2 else "x" * i)
            jobs.append(Job(i, (tmp_path / str(i),)))
        done = [(job.key, result) for job, result in in_ray(jobs, 2, length_or_death)]
        assert dict(done) == {0: 0, 1: 1, 2: Failure("its process failed (WorkerCrashedError)"), 3: 3, 4: 4} and len(done) == 5

    def test_scores_equal_those_of_this_process_though_one_is_killed(self, two_workers, base, tmp_path, capsys):
        entries = list_entries(settings(base, tmp_path))
        rows = score_entries(entries, tmp_path / "s.jsonl", workers=2, score=score_after_a_death, engine=in_ray)
        assert (base / "clips" / "died.while.scoring").exists()
        assert [{**row, **score_clip(entry.path, "calibrated")} for row, entry in zip(rows, entries, strict=True)] == rows
        assert not any(row["error"] for row in rows) and [row["video"] for row in rows] == [f"{i}.mp4" for i in range(5)]
        table = (tmp_path / "s.jsonl").read_bytes()
        command = ["data", "score", str(base / "clips"), "-o", str(tmp_path / "s.jsonl"), "--engine", "ray"]
        assert main(command) == 0 and "5 clips scored" in capsys.readouterr().out
        assert (tmp_path / "s.jsonl").read_bytes() == table

    def test_the_cache_equals_that_of_this_process_though_one_is_killed(self, two_workers, base, tmp_path, capsys):
        plain = settings(base, tmp_path, cache_dir=str(tmp_path / "plain"))
        encoder = make_encoder(json.dumps(plain.to_dict()))
        report = cache_report(encoder, over_ranks(encoder, 0, 1, list))
        config = replace(plain, cache_dir=str(tmp_path / "ray"))
        encoder = make_encoder(json.dumps(config.to_dict()))

        def engine(jobs, workers, function):
            assert function is do_in_worker
            return in_ray(jobs, workers, encode_after_a_death)

        again = cache_report(encoder, over_engine(encoder, engine, 2))
        assert (base / "clips" / "died.while.encoding").exists()
        assert again == report.replace(str(tmp_path / "plain"), str(tmp_path / "ray"))
        entries = [
            {p.relative_to(root): p.read_bytes() for p in root.rglob("*") if p.is_file() and ".partial" not in p.name}
            for root in (tmp_path / "plain", tmp_path / "ray")
        ]
        assert entries[0] == entries[1] and len(entries[0]) == 11  # clips, captions, the list
        config.save(tmp_path / "config.yaml")
        assert main(["data", "cache", "--config", str(tmp_path / "config.yaml"), "--engine", "ray", "--workers", "2"]) == 0
        (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("clips")]
        assert line.split() == ["clips", "0", "5", "0"]


def test_without_ray_one_line_says_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match="pip install ray"):
        score_entries([Entry(tmp_path / "a.mp4", "a.mp4", "")], tmp_path / "s.csv", engine=in_ray)
    assert not list(tmp_path.iterdir())
