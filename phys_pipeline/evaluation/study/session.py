"""One study as participants meet it: which pair comes next, on which side what is shown, and the file of answers.

Knows neither columns nor HTTP. Order and sides are a function of the participant's id and the study's seed, so that anybody can
go on after a pause and nothing has to be remembered but the answers.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import secrets
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from phys_pipeline.errors import DataError
from phys_pipeline.evaluation.study.build import STUDY_SCHEMA, VERSION

SIDES = ("left", "right")
QUESTIONS = ("overall", "motion")
_PARTICIPANT = re.compile(r"[0-9a-f]{16}")
_LONGEST = 24 * 3600.0  # seconds
_MOST_PLAYS = 10_000


@dataclass(frozen=True)
class Trial:
    """One trial as one participant sees it; ``left`` and ``right`` are file names."""

    trial: str
    position: int
    total: int
    text: str
    left: str
    right: str


@dataclass(frozen=True)
class Answer:
    """One line of ``answers.jsonl``. ``seconds`` from the moment both videos could play; ``plays`` of both together."""

    participant: str
    trial: str
    position: int
    left: str
    right: str
    overall: str
    motion: str
    seconds: float
    plays: int
    replays: int


class Refused(DataError):
    """An answer that does not fit: unknown participant or trial, wrong order, wrong values."""


class Study:
    """A study folder; ``study.json`` itself is never shown to participants. Raises DataError when it is none."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        file = folder / "study.json"
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            raise DataError(f"{folder} is no study folder: make one with `phys-pipeline study build`") from None
        if content.get("schema") != STUDY_SCHEMA or content.get("version") != VERSION:
            raise DataError(f"{file} is not of version {VERSION} of {STUDY_SCHEMA}")
        self.title: str = content["title"]
        self.seed: int = content["seed"]
        self.per_person: int | None = content["per_person"]
        self.trials: dict[str, dict[str, Any]] = {trial["trial"]: trial for trial in content["trials"]}
        self.digest = hashlib.sha256("".join(sorted(self.trials)).encode()).hexdigest()  # two studies never share one
        self.files = frozenset(name for trial in self.trials.values() for name in trial["files"])

    def video(self, name: str) -> Path | None:
        """The file of a video of this study; None for every other name."""
        return self.folder / "videos" / name if name in self.files else None

    def plan(self, participant: str) -> list[Trial]:
        """All trials of a participant in order.

        Pairs are drawn and shuffled; the checks stand at even distances. Each column is on the left in half of its pairs with
        another, the moving video in half of the checks: who always takes one side prefers no column and fails the checks.
        """
        digest = hashlib.sha256(f"{self.seed}:{participant}".encode()).digest()
        rng = random.Random(int.from_bytes(digest, "big"))
        pairs = [trial for trial in self.trials.values() if trial["kind"] == "pair"]
        checks = [trial for trial in self.trials.values() if trial["kind"] == "check"]
        pairs = rng.sample(pairs, self.per_person or len(pairs))
        rng.shuffle(checks)
        exchanged = _half(checks, rng)
        for kind in sorted({trial["columns"] for trial in pairs}):
            exchanged |= _half([trial for trial in pairs if trial["columns"] == kind], rng)
        order = list(pairs)
        for index, check in enumerate(checks):
            order.insert(round((index + 1) * len(pairs) / (len(checks) + 1)) + index, check)
        shown = []
        for position, trial in enumerate(order):
            left, right = reversed(trial["files"]) if exchanged[trial["trial"]] else trial["files"]
            shown.append(Trial(trial["trial"], position, len(order), trial["text"], left, right))
        return shown


class Session:
    """Participants of one running study and their answers; any number of threads may use it.

    Args:
        study: what is shown.
        answers: JSON lines; every answer is appended and synced before it counts. One process at a time.
    """

    def __init__(self, study: Study, answers: Path) -> None:
        self.study, self.path = study, answers
        self._lock = threading.Lock()
        self._given: dict[str, set[str]] = {}
        for answer in read_answers(answers):
            self._given.setdefault(answer.participant, set()).add(answer.trial)
        answers.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._file = os.open(answers, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as error:
            raise DataError(f"{answers} can't be written: {error.strerror}") from None
        self._end_cut_line()

    def close(self) -> None:
        os.close(self._file)

    @staticmethod
    def new_participant() -> str:
        """A random id; it is all that is kept of a person."""
        return secrets.token_hex(8)

    def next_trial(self, participant: str) -> Trial | None:
        """The first trial that the participant has not answered; None when all are. Raises Refused for an id of another form."""
        given = self._answered(participant)
        return next((trial for trial in self.study.plan(participant) if trial.trial not in given), None)

    def progress(self, participant: str) -> tuple[int, int]:
        """How many trials are answered, and of how many."""
        return len(self._answered(participant)), len(self.study.plan(participant))

    def record(self, participant: str, given: Mapping[str, Any]) -> Answer:
        """Append an answer: ``trial``, ``overall`` and ``motion`` ("left" or "right"), ``seconds``, ``plays``, ``replays``.

        Raises:
            Refused: it is not the participant's next trial (an answer sent twice, for example), or a value is wrong.
        """
        with self._lock:
            shown = self.next_trial(participant)
            if shown is None or given.get("trial") != shown.trial:
                raise Refused("this is not your next pair: reload the page")
            for question in QUESTIONS:
                if given.get(question) not in SIDES:
                    raise Refused(f"{question} must be left or right")
            answer = Answer(
                participant, shown.trial, shown.position, shown.left, shown.right, given["overall"], given["motion"],
                round(_number(given, "seconds", _LONGEST), 3), int(_number(given, "plays", _MOST_PLAYS)),
                int(_number(given, "replays", _MOST_PLAYS)),
            )  # fmt: skip
            line = (json.dumps(asdict(answer)) + "\n").encode()
            if os.write(self._file, line) != len(line):
                self._end_cut_line()
                raise OSError("the answer could not be written whole")
            os.fsync(self._file)
            self._given.setdefault(participant, set()).add(shown.trial)
            return answer

    def _answered(self, participant: str) -> set[str]:
        if not isinstance(participant, str) or not _PARTICIPANT.fullmatch(participant):
            raise Refused("this is no participant's id: open the page again")
        return self._given.get(participant, set())

    def _end_cut_line(self) -> None:
        if not self.path.read_bytes().endswith(b"\n") and os.fstat(self._file).st_size:
            os.write(self._file, b"\n")


def read_answers(path: Path) -> list[Answer]:
    """The answers of a file, each participant's first for every trial; a line that a crash cut off is left out.

    Raises DataError for a whole line that is no answer.
    """
    if not path.exists():
        return []
    known: dict[tuple[str, str], Answer] = {}
    names = {field.name for field in fields(Answer)}
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    for number, line in enumerate(lines, 1):
        try:
            content = json.loads(line)
        except ValueError:
            continue  # cut off
        if not isinstance(content, dict) or set(content) != names or not _is_sound(content):
            raise DataError(f"{path}, line {number} is no answer: delete the line or the file")
        answer = Answer(**content)
        known.setdefault((answer.participant, answer.trial), answer)
    return list(known.values())


def _is_sound(content: Mapping[str, Any]) -> bool:
    return all(content[question] in SIDES for question in QUESTIONS) and isinstance(content["seconds"], int | float)


def _half(trials: Sequence[Mapping[str, Any]], rng: random.Random) -> dict[str, bool]:
    """Which trials exchange their sides: half of them, an odd one by chance."""
    flags = [index % 2 == 0 for index in range(len(trials))]
    if len(trials) % 2:
        flags[-1] = rng.random() < 0.5
    rng.shuffle(flags)
    return {trial["trial"]: flag for trial, flag in zip(trials, flags, strict=True)}


def _number(given: Mapping[str, Any], name: str, largest: float) -> float:
    value = given.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= largest:
        raise Refused(f"{name} must be a number from 0 to {largest:g}")
    return float(value)
