"""The choice of each arm's setting on validation prompts, written down with a hash before a test prompt is read.

The rule never looks at the loss: every setting is compared with the base loss on the same prompts and noise, and chosen by
tracked motion, among those that keep accuracy, amount of motion and quality of the frames. A guard counts as broken when that is
shown: of some fifty validation prompts with a moving subject a single one shifts the dynamic degree by 2 %, so that an estimate
a little beyond the bound says nothing.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from phys_pipeline.atomic import atomic_file
from phys_pipeline.errors import ConfigError
from phys_pipeline.evaluation.scores import Scores
from training.experiments.config import Arm, Setting
from training.experiments.effects import MUST_HOLD, Requirement, effect

RULE = (
    "Against LoRA with base loss, same validation prompts, noise and training seed: fewest broken guards first, then the lowest "
    "geometric mean of the ratios of SIM(2) jerk and SIM(2) residual, then the first in the file. Guards: direction accuracy at "
    "most 3 points lower, dynamic degree and flow at least 0.95, spectrum distance and Frechet distance of the frames at most "
    "1.02; one is broken when its whole 95 % interval is beyond its bound."
)
_JUDGES = ("sim2_jerk", "sim2_residual")
GUARDS = (
    Requirement("direction_accuracy", "Direction right", "points", 1, -3.0, False),
    *(wanted for wanted in MUST_HOLD if not wanted.gain),
)


@dataclass(frozen=True)
class Judgement:
    """One setting: its score (lower is better, infinite where nothing could be measured) and the guards that it breaks.

    ``effects``: against the base loss, each as its value and the ends of its interval (none where it has no interval).
    """

    setting: Setting
    score: float
    broken: tuple[str, ...]
    effects: dict[str, list[float] | None]

    @property
    def order(self) -> tuple[int, float]:
        return len(self.broken), self.score


def judge(base_loss: Mapping[str, Scores], column: Mapping[str, Scores], setting: Setting, clean: Path) -> Judgement:
    """Compare a setting's column with that of the base loss."""
    ratios = {wanted.metric: effect(base_loss, column, wanted, clean) for wanted in MUST_HOLD if wanted.metric in _JUDGES}
    known = [found.value for found in ratios.values() if found is not None and found.value > 0]
    score = math.exp(sum(map(math.log, known)) / len(known)) if len(known) == len(_JUDGES) else math.inf
    guards = {wanted.metric: effect(base_loss, column, wanted, clean) for wanted in GUARDS}
    broken = tuple(wanted.metric for wanted in GUARDS if wanted.broken(guards[wanted.metric]))
    values = {
        metric: None if found is None else [round(number, 6) for number in (found.value, *(found.interval or ()))]
        for metric, found in {**ratios, **guards}.items()
    }
    return Judgement(setting, score, broken, values)


def choose(judged: Mapping[str, Sequence[Judgement]], candidates: Sequence[str], basis: Mapping[str, Any]) -> dict[str, Any]:
    """The chosen setting of each arm and the best candidate, as JSON values with their hash.

    ``basis`` says what the choice rests on (settings, world, prompts, values): it is part of the hash.
    """
    best = {arm: min(settings, key=lambda j: j.order) for arm, settings in judged.items()}  # min keeps the first of equals
    ours = min(candidates, key=lambda arm: best[arm].order)
    content = {
        "rule": RULE,
        "basis": dict(basis),
        "chosen": {arm: found.setting for arm, found in best.items()},
        "ours": ours,
        "judged": {arm: [_plain(j) for j in settings] for arm, settings in judged.items()},
    }
    return {**content, "hash": _hash(content)}


def record_choice(file: Path, choice: Mapping[str, Any]) -> dict[str, Any]:
    """Write the choice once. Raises ConfigError where another one is recorded: it would have been made after looking."""
    if file.is_file():
        recorded = read_choice(file)
        if recorded["hash"] != choice["hash"]:
            raise ConfigError(
                f"{file} records another choice ({recorded['hash'][:12]}, now {choice['hash'][:12]}) for the same experiment: "
                "its cells changed afterwards; use another output_dir"
            )
        return recorded
    with atomic_file(file) as temporary:
        temporary.write_text(json.dumps(choice, indent=1, sort_keys=True), encoding="utf-8")
    return dict(choice)


def read_choice(file: Path) -> dict[str, Any]:
    """The recorded choice. Raises ConfigError when there is none yet, or when it was edited."""
    if not file.is_file():
        raise ConfigError(f"no choice is recorded ({file}): run the sweep first; test prompts are not read before")
    choice = json.loads(file.read_text(encoding="utf-8"))
    if choice.get("hash") != _hash({key: value for key, value in choice.items() if key != "hash"}):
        raise ConfigError(f"{file} was changed after it was recorded: its hash is wrong")
    return choice


def _plain(judgement: Judgement) -> dict[str, Any]:
    found = asdict(judgement)
    return {
        **found,
        "broken": list(judgement.broken),
        "score": None if math.isinf(judgement.score) else round(judgement.score, 6),
    }


def _hash(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def chosen_setting(choice: Mapping[str, Any], arm: Arm) -> Setting:
    """The setting that a recorded choice gives an arm: an ablation has its parent's, what was not swept has none."""
    found: Setting = choice["chosen"].get(arm.ablates or arm.name, {})
    return found
