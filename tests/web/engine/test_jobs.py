"""Progress, cancelling, one job for each visitor, and one user of the device."""

from __future__ import annotations

import threading

import pytest

from phys_pipeline.errors import ConfigError
from phys_pipeline.web.engine.jobs import Cancelled, Done, Job, Jobs, Progress, spoken_seconds


def counting(job, steps=3):
    job.plan(steps)
    for step in range(steps + 1):
        job.report("work", step, steps)
    return "made"


def test_progress_then_the_result():
    events = list(Job().follow(counting))
    assert events[-1] == Done("made")
    assert [(event.done, event.total) for event in events[:-1]] == [(0, 3), (1, 3), (2, 3), (3, 3)]
    assert [round(event.share, 2) for event in events[:-1]] == [0, 0.33, 0.67, 1]
    assert events[0].seconds_left is None and events[3].seconds_left == 0


def test_earlier_work_says_how_long_it_takes():
    def work(job):
        job.plan(2, seconds=50.0)
        for step in range(3):
            job.report("work", step, 2)

    left = [event.seconds_left for event in list(Job().follow(work))[:-1]]
    assert left[0] == 50.0 and left[1] < 5 and left[2] == 0


def test_progress_in_words():
    assert str(Progress("baseline video", 3, 20, 0.1, 42.0)) == "baseline video, step 3 of 20; about 42 s left"
    assert str(Progress("loading the model")) == "loading the model"
    assert (
        str(Progress("baseline video", 0, 20)) == "baseline video, step 0 of 20; how long it takes is known after the first step"
    )
    assert [spoken_seconds(s) for s in (0.2, 89, 200, 8000)] == ["1 s", "89 s", "3 min", "2 h 13 min"]


def test_an_error_comes_through():
    def broken(job):
        raise ConfigError("no")

    with pytest.raises(ConfigError, match="no"):
        list(Job().follow(broken))


@pytest.mark.parametrize("how", ["cancel", "close"])
def test_work_ends_at_its_next_report(how):
    job, step, go = Job(), threading.Event(), threading.Event()

    def work(job):
        job.report("first")
        go.wait(10)
        job.report("second")
        step.set()

    following = job.follow(work)
    assert next(following).stage == "first"
    if how == "cancel":
        job.cancel()
        go.set()
        with pytest.raises(Cancelled):
            list(following)
    else:
        following.close()
        go.set()
    assert job.finished.wait(10) and not step.is_set()


def test_a_job_waits_for_the_device_and_can_be_cancelled_meanwhile():
    first, second = Job(), Job()
    with first.device("a training run"):
        following = second.follow(lambda job: job.device().__enter__())
        assert next(following).stage == "waiting for a training run"
        second.cancel()
        with pytest.raises(Cancelled):
            list(following)
    with Job().device():
        pass  # nobody holds it any more


def test_a_visitor_has_one_job():
    jobs = Jobs()
    with jobs.started("a") as job, jobs.started("b"):
        with pytest.raises(ConfigError, match="still running"), jobs.started("a"):
            pass
        assert jobs.cancel("a") and job.is_cancelled
        with jobs.started("a"):  # the cancelled one may still be ending
            pass
        assert len(jobs.running()) == 1
    assert not jobs.running() and not jobs.cancel("a")
