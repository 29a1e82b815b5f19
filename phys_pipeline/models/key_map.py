"""How the names and layouts of one checkpoint's tensors become another's: a list of rules, as data, that runs both ways.

A rule names tensors by templates: ``{i}`` stands for a number, ``{p}`` for ``weight`` or ``bias``, ``{rest}`` for anything.
``Rule("blocks.{i}.qkv.{p}", ("layers.{i}.q.{p}", "layers.{i}.k.{p}", "layers.{i}.v.{p}"))`` cuts one tensor into three.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from phys_pipeline.errors import ConfigError

_FIELDS = {"i": r"\d+", "p": "weight|bias", "rest": ".+"}
SHOWN = 3  # names in a message


@dataclass(frozen=True)
class Rule:
    """One kind of tensor.

    Args:
        source, target: templates; several sources are joined into one target, several targets are cut from one source.
        shares: of each piece, where one tensor is cut (or, on the way back, was joined): ``(1, 4)`` is a fifth and the rest.
            None = equal.
        join: how several sources become one: ``"rows"``, ``"columns"`` (dimensions 0 and 1) or ``"sum"``.
        order: what happens to the rows of every target: ``interleave(head_dim)`` or ``swap_halves()``.
    """

    source: str | tuple[str, ...]
    target: str | tuple[str, ...]
    shares: tuple[int, ...] | None = None
    join: Literal["rows", "columns", "sum"] = "rows"
    order: Order | None = None

    @property
    def sources(self) -> tuple[str, ...]:
        return (self.source,) if isinstance(self.source, str) else self.source

    @property
    def targets(self) -> tuple[str, ...]:
        return (self.target,) if isinstance(self.target, str) else self.target

    def __post_init__(self) -> None:
        if len(self.sources) > 1 and len(self.targets) > 1:
            raise ConfigError(f"rule {self.sources[0]} both joins and cuts: write two")

    def forward(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The targets, made from the sources."""
        pieces = list(tensors) if len(self.targets) == 1 else _cut(tensors[0], self.shares or (1,) * len(self.targets), 0)
        if len(self.sources) > 1:
            pieces = [sum(pieces[1:], pieces[0]) if self.join == "sum" else torch.cat(pieces, dim=self._dimension)]
        return (
            pieces if self.order is None else [piece.index_select(0, self.order(len(piece)).to(piece.device)) for piece in pieces]
        )

    def backward(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The sources, made from the targets. Of a sum the first source gets all and the others zero, which sums to the same."""
        if self.order is not None:
            tensors = [t.index_select(0, torch.argsort(self.order(len(t))).to(t.device)) for t in tensors]
        if len(self.targets) > 1:
            return [torch.cat(list(tensors), dim=0)]
        if len(self.sources) == 1:
            return list(tensors)
        if self.join == "sum":
            return [tensors[0], *(torch.zeros_like(tensors[0]) for _ in self.sources[1:])]
        return _cut(tensors[0], self.shares or (1,) * len(self.sources), self._dimension)

    @property
    def _dimension(self) -> int:
        return 1 if self.join == "columns" else 0


Order = Callable[[int], Tensor]


def interleave(head_dim: int) -> Order:
    """Rows of each head from split halves to neighbouring pairs: 0, h, 1, h + 1, ... with h = head_dim / 2."""

    def order(rows: int) -> Tensor:
        if head_dim % 2 or rows % head_dim:
            raise ConfigError(f"{rows} rows are no whole number of heads of {head_dim}: this is another model")
        inside = torch.arange(head_dim).view(2, -1).T.flatten()
        return (torch.arange(0, rows, head_dim)[:, None] + inside).flatten()

    return order


def swap_halves() -> Order:
    """The second half of the rows first."""

    def order(rows: int) -> Tensor:
        if rows % 2:
            raise ConfigError(f"{rows} rows have no two halves: this is another model")
        return torch.arange(rows).roll(rows // 2)

    return order


@dataclass(frozen=True)
class Step:
    """One rule applied to named tensors."""

    rule: Rule
    sources: tuple[str, ...]
    targets: tuple[str, ...]


@dataclass(frozen=True)
class KeyMap:
    """All rules of a checkpoint; ``ignored`` are templates of tensors that the target works out for itself."""

    rules: tuple[Rule, ...]
    ignored: tuple[str, ...] = ()
    _patterns: dict[str, re.Pattern[str]] = field(default_factory=dict, repr=False, compare=False)

    def steps(self, names: Sequence[str], *, backward: bool = False) -> list[Step]:
        """What to do with each name, in the order of ``names``. ConfigError for names no rule knows, or lone halves of a join."""
        given = set(names)
        done: set[str] = set()
        steps: list[Step] = []
        unknown: list[str] = []
        for name in names:
            if name in done or (not backward and any(self._matches(template, name) is not None for template in self.ignored)):
                continue
            step = self._step(name, backward)
            if step is None:
                unknown.append(name)
                continue
            needed = step.targets if backward else step.sources
            absent = [n for n in needed if n not in given]
            if absent:
                raise ConfigError(f"the checkpoint holds {name} but not {listed(absent)}: it is incomplete, or another model")
            done.update(needed)
            steps.append(step)
        if unknown:
            raise ConfigError(f"the checkpoint holds tensors that this model doesn't know: {listed(unknown)}")
        return steps

    def forward(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """A whole checkpoint, renamed and rearranged. Pieces may share memory with ``tensors``."""
        return dict(converted(self.steps(list(tensors)), tensors.__getitem__))

    def backward(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The original names and layouts again; ``ignored`` tensors stay away."""
        found: dict[str, Tensor] = {}
        for step in self.steps(list(tensors), backward=True):
            found.update(zip(step.sources, step.rule.backward([tensors[name] for name in step.targets]), strict=True))
        return found

    def _step(self, name: str, backward: bool) -> Step | None:
        for rule in self.rules:
            for template in rule.targets if backward else rule.sources:
                fields = self._matches(template, name)
                if fields is not None:
                    sources, targets = (tuple(_filled(t, fields) for t in ts) for ts in (rule.sources, rule.targets))
                    return Step(rule, sources, targets)
        return None

    def _matches(self, template: str, name: str) -> dict[str, str] | None:
        pattern = self._patterns.get(template)
        if pattern is None:
            parts = re.split(r"\{(\w+)\}", template)
            text = "".join(re.escape(p) if k % 2 == 0 else f"(?P<{p}>{_FIELDS[p]})" for k, p in enumerate(parts))
            pattern = self._patterns[template] = re.compile(text)
        found = pattern.fullmatch(name)
        return None if found is None else found.groupdict()


def converted(steps: Sequence[Step], read: Callable[[str], Tensor]) -> Iterator[tuple[str, Tensor]]:
    """(target name, tensor) of every step, reading one step's sources at a time."""
    for step in steps:
        yield from zip(step.targets, step.rule.forward([read(name) for name in step.sources]), strict=True)


def listed(names: Sequence[str]) -> str:
    """The first few names, and how many more there are."""
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")


def _filled(template: str, fields: Mapping[str, str]) -> str:
    return re.sub(r"\{(\w+)\}", lambda found: fields[found[1]], template)


def _cut(tensor: Tensor, shares: tuple[int, ...], dimension: int) -> list[Tensor]:
    size = tensor.shape[dimension] if tensor.ndim > dimension else 0
    if size % sum(shares):
        raise ConfigError(f"{size} rows can't be cut in the ratio {':'.join(map(str, shares))}: this is another model")
    return list(tensor.split([size // sum(shares) * share for share in shares], dim=dimension))
