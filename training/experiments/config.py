"""Settings of an experiment: its arms, what is swept for each, and what all of them share. Imports no torch."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from phys_pipeline.errors import ConfigError
from phys_pipeline.evaluation.report.columns import ROLES
from training.config import TrainConfig

Setting = dict[str, Any]  # fields of TrainConfig that a sweep sets
BASELINE = "baseline"  # the column of the base model
PROCEDURAL = "procedural"  # the world of training/world
_GIVEN = (  # of TrainConfig: the runner's own business
    "output_dir", "cache_dir", "model", "data", "seed", "validation_data", "resume", "trackers", "log_every", "checkpoint_every",
    "checkpoint_limit",
)  # fmt: skip

_CHECKPOINTS = 50  # steps between the states that a killed training run goes on from


def digest(value: Any) -> str:
    """The first 12 digits of the SHA-256 of a JSON value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]


@dataclass(frozen=True)
class Arm:
    """One way to train the adapter, or to do without.

    Args:
        settings: fields of TrainConfig that make the arm.
        sweep: values of further fields; every combination is tried on the validation prompts.
        candidate: whether it is one of our spectral objectives, the best of which becomes the column "ours".
        ablates: the arm whose chosen setting it takes, with ``settings`` on top; it has no sweep of its own.
        best_of: no training: the base model makes several videos for each prompt, the motion score picks one.
        sampler: no training: the base model makes its videos with these of the sampling settings changed.
        unflawed: trained on the training clips without their flaws: what weights that find every flaw would leave.
        adapters: no training of its own: the adapters of these arms, each at its strength, all at once.
        role: of a column of the report, except "ours", which the validation decides.
    """

    name: str
    label: str = ""
    role: str = ""
    settings: Setting = field(default_factory=dict)
    sweep: dict[str, list[Any]] = field(default_factory=dict)
    candidate: bool = False
    ablates: str | None = None
    best_of: bool = False
    sampler: dict[str, Any] = field(default_factory=dict)
    unflawed: bool = False
    adapters: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.role not in ROLES or self.role in ("ours", "control", "baseline"):
            raise ConfigError(f"arm {self.name}: role {self.role!r} is not one an arm can have; leave it out")
        if self.name == BASELINE:
            raise ConfigError(f"arm {BASELINE}: that is the base model's column; call the arm something else")
        kinds = [kind for kind in ("best_of", "sampler", "adapters") if getattr(self, kind)]
        if len(kinds) > 1:
            raise ConfigError(f"arm {self.name}: {' and '.join(kinds)} exclude each other; make two arms of it")
        if kinds and (self.settings or self.sweep or self.ablates or self.unflawed):
            kind = kinds[0]
            raise ConfigError(f"arm {self.name}: an arm with {kind} trains nothing, so it takes no settings")
        if self.ablates and self.sweep:
            raise ConfigError(f"arm {self.name}: an ablation takes the setting of {self.ablates}; give it no sweep")

    @property
    def trains(self) -> bool:
        """Whether it has an adapter of its own."""
        return not (self.best_of or self.sampler or self.adapters)

    @property
    def alone(self) -> bool:
        """Whether it trains one setting, which no choice decides."""
        return self.trains and not self.ablates and len(self.combinations()) == 1

    def combinations(self) -> list[Setting]:
        """Every setting of the sweep, in the order of the file; one empty setting without a sweep."""
        return [dict(zip(self.sweep, values, strict=True)) for values in itertools.product(*self.sweep.values())]


@dataclass(frozen=True)
class Experiment:
    """What is compared, on what, how often.

    Args:
        title: of the page.
        world: folder of clips and prompts as :mod:`training.experiments.world` lays it out (beside it, for arms that are
            unflawed, a folder of its name and ``_unflawed`` with those clips); "procedural": that of
            :mod:`training.world`, None: the one of single shapes, both written to output_dir.
        clips: numbers of clips of a world that is written here, by folder.
        prompts: numbers of validation and test prompts.
        seeds: of the test runs; ``sweep_seed`` of the sweep, another one, so that the choice is not made on an adapter that is
            then tested.
        judged_before: how many of the first test prompts were also used to judge the base model, for the page's sensitivity.
        sampler: changes to the model's own sampling settings, such as num_inference_steps.
        train: fields of TrainConfig that all arms share.
    """

    arms: tuple[Arm, ...]
    output_dir: str = "out/experiment"
    report: str = "docs/results/experiment.md"
    title: str = "The experiment: does the loss make motion better?"
    model: str = "tiny"
    world: str | None = None
    world_seed: int = 0
    clips: dict[str, int] = field(default_factory=lambda: {"train": 1200, "held_out": 24, "clean": 200})
    flawed_share: float = 0.4
    prompts: dict[str, int] = field(default_factory=lambda: {"validation": 32, "test": 128})
    seeds: tuple[int, ...] = (0, 1, 2)
    sweep_seed: int = 100
    judged_before: int = 0
    sampler: dict[str, Any] = field(default_factory=dict)
    batch: int = 8  # videos sampled at once
    train: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = [arm.name for arm in self.arms]
        if len(set(names)) < len(names):
            raise ConfigError("two arms share a name")
        if sum(arm.role == "base_loss" for arm in self.arms) != 1:
            raise ConfigError("one arm needs the role base_loss: the others are compared with it")
        if not self.seeds or self.sweep_seed in self.seeds:
            raise ConfigError(f"sweep_seed={self.sweep_seed} must not be one of seeds={list(self.seeds)}, and there must be some")
        for arm in self.arms:
            if arm.ablates is not None and (arm.ablates not in names or self.arm(arm.ablates).ablates):
                raise ConfigError(
                    f"arm {arm.name} ablates {arm.ablates}, which is no arm of the experiment with a setting of its own"
                )
            for part in arm.adapters:
                if part not in names:
                    raise ConfigError(f"arm {arm.name} uses the adapter of {part}: there must be such an arm (in --arms too)")
                if not self.arm(part).alone:
                    raise ConfigError(
                        f"arm {arm.name} uses the adapter of {part}, which is no arm that trains one setting of its own"
                    )
            for setting in arm.combinations() if arm.trains else []:
                self.train_config(arm, setting, seed=0, output="-", world="-")
        if not any(arm.candidate for arm in self.arms):
            raise ConfigError("no arm is a candidate for the column ours")

    def arm(self, name: str) -> Arm:
        """The arm of this name."""
        return next(arm for arm in self.arms if arm.name == name)

    @property
    def base_loss(self) -> Arm:
        """What the others are compared with."""
        return next(arm for arm in self.arms if arm.role == "base_loss")

    @property
    def world_folder(self) -> Path:
        return Path(self.output_dir) / "world" if self.writes_world else Path(str(self.world))

    @property
    def writes_world(self) -> bool:
        return self.world in (None, PROCEDURAL)

    def parts(self, arm: Arm, setting: Setting) -> list[tuple[Arm, Setting, float]]:
        """Whose adapters make an arm's videos, trained with what, at which strength: its own at 1 where it trains."""
        if arm.trains:
            return [(arm, setting, 1.0)]
        return [(self.arm(name), self.arm(name).combinations()[0], weight) for name, weight in arm.adapters.items()]

    def loss(self, arm: Arm, setting: Mapping[str, Any]) -> Setting:
        """All fields of TrainConfig that make an arm's loss: an ablation has those of its parent, with its own on top."""
        return {**(self.arm(arm.ablates).settings if arm.ablates else {}), **arm.settings, **setting}

    def train_config(self, arm: Arm, setting: Mapping[str, Any], *, seed: int, output: str, world: str) -> TrainConfig:
        """Settings of one training run; the same for all arms but for the loss. Raises ConfigError for what a run can't take."""
        own = {**self.train, **self.loss(arm, setting)}
        if given := sorted(set(own) & set(_GIVEN)):
            raise ConfigError(f"arm {arm.name}: {given[0]} is set by the experiment itself; leave it out")
        known = {f.name for f in dataclasses.fields(TrainConfig)}
        if unknown := sorted(set(own) - known):
            raise ConfigError(f"arm {arm.name}: unknown setting {unknown[0]!r}; settings are fields of training/config.py")
        data = f"{world}_unflawed" if arm.unflawed else f"{world}/train"
        return TrainConfig(
            **own, model=self.model, data=data, validation_data=f"{world}/held_out", seed=seed, output_dir=output,
            cache_dir=str(Path(self.output_dir) / "cache"), resume="true", trackers=[], log_every=10,
            checkpoint_every=_CHECKPOINTS, checkpoint_limit=1,
        )  # fmt: skip

    def swept(self) -> list[Arm]:
        """Arms that the validation prompts judge: those with a sweep, the candidates, and the base loss, first."""
        judged = [a for a in self.arms if (a.trains or a.adapters) and not a.ablates and (a.candidate or a.sweep)]
        return [self.base_loss, *(arm for arm in judged if arm is not self.base_loss)]


def load_experiment(path: str | Path, overrides: Sequence[str] = (), arms: Sequence[str] = ()) -> Experiment:
    """Read a YAML file, apply ``key=value`` overrides (``train.rank=4``), keep the named arms (all by default).

    Raises ConfigError with one line.
    """
    file = Path(path)
    if not file.is_file():
        raise ConfigError(f"{file}: no such file; training/configs/experiment.yaml is one")
    try:
        values = yaml.safe_load(file.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise ConfigError(f"{file}: not valid YAML ({' '.join(str(error).split())})") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{file}: expected `key: value` lines, found {type(values).__name__}")
    for text in overrides:
        key, equals, raw = text.partition("=")
        if not equals:
            raise ConfigError(f"{text!r} is not an override; write key=value")
        *path_to, last = key.split(".")
        place = values
        for name in path_to:
            place = place.setdefault(name, {})
        place[last] = yaml.safe_load(raw)
    try:
        every = {name: Arm(name, **(entry or {})) for name, entry in values.pop("arms").items()}
        if unknown := [name for name in arms if name not in every]:
            raise ConfigError(f"there is no arm {unknown[0]!r}; arms are {', '.join(every)}")
        kept = tuple(arm for name, arm in every.items() if not arms or name in arms)
        return Experiment(kept, **{**values, "seeds": tuple(values.get("seeds", (0, 1, 2)))})
    except (TypeError, KeyError, AttributeError) as error:
        raise ConfigError(f"{file}: {' '.join(str(error).split())}") from None
