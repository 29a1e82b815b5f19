import os
import signal
import time
from functools import partial

import pytest

from phys_pipeline.workers import Died, in_processes


def double(folder, job):
    calls = folder / f"{job}.txt"
    calls.write_text(calls.read_text() + "x" if calls.exists() else "x")
    if job == "dies" or (job == "dies once" and calls.read_text() == "x"):
        os.kill(os.getpid(), signal.SIGKILL)
    return job * 2


def make(folder):
    (folder / f"made {os.getpid()}").write_text("")
    return partial(double, folder)


@pytest.mark.slow
def test_each_job_has_one_result_and_a_dead_process_is_replaced(tmp_path):
    jobs = ["a", "dies", "b", "dies once", "c", "d"]
    results = dict(in_processes(jobs, 2, partial(make, tmp_path)))
    assert results == {**{job: job * 2 for job in jobs if job != "dies"}, "dies": Died(-signal.SIGKILL)}
    assert str(results["dies"]) == "its process died 2 times (exit code -9)"
    counts = {job: len((tmp_path / f"{job}.txt").read_text()) for job in jobs}
    assert counts == {"a": 1, "b": 1, "c": 1, "d": 1, "dies": 2, "dies once": 2}
    assert len(list(tmp_path.glob("made *"))) <= 2 + 3  # one per process, not per job


def test_no_job_starts_no_process(tmp_path):
    assert list(in_processes([], 2, partial(make, tmp_path))) == []
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_leaving_early_ends_the_processes(tmp_path):
    results = in_processes(list("abcdef"), 2, partial(make, tmp_path))
    next(results)
    results.close()
    pids = [int(path.name.split()[1]) for path in tmp_path.glob("made *")]
    deadline = time.time() + 10
    while any(os.path.exists(f"/proc/{pid}") for pid in pids) and time.time() < deadline:
        time.sleep(0.05)
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)
