"""Scoring on a Ray cluster, or on a Ray of this machine; Ray is the optional extra `cluster`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from phys_pipeline.errors import ConfigError

Score = Callable[[Path, str], dict[str, Any]]


def in_ray(jobs: Sequence[Any], workers: int, score: Score) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Each job with its measured columns, as they are done; `jobs` have `entry.path` and `preset`.

    Joins the cluster of RAY_ADDRESS, else starts Ray here with `workers` processors. Every machine needs phys-pipeline installed
    and the clips under the same paths; the trainer's own code travels with the task. A clip whose process dies twice has a row
    with `error`. Raises ConfigError without Ray.
    """
    try:
        import ray
    except ImportError:
        raise ConfigError("--engine ray needs Ray: pip install ray (the extra `cluster`), or leave it out") from None
    if not ray.is_initialized():
        here = {} if os.environ.get("RAY_ADDRESS") else {"num_cpus": workers}
        ray.init(log_to_driver=False, include_dashboard=False, **here)
    ray.cloudpickle.register_pickle_by_value(sys.modules[score.__module__])
    task = ray.remote(max_retries=1, num_cpus=1)(score)
    most = 2 * max(1, int(ray.cluster_resources().get("CPU", 1)))  # a million clips at once would only wait
    waiting = iter(jobs)
    running: dict[Any, Any] = {}
    while True:
        while len(running) < most and (job := next(waiting, None)) is not None:
            running[task.remote(job.entry.path, job.preset)] = job
        if not running:
            return
        (finished, *_), _ = ray.wait(list(running))
        job = running.pop(finished)
        try:
            yield job, ray.get(finished)
        except ray.exceptions.RayError as error:
            yield job, {"error": f"its process failed ({type(error).__name__})"}
