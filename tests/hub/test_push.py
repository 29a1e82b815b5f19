"""The trainer publishes its result if it is told to; whatever happens to the upload, the run did not fail."""

import pytest
from hub_adapter import make_run, snapshot
from hub_server import Fault

from phys_pipeline.errors import ConfigError
from training.config import TrainConfig
from training.train_lora import parse, push


def test_the_setting_is_checked_before_training():
    assert parse(["--push-to-hub", "owner/name"])[0].push_to_hub == "owner/name"
    for wrong in ("name", "a/b/c", "owner/name@v1", "owner/-"):
        with pytest.raises(ConfigError, match="OWNER/NAME"):
            TrainConfig(push_to_hub=wrong)
    with pytest.raises(ConfigError, match="set rank"):
        TrainConfig(push_to_hub="owner/name", rank=None)


def test_a_failed_upload_fails_no_run_and_says_what_to_type(here, tmp_path, capsys, monkeypatch):
    folder = make_run(tmp_path / "run")
    before = snapshot(folder)
    here.inject(Fault("POST .*/commit/", status=403, times=99))
    push(str(folder), "owner/name")
    said = capsys.readouterr().err
    assert f"phys-pipeline publish {folder} --repo-id owner/name" in said and "not published: the Hub forbids it" in said
    monkeypatch.setattr("phys_pipeline.adapters.publishing.publish", lambda *_, **__: 1 / 0)
    push(str(folder), "owner/name")
    assert "not published: division by zero" in capsys.readouterr().err
    assert snapshot(folder) == before
