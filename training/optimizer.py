"""The optimiser, and an average of the trained weights over steps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from phys_pipeline.errors import ConfigError
from training.config import TrainConfig
from training.sharding import placed_like


def check_optimizer(config: TrainConfig) -> None:
    """Raise ConfigError when the optimiser's package is missing."""
    if config.optimizer == "adamw8bit":
        try:
            import bitsandbytes  # noqa: F401
        except ImportError:
            raise ConfigError("optimizer=adamw8bit needs bitsandbytes: pip install bitsandbytes, or optimizer=adamw") from None


def make_optimizer(parameters: list[nn.Parameter], config: TrainConfig) -> torch.optim.Optimizer:
    """AdamW (Loshchilov & Hutter 2019, arXiv:1711.05101), with its moments in 8 bits for `adamw8bit`.

    Fused: an adapter has hundreds of small matrices, and a dozen operations on each cost more than their arithmetic.
    """
    check_optimizer(config)
    options: dict[str, Any] = {"lr": config.learning_rate, "weight_decay": config.weight_decay}
    if config.optimizer == "adamw8bit":
        import bitsandbytes

        return bitsandbytes.optim.AdamW8bit(parameters, **options)
    return torch.optim.AdamW(parameters, fused=True, **options)


class WeightAverage:
    """Exponential moving average of parameters: `decay` of the old average plus the rest of the new value, after each step."""

    def __init__(self, parameters: list[nn.Parameter], decay: float) -> None:
        self.parameters, self.decay = parameters, decay
        self.average: list[Tensor] = [p.detach().clone() for p in parameters]

    @torch.no_grad()
    def update(self) -> None:
        """Take in the parameters as they are now."""
        torch._foreach_lerp_(self.average, [p.detach() for p in self.parameters], 1.0 - self.decay)

    @torch.no_grad()
    def load(self, average: list[Tensor]) -> None:
        """Take over a saved average. Raises ConfigError when it is not of these parameters."""
        if [a.shape for a in average] != [a.shape for a in self.average]:
            raise ConfigError("the checkpoint's weight average is of another model: set ema_decay=null or start afresh")
        for mine, saved in zip(self.average, average, strict=True):
            mine.copy_(placed_like(saved, mine))

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The parameters hold the average inside the block, and their own values again after it."""
        own = [p.detach().clone() for p in self.parameters]
        try:
            _copy(self.average, self.parameters)
            yield
        finally:
            _copy(own, self.parameters)


@torch.no_grad()
def _copy(values: list[Tensor], parameters: list[nn.Parameter]) -> None:
    for value, parameter in zip(values, parameters, strict=True):
        parameter.copy_(value)
