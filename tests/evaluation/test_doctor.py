import json

import pytest

from phys_pipeline.errors import ConfigError, ModelError
from phys_pipeline.evaluation import doctor
from phys_pipeline.evaluation.metric import Weights


def test_the_table_says_what_is_missing_its_licence_and_what_to_do(fakes, capsys):
    assert doctor.main([]) == 0
    text = capsys.readouterr().out
    assert "other/model @ bbbbbbbbbbbb, 7.0 GB, licence non-commercial" in text
    assert "phys-pipeline doctor missing --fetch gets its weights" in text
    assert "some/model @ aaaaaaaaaaaa, 5 MB, licence MIT" in text
    assert "stands in for a better one" in text and "11 of 12 metrics" not in text
    assert "metrics can run here" in text


def test_a_metric_that_was_named_and_is_missing_gives_exit_code_1(fakes, capsys):
    assert doctor.main(["missing", "--json"]) == 1
    (row,) = json.loads(capsys.readouterr().out)
    assert row["available"] is False and row["weights"][0]["bytes"] == 7_000_000_000
    assert doctor.main(["brightness"]) == 0


def test_fetching_everything_by_accident_is_refused(fakes):
    with pytest.raises(ConfigError, match="name the metrics"):
        doctor.main(["--fetch"])


def test_what_no_hub_has_does_not_keep_the_rest_from_being_fetched(monkeypatch, capsys):
    fetched = []
    monkeypatch.setattr(doctor, "fetch", lambda weights: fetched.append(weights.repository))
    monkeypatch.setattr(doctor, "has_torchvision", lambda: False)
    assert doctor.main(["vqa_a", "clip_score", "flow_score", "--fetch"]) == 1
    assert fetched == ["openai/clip-vit-base-patch32"]
    assert "export DOVER to ONNX" in capsys.readouterr().out


def test_raft_is_shown_with_its_licence_and_how_to_get_it_until_it_is_there(monkeypatch, capsys):
    monkeypatch.setattr(doctor, "has_torchvision", lambda: False)
    monkeypatch.setattr(doctor, "flow_name", lambda settings: "dis medium (opencv 1)")
    assert doctor.main(["flow_score"]) == 0
    text = capsys.readouterr().out
    assert "raft_large @ C_T_V2, 21 MB, licence BSD-3-Clause" in text
    assert "`pip install torchvision`, then `phys-pipeline doctor flow_score --fetch`" in text
    fetched = []
    monkeypatch.setattr(doctor, "has_torchvision", lambda: True)
    monkeypatch.setattr(doctor, "raft_state", fetched.append)
    assert doctor.main(["flow_score", "--fetch"]) == 0 and len(fetched) == 1
    monkeypatch.setattr(doctor, "flow_name", lambda settings: "raft large")
    capsys.readouterr()
    assert doctor.main(["flow_score"]) == 0 and "BSD" not in capsys.readouterr().out


def test_what_no_hub_has_and_what_cannot_be_reached_is_said_in_one_line(monkeypatch):
    with pytest.raises(ModelError, match="on no Hub"):
        doctor.fetch(Weights("dover.onnx", "-", 1, "x"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ModelError, match="some/model can't be fetched") as error:
        doctor.fetch(Weights("some/model", "a" * 40, 1, "x"))
    assert "\n" not in str(error.value)
