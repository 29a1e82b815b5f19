"""The study of an app: seats, votes, results for the host."""

from __future__ import annotations

import shutil

import pytest

from phys_pipeline.errors import ConfigError
from phys_pipeline.evaluation.study.session import Refused
from phys_pipeline.web.engine.settings import AppSettings
from phys_pipeline.web.engine.studies import Studies


@pytest.fixture
def studies(study_folder, tmp_path):
    study = shutil.copytree(study_folder.study, tmp_path / "own" / "study")  # answers lie beside it
    found = Studies(AppSettings(tmp_path, local=False, study=study, study_key=study_folder.key, host_key="key"))
    yield found
    found.close()


def test_a_participant_from_start_to_end(studies):
    seat = studies.enter(None)
    done, total = studies.progress(seat)
    assert (done, total) == (0, 5)
    while seat.trial is not None:
        value = studies.value(seat)
        assert value["series"] == [None, None] and value["labels"] == ["Left", "Right"]
        assert all(column not in str(value) for column in ("slow", "swift"))
        with pytest.raises(Refused, match="to their end"):
            studies.vote(seat, "left", "right")
        seat.plays = 1
        with pytest.raises(Refused, match="both questions"):
            studies.vote(seat, "left", None)
        with pytest.raises(Refused):
            studies.vote(seat, "left", "<script>")
        studies.vote(seat, "left", "right")
    assert studies.progress(seat) == (5, 5) and studies.value(seat) is None
    again = studies.enter(seat.participant)
    assert again.participant == seat.participant and again.trial is None
    assert studies.enter("../../x").participant != "../../x"
    text, files = studies.results()
    assert "participants" in text and "decide beforehand" in text
    assert [file.name for file in files] == ["answers.jsonl", "answers.csv", "analysis.md", "analysis.json"]
    assert files[1].read_text().count("\n") == 6


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
