"""The study of an app: seats, votes, results for the host."""

from __future__ import annotations

import math
import shutil

import pytest

from phys_pipeline.errors import ConfigError
from phys_pipeline.evaluation.study.session import Refused, read_answers
from phys_pipeline.web.engine.settings import AppSettings
from phys_pipeline.web.engine.studies import Studies


@pytest.fixture
def studies(study_folder, tmp_path):
    study = shutil.copytree(study_folder.study, tmp_path / "own" / "study")  # answers lie beside it
    found = Studies(AppSettings(tmp_path, local=False, study=study, study_key=study_folder.key, host_key="key"))
    yield found
    found.close()


def watched(seat, **other):
    """What the player of this seat tells."""
    return {"token": seat.token, "plays": 1, "replays": 0, "seconds": 0.0, **other}


def test_a_participant_from_start_to_end(studies):
    seat = studies.enter(None)
    done, total = studies.progress(seat)
    assert (done, total) == (0, 5)
    while seat.trial is not None:
        value = studies.value(seat)
        assert value["series"] == [None, None] and value["labels"] == ["Left", "Right"]
        assert all(column not in str(value) for column in ("slow", "swift"))
        with pytest.raises(Refused, match="to their end"):
            studies.vote(seat, "left", "right", watched(seat))
        studies.played(seat, watched(seat))
        with pytest.raises(Refused, match="both questions"):
            studies.vote(seat, "left", None, watched(seat))
        with pytest.raises(Refused):
            studies.vote(seat, "left", "<script>", watched(seat))
        studies.vote(seat, "left", "right", watched(seat))
    assert studies.progress(seat) == (5, 5) and studies.value(seat) is None
    again = studies.enter(seat.participant)
    assert again.participant == seat.participant and again.trial is None
    assert studies.enter("../../x").participant != "../../x"
    text, files = studies.results()
    assert "participants" in text and "decide beforehand" in text
    assert [file.name for file in files] == ["answers.jsonl", "answers.csv", "analysis.md", "analysis.json"]
    assert files[1].read_text().count("\n") == 6


def answers(studies):
    return read_answers(studies.settings.study / "answers.jsonl")


def test_what_the_page_counted_is_stored_within_bounds(studies):
    seat = studies.enter(None)
    seat.since -= 100.0
    studies.played(seat, watched(seat, plays=3))
    studies.vote(seat, "left", "right", watched(seat, replays=2, seconds=7.25))
    assert [(a.plays, a.replays, a.seconds) for a in answers(studies)] == [(3, 2, 7.25)]
    seat.since -= 100.0
    studies.played(seat, watched(seat, plays=10**9))
    studies.vote(seat, "left", "right", watched(seat, replays=-5, seconds=1e9))
    stored = answers(studies)[1]
    assert (stored.plays, stored.replays) == (10_000, 0) and 100 <= stored.seconds < 200  # no longer than the pair was there


@pytest.mark.parametrize("value", [True, None, "3", math.nan, math.inf, [1]])
@pytest.mark.parametrize("name", ["plays", "replays", "seconds"])
def test_what_is_no_number_is_refused(studies, name, value):
    seat = studies.enter(None)
    if name != "plays":
        studies.played(seat, watched(seat))
    with pytest.raises(Refused, match=f"{name} must be a number"):
        if name == "plays":
            studies.played(seat, watched(seat, plays=value))
        else:
            studies.vote(seat, "left", "right", watched(seat, **{name: value}))
    assert not answers(studies) and (seat.plays == 0) == (name == "plays")


def test_what_comes_late_opens_no_other_pair(studies):
    seat = studies.enter(None)
    late = watched(seat)
    studies.played(seat, late)
    studies.vote(seat, "left", "right", late)
    for told in (late, {}, None, "played", {**late, "token": None}):
        studies.played(seat, told)
        assert seat.plays == 0
    studies.played(seat, watched(seat))
    with pytest.raises(Refused, match="another pair"):
        studies.vote(seat, "left", "right", late)
    assert len(answers(studies)) == 1


def test_two_hosts_do_not_share_files(studies):
    (_, first), (_, second) = studies.results(), studies.results()
    assert not set(first) & set(second) and [file.name for file in first] == [file.name for file in second]


def test_the_host_has_a_key(studies):
    assert studies.is_host("key")
    assert not any(studies.is_host(offered) for offered in ("", "KEY", None, 3, ["key"]))
    assert not Studies(AppSettings(studies.settings.root / "x")).is_host("")


def test_without_a_study(tmp_path):
    studies = Studies(AppSettings(tmp_path))
    assert studies.title is None
    with pytest.raises(ConfigError, match="no study"):
        studies.enter(None)


def test_the_host_builds_one(study_folder, tmp_path):
    studies = Studies(AppSettings(tmp_path))
    folders = [str(study_folder.columns / name) for name in ("slow", "swift")]
    studies.build(*folders, "", "")
    assert studies.title and studies.progress(studies.enter(None)) == (0, 5)
    studies.close()
    with pytest.raises(ConfigError, match="on the machine itself"):
        Studies(AppSettings(tmp_path, local=False)).build(*folders, "", "")
