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


def test_raft_is_offered_where_something_stands_in_for_it(capsys):
    doctor.main(["warping_error", "detail"])
    assert "pip install torchvision; --flow raft downloads" in capsys.readouterr().out
    doctor.main(["detail"])
    assert "RAFT" not in capsys.readouterr().out


def test_fetching_everything_by_accident_is_refused(fakes):
    with pytest.raises(ConfigError, match="name the metrics"):
        doctor.main(["--fetch"])


def test_what_no_hub_has_and_what_cannot_be_reached_is_said_in_one_line(monkeypatch):
    with pytest.raises(ModelError, match="on no Hub"):
        doctor.fetch(Weights("dover.onnx", "-", 1, "x"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ModelError, match="some/model can't be fetched") as error:
        doctor.fetch(Weights("some/model", "a" * 40, 1, "x"))
    assert "\n" not in str(error.value)
