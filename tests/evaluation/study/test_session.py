"""Order, sides, answers: what a participant meets, and that no answer is lost or counted twice."""

from __future__ import annotations

import json
import shutil
import threading
from collections import Counter

import pytest
from study_people import answer_all

from phys_pipeline.errors import DataError
from phys_pipeline.evaluation.study.session import Refused, Session, Study, read_answers


def given(shown, **changes):
    return {"trial": shown.trial, "overall": "left", "motion": "right", "seconds": 3.2, "plays": 1, "replays": 0, **changes}


def test_a_plan_is_the_participants_own_and_stays(built):
    study = Study(built[0])
    ids = [Session.new_participant() for _ in range(20)]
    plans = {who: study.plan(who) for who in ids}
    assert all(Study(built[0]).plan(who) == plan for who, plan in plans.items())
    assert len({tuple(trial.trial for trial in plan) for plan in plans.values()}) > 10
    for plan in plans.values():
        assert {trial.trial for trial in plan} == set(study.trials) and [trial.position for trial in plan] == list(range(6))


def test_sides_are_balanced_within_a_person_and_over_people(built):
    study, (_, key) = Study(built[0]), built
    lefts: Counter[tuple[str, str]] = Counter()
    for _ in range(200):
        shown = [key["files"][trial.left] for trial in study.plan(Session.new_participant())]
        assert sorted(entry["check"] for entry in shown if "check" in entry) == ["frozen", "original"]
        assert sorted(entry["column"] for entry in shown if "check" not in entry) == ["baseline"] * 2 + ["ours"] * 2
        lefts.update((entry["column"], entry["id"]) for entry in shown if "check" not in entry)
    assert all(60 < count < 140 for count in lefts.values()) and len(lefts) == 8


def test_checks_stand_apart(built):
    study = Study(built[0])
    for _ in range(20):
        kinds = [study.trials[trial.trial]["kind"] for trial in study.plan(Session.new_participant())]
        places = [place for place, kind in enumerate(kinds) if kind == "check"]
        assert places[0] > 0 and places[1] - places[0] > 1 and places[1] < 5


def test_part_of_the_pairs_for_each_person(built, tmp_path):
    folder = tmp_path / "study"
    shutil.copytree(built[0], folder)
    content = json.loads((folder / "study.json").read_text())
    (folder / "study.json").write_text(json.dumps({**content, "per_person": 2}))
    study = Study(folder)
    seen: Counter[str] = Counter()
    for _ in range(100):
        plan = study.plan(Session.new_participant())
        assert len(plan) == 4
        seen.update(trial.trial for trial in plan)
    assert len(seen) == 6 and min(seen.values()) > 25


def test_answers_go_on_after_a_restart(session, built):
    who = session.new_participant()
    first = session.next_trial(who)
    session.record(who, given(first))
    second = Session(session.study, session.path)
    assert second.progress(who) == (1, 6) and second.next_trial(who) == session.study.plan(who)[1]
    second.close()
    (answer,) = read_answers(session.path)
    assert (answer.participant, answer.trial, answer.left, answer.overall, answer.motion) == (
        who, first.trial, first.left, "left", "right",
    )  # fmt: skip


def test_an_answer_counts_once_and_in_order(session):
    who = session.new_participant()
    first, second = session.study.plan(who)[:2]
    with pytest.raises(Refused, match="not your next"):
        session.record(who, given(second))
    session.record(who, given(first))
    with pytest.raises(Refused, match="not your next"):
        session.record(who, given(first))
    assert len(read_answers(session.path)) == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"overall": "both"}, {"motion": None}, {"seconds": -1}, {"seconds": float("nan")}, {"seconds": 1e9}, {"seconds": "3"},
        {"seconds": True}, {"plays": 10**400}, {"replays": None}, {"trial": ["x"]},
    ],
)  # fmt: skip
def test_wrong_answers_are_refused_and_not_written(changes, session):
    who = session.new_participant()
    with pytest.raises(Refused):
        session.record(who, given(session.next_trial(who), **changes))
    assert read_answers(session.path) == [] and session.progress(who) == (0, 6)


@pytest.mark.parametrize("who", ["", "../../etc", "A" * 16, "0" * 17, None, 7, ["0" * 16]])
def test_ids_of_another_form_are_refused(who, session):
    with pytest.raises(Refused):
        session.next_trial(who)


def test_a_line_that_a_crash_cut_off_is_left_out_and_does_not_spoil_the_next(session):
    who = session.new_participant()
    session.record(who, given(session.next_trial(who)))
    with session.path.open("ab") as file:
        file.write(b'{"participant": "abc", "tri')
    again = Session(session.study, session.path)
    again.record(who, given(again.next_trial(who)))
    again.close()
    assert [answer.position for answer in read_answers(session.path)] == [0, 1]


def test_many_participants_at_once_lose_no_answer(session, built):
    threads = [threading.Thread(target=answer_all, args=(session, built[1], lambda left, right: "left")) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    answers = read_answers(session.path)
    assert len(answers) == 12 * 6 == len({(answer.participant, answer.trial) for answer in answers})


def test_one_person_in_two_windows_gives_one_answer(session):
    who = session.new_participant()
    first = session.next_trial(who)
    outcomes = []

    def send():
        try:
            session.record(who, given(first))
            outcomes.append("kept")
        except Refused:
            outcomes.append("refused")

    threads = [threading.Thread(target=send) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["kept"] + ["refused"] * 7


def test_other_folders_and_files_are_refused(tmp_path):
    with pytest.raises(DataError, match="study build"):
        Study(tmp_path)
    (tmp_path / "study.json").write_text('{"schema": "x"}')
    with pytest.raises(DataError, match="version"):
        Study(tmp_path)
    (tmp_path / "answers.jsonl").write_text('{"participant": "x"}\n')
    with pytest.raises(DataError, match="line 1"):
        read_answers(tmp_path / "answers.jsonl")
