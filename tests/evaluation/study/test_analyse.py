"""Simulated participants: the analysis finds what was put in."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from study_people import answer_all

from phys_pipeline.errors import DataError
from phys_pipeline.evaluation.rows import Row
from phys_pipeline.evaluation.study.analyse import analyse, read_key
from phys_pipeline.evaluation.study.report import study_markdown
from phys_pipeline.evaluation.study.session import read_answers


def prefers(column, rng, strength=1.0):
    def choose(left, right):
        wanted = "left" if left["column"] == column else "right"
        other = "right" if wanted == "left" else "left"
        return wanted if rng.random() < strength else other

    return choose


def of(found, question="motion"):
    return next(p for p in found["preferences"] if p["question"] == question)


def found_in(session, key, **settings):
    return analyse(session.study, key, read_answers(session.path), **settings)


def test_a_preference_is_found_with_its_size(session, built):
    rng = random.Random(0)
    for _ in range(60):
        answer_all(session, built[1], prefers("ours", rng, 0.8))
    found = found_in(session, built[1])
    share = of(found)["share"]
    assert share["n"] == 240 and abs(share["value"] - 0.8) < 0.08 and share["p"] < 1e-9
    for interval in ("wilson", "participants", "prompts", "both"):
        assert share[interval][0] < share["value"] < share[interval][1] and share[interval][0] > 0.6
    assert sum(group["n"] for group in of(found)["stratum"].values()) == 240
    assert set(of(found)["motion"]) == {"translation", "other"}
    assert abs(found["left"]["motion"]["value"] - 0.5) < 0.08


def test_everybody_agrees(session, built):
    for _ in range(10):
        answer_all(session, built[1], prefers("baseline", random.Random(1)))
    found = found_in(session, built[1])
    assert of(found)["share"]["value"] == 0.0 and of(found)["share"]["wilson"][1] < 0.1
    assert of(found)["alpha"] is None  # one answer everywhere: agreement beyond chance has no meaning
    assert all(of(found)["share"][kind] is None for kind in ("participants", "prompts", "both"))  # no certainty from equal votes
    assert "| all | 40 | 0.0 % | 0.0 to 8.8 | – | – | – | < 0.001 |" in study_markdown(found)
    assert "less motion more often" in study_markdown(found)


def test_one_participant_has_no_interval_over_participants(session, built):
    answer_all(session, built[1], lambda left, right: "left")
    share = found_in(session, built[1])["left"]["overall"]
    assert share["value"] == 1.0 and share["both"] is None
    chosen = random.Random(1)
    answer_all(session, built[1], lambda left, right: chosen.choice(("left", "right")), attentive=False)
    answer_all(session, built[1], prefers("ours", chosen))
    two = found_in(session, built[1])["left"]["overall"]
    assert two["n"] == 8 and two["both"][0] < two["value"] < two["both"][1]


def test_chance_is_chance_and_left_is_left(session, built):
    rng = random.Random(2)
    for _ in range(60):
        answer_all(session, built[1], prefers("ours", rng, 0.5))  # tossed for the column: sides are random every time
    found = found_in(session, built[1])
    low, high = of(found)["share"]["participants"]
    assert low < 0.5 < high and of(found)["share"]["p"] > 0.01 and abs(of(found)["alpha"]) < 0.1


def test_always_left_shows_as_a_habit_and_not_as_a_preference(session, built):
    for _ in range(30):
        answer_all(session, built[1], lambda left, right: "left")
    found = found_in(session, built[1])
    assert found["left"]["motion"]["value"] == found["left"]["overall"]["value"] == 1.0
    assert of(found)["share"]["value"] == 0.5


def test_clicking_left_only_fails_the_checks(session, built):
    """The two checks have the original on different sides, so a person who never looks can't pass both."""
    for _ in range(10):
        who = session.new_participant()
        while (trial := session.next_trial(who)) is not None:
            answer = {"trial": trial.trial, "overall": "left", "motion": "left", "seconds": 5.0, "plays": 1, "replays": 0}
            session.record(who, answer)
    found = found_in(session, built[1])
    assert found["participants"] == {"all": 10, "kept": 0}


def test_inattentive_participants_are_excluded_with_a_reason(session, built):
    rng = random.Random(3)
    good = [answer_all(session, built[1], prefers("ours", rng)) for _ in range(5)]
    bad = [answer_all(session, built[1], prefers("baseline", rng), attentive=False) for _ in range(5)]
    early = session.new_participant()
    trial = session.next_trial(early)
    session.record(early, {"trial": trial.trial, "overall": "left", "motion": "left", "seconds": 5, "plays": 1, "replays": 0})
    found = found_in(session, built[1])
    assert found["participants"] == {"all": 11, "kept": 5} and of(found)["share"]["value"] == 1.0
    reasons = {entry["participant"]: entry["reason"] for entry in found["excluded"]}
    assert set(reasons) == {*bad, early} and not set(good) & set(reasons)
    assert all("failed 2 of 2" in reasons[who] for who in bad) and "before" in reasons[early]
    assert bad[0] in study_markdown(found)


def test_hasty_and_forgotten_answers_are_dropped(session, built):
    rng = random.Random(4)
    answer_all(session, built[1], prefers("ours", rng), seconds=0.4)
    answer_all(session, built[1], prefers("ours", rng), seconds=4000)
    answer_all(session, built[1], prefers("baseline", rng), seconds=9)
    found = found_in(session, built[1])
    assert (found["answers"]["too_fast"], found["answers"]["too_slow"]) == (6, 6)
    assert of(found)["share"]["n"] == 4 and of(found)["share"]["value"] == 0.0
    assert of(found_in(session, built[1], shortest=0.0, longest=1e5))["share"]["n"] == 12


def test_preference_for_less_motion_is_said(session, built):
    rng = random.Random(5)
    for _ in range(20):
        answer_all(session, built[1], prefers("baseline", rng, 0.9))
    found = found_in(session, built[1])
    assert found["less_motion"]["measure"] == "spectral dynamic degree" and found["less_motion"]["motion"]["value"] > 0.8
    assert "less motion more often" in study_markdown(found)
    digests = {(entry["column"], entry["id"]): entry["sha256"] for entry in built[1]["files"].values()}
    rows = [
        Row("", f"p{i}", model, None, "flow_score", flow, "ok", digest=digests[model, f"p{i}"])
        for i in range(3)
        for model, flow in [("baseline", 2.0), ("ours", 1.0)]
    ]
    turned = found_in(session, built[1], rows=rows)
    assert turned["less_motion"]["measure"] == "flow_score" and turned["less_motion"]["motion"]["n"] == 60
    assert turned["less_motion"]["motion"]["value"] < 0.2 and "less motion more often" not in study_markdown(turned)
    with pytest.raises(DataError, match="of this study's videos"):
        found_in(session, built[1], rows=[replace(row, digest="0" * 64) for row in rows])


def test_no_answers_say_nothing(session, built):
    found = found_in(session, built[1])
    assert of(found)["share"] == {
        "n": 0,
        "value": None,
        "wilson": None,
        "participants": None,
        "prompts": None,
        "both": None,
        "p": None,
    }
    assert "nothing can be said" in study_markdown(found)


def test_keys_and_answers_of_other_studies_are_refused(session, built, tmp_path):
    with pytest.raises(DataError, match="another study"):
        analyse(session.study, {"columns": [], "files": {}}, [])
    answer_all(session, built[1], lambda left, right: "left")
    strange = [replace(answer, trial="elsewhere") for answer in read_answers(session.path)]
    with pytest.raises(DataError, match="not in this study"):
        analyse(session.study, built[1], strange)
    (tmp_path / "key.json").write_text("{}")
    with pytest.raises(DataError, match="version"):
        read_key(tmp_path / "key.json")
    with pytest.raises(DataError, match="can't be read"):
        read_key(tmp_path / "missing.json")
