"""Many small jobs in processes of this machine that may die: each job is done once, or said to have failed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from phys_pipeline import workers as processes


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
    for job, result in processes.in_processes(jobs, workers, partial(partial, _call, function)):
        yield job, Failure(str(result)) if isinstance(result, processes.Died) else result


def _call(function: Callable[..., Any], job: Job) -> Any:
    return function(*job.arguments)
