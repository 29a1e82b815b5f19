import os
import signal
import time
from pathlib import Path

from training.pool import Failure, Job, in_processes


def length_or_death(path):
    """The file says what happens to the process that reads it."""
    text = path.read_text()
    died = path.with_suffix(".died")
    if text == "dies" or (text == "dies once" and not died.exists()):
        died.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    path.with_suffix(f".{os.getpid()}").touch()
    return len(text)


def test_every_job_is_done_once_or_has_failed(tmp_path):
    jobs = []
    for number, text in enumerate(["", "a", "dies once", "aaa", "dies", "aaaaa"]):
        (tmp_path / f"{number}.txt").write_text(text)
        jobs.append(Job(number, (tmp_path / f"{number}.txt",)))
    done = [(job.key, result) for job, result in in_processes(jobs, 2, length_or_death)]
    expected = {0: 0, 1: 1, 2: 9, 3: 3, 4: Failure("its process died 2 times (exit code -9)"), 5: 5}
    assert len(done) == 6 and dict(done) == expected
    assert list(in_processes([], 2, length_or_death)) == []


def test_processes_end_with_the_iteration(tmp_path):
    for number in range(4):
        (tmp_path / f"{number}.txt").write_text("a")
    results = in_processes([Job(n, (tmp_path / f"{n}.txt",)) for n in range(4)], 1, length_or_death)
    next(results)
    results.close()  # as when the run is interrupted
    (process,) = {int(path.suffix[1:]) for path in tmp_path.iterdir() if path.suffix[1:].isdigit()}
    until = time.monotonic() + 10
    while Path(f"/proc/{process}").exists() and time.monotonic() < until:
        time.sleep(0.01)
    assert not Path(f"/proc/{process}").exists()
