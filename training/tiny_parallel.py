"""Split a batch over threads that each compute alone: one meeting per step instead of one per tensor operation.

For models this small, and on machines whose cores others use too, that is faster than threads inside the operations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch


def warmed_cosine(step: int, steps: int, *, peak: float, warm_up: int, floor: float = 0.02) -> float:
    """Learning rate of ``step``: a straight rise over ``warm_up`` steps times a half cosine that ends at ``floor`` * ``peak``."""
    cosine = 0.5 * (1 + math.cos(math.pi * min(step / max(steps, 1), 1.0)))
    return peak * min(1.0, (step + 1) / max(warm_up, 1)) * (cosine * (1 - floor) + floor)


def trapezoid(step: int, steps: int, *, peak: float, warm_up: int, decay: float = 0.3, floor: float = 0.02) -> float:
    """Learning rate of ``step``: rise over ``warm_up`` steps, constant, then straight down over the last ``decay`` of ``steps``.

    Before the decay it doesn't depend on ``steps``, so a run can be resumed with another length.
    """
    left = (steps - step) / max(decay * steps, 1)
    return peak * min(1.0, (step + 1) / max(warm_up, 1)) * max(floor, min(1.0, left))


class ShardedGradients:
    """Compute the mean loss of equal shards, and leave the mean gradient in each parameter's ``.grad``.

    Deterministic: each shard's graph is its own, and gradients are added in the shards' order.
    """

    def __init__(self, parameters: Sequence[torch.nn.Parameter], workers: int) -> None:
        self.parameters = [parameter for parameter in parameters if parameter.requires_grad]
        self.workers = workers
        self._threads_before = torch.get_num_threads()
        torch.set_num_threads(1)
        self._pool = ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,))

    def __call__(self, loss_of_shard: Callable[[int], torch.Tensor]) -> float:
        def work(shard: int) -> tuple[float, tuple[torch.Tensor | None, ...]]:
            loss = loss_of_shard(shard)
            gradients = torch.autograd.grad(loss, self.parameters, allow_unused=True)
            return float(loss.detach()), gradients

        results = list(self._pool.map(work, range(self.workers)))
        for index, parameter in enumerate(self.parameters):
            parts = [gradients[index] for _, gradients in results]
            present = [part for part in parts if part is not None]
            if not present:
                parameter.grad = None
                continue
            total = present[0].clone() if len(present) == 1 else present[0] + present[1]
            for part in present[2:]:
                total += part
            parameter.grad = total.div_(self.workers)
        return sum(loss for loss, _ in results) / self.workers

    def close(self) -> None:
        """End the threads, and give operations theirs back."""
        self._pool.shutdown()
        torch.set_num_threads(self._threads_before)
