"""Jobs on a Ray cluster, or on a Ray of this machine; Ray is the optional extra `cluster`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from phys_pipeline.errors import ConfigError
from training.pool import Failure, Job

_STORE_BYTES = 100 << 20  # of Ray's shared memory: jobs are paths, results are numbers


def in_ray(jobs: Sequence[Job], workers: int, function: Callable[..., Any], gpus: bool = False) -> Iterator[tuple[Job, Any]]:
    """Each job with `function(*arguments)`, as they are done.

    Joins the cluster of RAY_ADDRESS, else starts Ray here with `workers` processors and ends it afterwards. Every machine needs
    phys-pipeline installed and the files under the same paths; the module of `function` travels with it. A job whose process
    dies twice has a Failure. With `gpus` a job holds one GPU, where the cluster has any. Raises ConfigError without Ray.
    """
    if not jobs:
        return
    with _connected(workers) as ray:
        ray.cloudpickle.register_pickle_by_value(sys.modules[function.__module__])
        resources = ray.cluster_resources()
        per_job: dict[str, int] = {"num_gpus": 1} if gpus and resources.get("GPU") else {"num_cpus": 1}
        task = ray.remote(max_retries=1, **per_job)(function)
        most = 2 * max(1, int(resources.get("CPU", 1)))  # a million at once would only wait
        waiting = iter(jobs)
        running: dict[Any, Job] = {}
        while True:
            while len(running) < most and (job := next(waiting, None)) is not None:
                running[task.remote(*job.arguments)] = job
            if not running:
                return
            (finished, *_), _ = ray.wait(list(running))
            job = running.pop(finished)
            try:
                result = ray.get(finished)
            except ray.exceptions.RayError as error:
                result = Failure(f"its process failed ({type(error).__name__})")
            yield job, result


@contextmanager
def _connected(workers: int) -> Iterator[Any]:
    """Ray, connected; what was started here is ended."""
    try:
        import ray
    except ImportError:
        raise ConfigError("--engine ray needs Ray: pip install ray (the extra `cluster`), or leave it out") from None
    if ray.is_initialized():
        yield ray
        return
    here: dict[str, Any] = {}
    if not os.environ.get("RAY_ADDRESS"):
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        here = {"num_cpus": workers, "object_store_memory": _STORE_BYTES, "_node_ip_address": "127.0.0.1"}
    ray.init(log_to_driver=False, include_dashboard=False, **here)
    try:
        yield ray
    finally:
        ray.shutdown()
