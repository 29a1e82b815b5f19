"""The same function on many jobs in processes that may die: a dead process is replaced and its job tried again once."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, TypeVar

Job = TypeVar("Job")
Result = TypeVar("Result")

ATTEMPTS = 2


@dataclass(frozen=True)
class Died:
    """Instead of a result: the process that had the job died each time, last with ``exitcode``."""

    exitcode: int | None

    def __str__(self) -> str:
        return f"its process died {ATTEMPTS} times (exit code {self.exitcode})"


@dataclass
class _Worker(Generic[Job]):
    process: Any
    pipe: Connection
    job: tuple[int, Job] | None = None


def in_processes(
    jobs: Sequence[Job], workers: int, make: Callable[[], Callable[[Job], Result]]
) -> Iterator[tuple[Job, Result | Died]]:
    """Each job with its result, as they are done, in no fixed order.

    Args:
        make: called once in every new process, gives the function that does a job there. Both it and the jobs are pickled. An
            exception of the function ends its process, so that the function has to turn expected trouble into a result.
    """
    waiting = list(reversed(list(enumerate(jobs))))
    deaths = [0] * len(jobs)
    pool: list[_Worker[Job]] = []
    try:
        while waiting or any(worker.job for worker in pool):
            while waiting and len(pool) < workers:
                pool.append(_start(workers, make))
                _give(pool[-1], waiting.pop())
            ready = wait([worker.pipe for worker in pool if worker.job])
            for worker in [worker for worker in pool if worker.pipe in ready]:
                assert worker.job is not None
                number, job = worker.job
                try:
                    result = worker.pipe.recv()
                except (EOFError, ConnectionError):
                    pool.remove(worker)
                    worker.process.join()
                    deaths[number] += 1
                    if deaths[number] < ATTEMPTS:
                        waiting.append((number, job))
                    else:
                        yield job, Died(worker.process.exitcode)
                    continue
                worker.job = None
                if waiting:
                    _give(worker, waiting.pop())
                yield job, result
    finally:
        for worker in pool:
            worker.pipe.close()  # a process ends when its pipe does
        for worker in pool:
            if worker.job:
                worker.process.terminate()
            worker.process.join()


def _give(worker: _Worker[Job], job: tuple[int, Job]) -> None:
    worker.job = job
    with suppress(ConnectionError):  # it has died; receiving says so
        worker.pipe.send(job[1])


def _start(workers: int, make: Callable[[], Callable[[Any], Any]]) -> _Worker[Any]:
    context = multiprocessing.get_context("spawn")  # torch's threads do not survive a fork
    here, there = context.Pipe()
    process = context.Process(target=_work, args=(there, workers, make), daemon=True)
    process.start()
    there.close()
    return _Worker(process, here)


def _work(pipe: Connection, workers: int, make: Callable[[], Callable[[Any], Any]]) -> None:
    """A process: do what comes through the pipe until it closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // workers)))  # before torch is loaded
    function = make()
    try:
        while True:
            pipe.send(function(pipe.recv()))
    except (EOFError, ConnectionError):
        return
