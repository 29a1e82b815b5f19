"""Many small jobs in processes of this machine that may die: each job is done once, or said to have failed."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, TypeAlias

_ATTEMPTS = 2  # a job whose process died is tried once more, in a new process


@dataclass(frozen=True)
class Job:
    """One call of the function; `key` is the job's own, all of it can be pickled."""

    key: Any  # hashable
    arguments: tuple[Any, ...]


@dataclass(frozen=True)
class Failure:
    """Takes the place of the result of a job whose process died."""

    reason: str


Engine: TypeAlias = Callable[[Sequence[Job], int, Callable[..., Any]], Iterator[tuple[Job, Any]]]


def in_processes(jobs: Sequence[Job], workers: int, function: Callable[..., Any]) -> Iterator[tuple[Job, Any]]:
    """Each job with `function(*arguments)`, as they are done; a process that dies is replaced, its job tried again once."""
    waiting, deaths = list(reversed(jobs)), dict.fromkeys((job.key for job in jobs), 0)
    pool: list[_Worker] = []
    try:
        while waiting or any(worker.job for worker in pool):
            while waiting and len(pool) < workers:
                pool.append(_start(workers, function))
                _give(pool[-1], waiting.pop())
            ready = wait([worker.pipe for worker in pool if worker.job])
            for worker in [worker for worker in pool if worker.pipe in ready]:
                job = worker.job
                assert job is not None
                try:
                    result = worker.pipe.recv()
                except (EOFError, ConnectionError):
                    pool.remove(worker)
                    worker.process.join()
                    deaths[job.key] += 1
                    if deaths[job.key] < _ATTEMPTS:
                        waiting.append(job)
                    else:
                        yield job, Failure(f"its process died {_ATTEMPTS} times (exit code {worker.process.exitcode})")
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


@dataclass
class _Worker:
    process: Any
    pipe: Connection
    job: Job | None = None


def _give(worker: _Worker, job: Job) -> None:
    worker.job = job
    with suppress(ConnectionError):  # it has died; receiving says so
        worker.pipe.send(job.arguments)


def _start(workers: int, function: Callable[..., Any]) -> _Worker:
    context = multiprocessing.get_context("spawn")  # torch's threads do not survive a fork
    here, there = context.Pipe()
    process = context.Process(target=_work, args=(there, workers, function), daemon=True)
    process.start()
    there.close()
    return _Worker(process, here)


def _work(pipe: Connection, workers: int, function: Callable[..., Any]) -> None:
    """A process: do what comes through the pipe until it closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // workers)))  # before torch is loaded
    try:
        while True:
            pipe.send(function(*pipe.recv()))
    except (EOFError, ConnectionError):
        return
