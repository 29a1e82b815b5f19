"""The blind study of a running app: its participants' trials, their answers, and what its host may see."""

from __future__ import annotations

import csv
import json
import math
import secrets
import shutil
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from phys_pipeline.errors import ConfigError, DataError
from phys_pipeline.evaluation.manifest import read_samples
from phys_pipeline.evaluation.study.analyse import analyse, read_key
from phys_pipeline.evaluation.study.build import build_study
from phys_pipeline.evaluation.study.report import study_markdown
from phys_pipeline.evaluation.study.session import Answer, Refused, Session, Study, Trial, read_answers
from phys_pipeline.web.engine.player import blind_value
from phys_pipeline.web.engine.runs import Runs
from phys_pipeline.web.engine.settings import AppSettings

_MOST_PLAYS = 10_000
PEEKING = "Results looked at while answers come in are too good now and then: decide beforehand how many people you ask."


@dataclass
class Seat:
    """One participant at one open page; lives on the server alone. ``token`` names the showing of a trial."""

    participant: str
    trial: Trial | None = None
    token: str = ""
    since: float = 0.0
    plays: int = 0


class Studies:
    """The one study that this app shows, if any. Raises DataError for a folder that holds none."""

    def __init__(self, settings: AppSettings) -> None:
        self.settings = settings
        self._session: Session | None = None
        self._key: Path | None = None
        self._shown = settings.root / "study"
        self._looks = Runs(settings.root / "study-results")  # two hosts may look at the same time
        if settings.study is not None:
            self.open(settings.study, settings.study_key)

    @property
    def title(self) -> str | None:
        """The study's headline; None without a study."""
        return None if self._session is None else self._session.study.title

    def open(self, folder: Path, key: Path | None) -> None:
        """Show the study of a folder from now on."""
        session = Session(Study(folder), folder / "answers.jsonl")
        self.close()
        self._session, self._key = session, key
        self._shown.mkdir(parents=True, exist_ok=True)

    def close(self) -> None:
        """End the study that is shown; its answers are on the disk."""
        if self._session is not None:
            self._session.close()
        self._session = None

    def is_host(self, offered: Any) -> bool:
        """Whether somebody knows the host's key."""
        known = self.settings.host_key
        return bool(known) and isinstance(offered, str) and secrets.compare_digest(offered.encode(), known.encode())

    def build(self, first: str, second: str, prompts: str, output: str) -> None:
        """Make a study from two folders of videos (files of one name are a pair) and show it. For the host of a local app."""
        if not self.settings.local:
            raise ConfigError("a study is built on the machine itself: phys-pipeline study build, then app.py --study FOLDER")
        folders = [Path(name.strip()) for name in (first, second)]
        for folder in folders:
            if not str(folder) or not folder.is_dir():
                raise DataError(f"{folder.name or 'the first field'} is no folder of videos")
        names = [folder.name for folder in folders]
        if names[0] == names[1]:
            names = [folder.parent.name + "-" + folder.name for folder in folders]
        sources = [f"{name}={folder}" for name, folder in zip(names, folders, strict=True)]
        target = Path(output.strip()) if output.strip() else self.settings.root / f"study-{secrets.token_hex(4)}"
        key = target.with_name(f"{target.name}.key.json")
        build_study(read_samples(sources, prompts.strip() or None), target, key)
        self.open(target, key)

    def enter(self, remembered: Any) -> Seat:
        """A seat for a new participant, or for one whose browser remembers the id."""
        session = self._running()
        seat = Seat(remembered if isinstance(remembered, str) else Session.new_participant())
        try:
            session.progress(seat.participant)
        except Refused:
            seat = Seat(Session.new_participant())
        self._next(seat)
        return seat

    def played(self, seat: Seat, watched: Any) -> None:
        """Both videos have reached their end, says the page: the pair may be answered. Of an earlier pair it changes nothing."""
        if seat.trial is not None and isinstance(watched, Mapping) and watched.get("token") == seat.token:
            seat.plays = max(seat.plays, int(_clamped(watched, "plays", _MOST_PLAYS)))

    def vote(self, seat: Seat, overall: Any, motion: Any, watched: Any) -> None:
        """Store both answers and go on. Raises Refused, in words for the participant, when something is missing or wrong.

        ``watched`` is what the player tells: token, replays, and the seconds since both videos could play.
        """
        session = self._running()
        if seat.trial is None:
            raise Refused("there is no pair to answer")
        if not seat.plays:
            raise Refused("please let both videos play to their end first")
        if overall is None or motion is None:
            raise Refused("please answer both questions")
        if not isinstance(watched, Mapping) or watched.get("token") != seat.token:
            raise Refused("this answer belongs to another pair: look at this one")
        session.record(
            seat.participant,
            {
                "trial": seat.trial.trial, "overall": overall, "motion": motion, "plays": seat.plays,
                "seconds": _clamped(watched, "seconds", time.monotonic() - seat.since),
                "replays": int(_clamped(watched, "replays", _MOST_PLAYS)),
            },
        )  # fmt: skip
        self._next(seat)

    def progress(self, seat: Seat) -> tuple[int, int]:
        """How many pairs the participant has answered, of how many."""
        return self._running().progress(seat.participant)

    def value(self, seat: Seat) -> dict[str, Any] | None:
        """What the player shows to a seat; copies of the study's files, whose names say nothing."""
        if seat.trial is None:
            return None
        files = {}
        for side, name in (("left", seat.trial.left), ("right", seat.trial.right)):
            source = self._running().study.video(name)
            assert source is not None
            files[side] = self._shown / name
            if not files[side].is_file():
                shutil.copyfile(source, files[side])
        return blind_value(files, seat.trial.text, seat.token)

    def results(self) -> tuple[str, list[Path]]:
        """The analysis so far as Markdown, and files to keep: answers as JSON lines and CSV, the analysis."""
        session = self._running()
        answers = read_answers(session.path)
        run = self._looks.new()
        kept = [run.path("answers.jsonl"), run.path("answers.csv")]
        shutil.copyfile(session.path, kept[0])
        with kept[1].open("w", newline="", encoding="utf-8") as stream:
            writer = csv.DictWriter(stream, [field.name for field in fields(Answer)])
            writer.writeheader()
            writer.writerows(asdict(answer) for answer in answers)
        if self._key is None or not self._key.is_file():
            return f"{len(answers)} answers. Without the study's key nothing can be said about them.", kept
        found = analyse(session.study, read_key(self._key), answers)
        text = study_markdown(found)
        kept += [run.path("analysis.md"), run.path("analysis.json")]
        kept[2].write_text(text, encoding="utf-8")
        kept[3].write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        return f"{rates(found)}\n\n{PEEKING}\n\n{text}", kept

    def _running(self) -> Session:
        if self._session is None:
            raise ConfigError("there is no study here yet")
        return self._session

    def _next(self, seat: Seat) -> None:
        seat.trial = self._running().next_trial(seat.participant)
        seat.since, seat.plays, seat.token = time.monotonic(), 0, secrets.token_hex(8)


def _clamped(watched: Mapping[str, Any], name: str, largest: float) -> float:
    """A number that a page tells, in [0, largest]. Raises Refused for what is no number."""
    value = watched.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise Refused(f"{name} must be a number: reload the page")
    return min(max(0.0, float(value)), largest)


def rates(found: Mapping[str, Any]) -> str:
    """The running preference rates in one line each."""
    lines = []
    for entry in found["preferences"]:
        share = entry["share"]
        if not share["n"]:
            continue
        low, high = share["wilson"]
        question = {"overall": "better overall", "motion": "moves more plausibly"}[entry["question"]]
        lines.append(
            f"**{entry['second']}** preferred to {entry['first']}, {question}: {100 * share['value']:.0f} % of {share['n']} "
            f"votes (95 % Wilson interval {100 * low:.0f} to {100 * high:.0f})."
        )
    return "\n\n".join(lines) or "No votes that count yet."
