"""What the answers of a study say: shares with intervals, who was excluded and why, and whether less motion was preferred."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from phys_pipeline.errors import DataError
from phys_pipeline.evaluation.agreement import krippendorff_alpha
from phys_pipeline.evaluation.rows import Row
from phys_pipeline.evaluation.statistics import cluster_bootstrap, sign_test, wilson
from phys_pipeline.evaluation.study.build import KEY_SCHEMA, VERSION
from phys_pipeline.evaluation.study.intervals import two_way_bootstrap
from phys_pipeline.evaluation.study.session import QUESTIONS, Answer, Study

AMOUNTS = ("flow_score", "spectral_dynamic_degree")  # metrics that say how much moves, the first one that has values
SHORTEST, LONGEST = 1.0, 600.0  # seconds of an answer that counts


@dataclass(frozen=True)
class Share:
    """A share of votes with 95 % intervals; all but ``n`` are None without votes.

    ``wilson`` takes votes as independent, which they are not; ``participants`` and ``prompts`` resample whole participants or
    whole prompts, ``both`` the two at once (benchmarks/study_simulation.py says how often each is right); they are None where
    resampling has nothing to vary: all votes are equal, or there is one participant or prompt. ``p`` is the two-sided sign test
    against one half, votes taken as independent.
    """

    n: int
    value: float | None = None
    wilson: tuple[float, float] | None = None
    participants: tuple[float, float] | None = None
    prompts: tuple[float, float] | None = None
    both: tuple[float, float] | None = None
    p: float | None = None


@dataclass(frozen=True)
class _Vote:
    """One answer to one question about one pair."""

    participant: str
    place: tuple[str, int | None]  # id and seed
    question: str
    side: str
    chosen: str
    rejected: str
    labels: Mapping[str, str]


def analyse(
    study: Study,
    key: Mapping[str, Any],
    answers: Sequence[Answer],
    *,
    rows: Sequence[Row] = (),
    shortest: float = SHORTEST,
    longest: float = LONGEST,
) -> dict[str, Any]:
    """The analysis as JSON values.

    A participant counts who passed at least one attention check and failed none (the question about motion decides). Answers
    faster than ``shortest`` or slower than ``longest`` seconds are dropped. How much a clip moves is taken from ``rows``
    (``AMOUNTS``) about the same videos, by their SHA-256; without rows, from the spectral dynamic degree that the key holds.

    Raises:
        DataError: the key does not fit the study, or answers or rows are about other videos.
    """
    files = _files(study, key)
    columns: list[str] = key["columns"]
    excluded = _excluded(study, files, answers)
    kept = [answer for answer in answers if answer.participant not in excluded]
    timely = [answer for answer in kept if shortest <= answer.seconds <= longest]
    votes = [vote for answer in timely for vote in _votes(study, files, answer)]
    measure, amounts = _amounts(files, rows)
    return {
        "schema": "phys-pipeline/study-analysis",
        "version": 1,
        "title": study.title,
        "seed": study.seed,
        "columns": columns,
        "pairs_in_study": sum(trial["kind"] == "pair" for trial in study.trials.values()),
        "participants": {"all": len({a.participant for a in answers}), "kept": len({a.participant for a in kept})},
        "answers": {
            "all": len(answers),
            "of_kept_participants": len(kept),
            "too_fast": sum(answer.seconds < shortest for answer in kept),
            "too_slow": sum(answer.seconds > longest for answer in kept),
            "votes": len(votes),
        },
        "limits": {"shortest": shortest, "longest": longest},
        "excluded": [{"participant": who, "reason": reason} for who, reason in sorted(excluded.items())],
        "preferences": [
            _preference(votes, first, second, question) for first, second in combinations(columns, 2) for question in QUESTIONS
        ],
        "left": {question: asdict(_share(_asked(votes, question), lambda vote: vote.side == "left")) for question in QUESTIONS},
        "less_motion": {
            "measure": measure,
            **{question: asdict(_less_motion(_asked(votes, question), amounts)) for question in QUESTIONS},
        },
    }


def read_key(path: Path) -> dict[str, Any]:
    """The key that ``study build`` wrote. Raises DataError when it is none."""
    try:
        key = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise DataError(f"{path} can't be read as a study's key") from None
    if not isinstance(key, dict) or key.get("schema") != KEY_SCHEMA or key.get("version") != VERSION:
        raise DataError(f"{path} is not of version {VERSION} of {KEY_SCHEMA}")
    return key


def _files(study: Study, key: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    files: dict[str, dict[str, Any]] = key["files"]
    if set(files) != study.files:
        raise DataError("the key belongs to another study: its videos are not those of the study folder")
    return files


def _excluded(study: Study, files: Mapping[str, Mapping[str, Any]], answers: Sequence[Answer]) -> dict[str, str]:
    """Participant -> why none of the answers count."""
    passed: dict[str, list[bool]] = {answer.participant: [] for answer in answers}
    for answer in answers:
        trial = study.trials.get(answer.trial)
        if trial is None or {answer.left, answer.right} != set(trial["files"]):
            raise DataError(f"an answer of {answer.participant} is about videos that are not in this study")
        if trial["kind"] == "check":
            chosen = answer.left if answer.motion == "left" else answer.right
            passed[answer.participant].append(files[chosen]["check"] == "original")
    reasons = {}
    for participant, results in passed.items():
        if not results:
            reasons[participant] = "stopped before the first attention check"
        elif not all(results):
            reasons[participant] = f"failed {results.count(False)} of {len(results)} attention checks"
    return reasons


def _votes(study: Study, files: Mapping[str, Mapping[str, Any]], answer: Answer) -> list[_Vote]:
    trial = study.trials[answer.trial]
    if trial["kind"] != "pair":
        return []
    votes = []
    for question in QUESTIONS:
        side = answer.overall if question == "overall" else answer.motion
        chosen, rejected = (answer.left, answer.right) if side == "left" else (answer.right, answer.left)
        place = (files[chosen]["id"], files[chosen]["seed"])
        columns = files[chosen]["column"], files[rejected]["column"]
        votes.append(_Vote(answer.participant, place, question, side, *columns, trial["labels"]))
    return votes


def _asked(votes: Sequence[_Vote], question: str) -> list[_Vote]:
    return [vote for vote in votes if vote.question == question]


def _preference(votes: Sequence[_Vote], first: str, second: str, question: str) -> dict[str, Any]:
    """How often ``second`` was preferred to ``first``, altogether and for every stratum and motion."""
    about = [vote for vote in _asked(votes, question) if {vote.chosen, vote.rejected} == {first, second}]

    def preferred(vote: _Vote) -> bool:
        return vote.chosen == second

    groups = {}
    for label in ("stratum", "motion"):
        values = sorted({vote.labels[label] for vote in about if label in vote.labels})
        groups[label] = {
            value: asdict(_share([vote for vote in about if vote.labels.get(label) == value], preferred)) for value in values
        }
    return {
        "first": first,
        "second": second,
        "question": question,
        "share": asdict(_share(about, preferred)),
        "alpha": krippendorff_alpha((vote.place, vote.chosen) for vote in about),
        **groups,
    }


def _less_motion(votes: Sequence[_Vote], amounts: Mapping[tuple[str, tuple[str, int | None]], float]) -> Share:
    """How often the clip with less motion was chosen; pairs without two different amounts are left out."""
    known = []
    for vote in votes:
        chosen, rejected = amounts.get((vote.chosen, vote.place)), amounts.get((vote.rejected, vote.place))
        if chosen is not None and rejected is not None and chosen != rejected:
            known.append(vote)
    return _share(known, lambda vote: amounts[vote.chosen, vote.place] < amounts[vote.rejected, vote.place])


def _share(votes: Sequence[_Vote], holds: Callable[[_Vote], bool]) -> Share:
    if not votes:
        return Share(0)
    values = [(vote.participant, vote.place[0], float(holds(vote))) for vote in votes]
    true = sum(map(holds, votes))
    differ = 0 < true < len(votes)
    by_person = differ and len({who for who, _, _ in values}) > 1
    by_prompt = differ and len({what for _, what, _ in values}) > 1
    return Share(
        len(votes),
        true / len(votes),
        wilson(true, len(votes)),
        cluster_bootstrap([(who, value) for who, _, value in values]) if by_person else None,
        cluster_bootstrap([(what, value) for _, what, value in values]) if by_prompt else None,
        two_way_bootstrap(values) if by_person and by_prompt else None,
        sign_test(true, len(votes)),
    )


def _amounts(
    files: Mapping[str, Mapping[str, Any]], rows: Sequence[Row]
) -> tuple[str, dict[tuple[str, tuple[str, int | None]], float]]:
    """Name of the measure, and how much moves by (column, (id, seed)). Raises DataError for rows about other videos."""
    shown = {(entry["column"], (entry["id"], entry["seed"])): entry for entry in files.values() if "check" not in entry}
    if not rows:
        return "spectral dynamic degree", {place: float(entry["dynamic_degree"]) for place, entry in shown.items()}
    for metric in AMOUNTS:
        values = {row.digest: row.value for row in rows if row.metric == metric and row.value is not None}
        measured = {place: values[entry["sha256"]] for place, entry in shown.items() if entry["sha256"] in values}
        if measured:
            return metric, measured
    raise DataError(f"the rows have no {' or '.join(AMOUNTS)} of this study's videos: evaluate the same files, or leave rows out")
