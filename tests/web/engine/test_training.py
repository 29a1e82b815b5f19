"""Training runs as commands: settings, logs, stopping, and publishing only after a dry run. The trainer is a stand-in."""

from __future__ import annotations

import signal
import threading
from dataclasses import replace

import pytest
from web_trainer import write_checkout

from phys_pipeline.errors import ConfigError
from phys_pipeline.web.engine import training as module
from phys_pipeline.web.engine.jobs import Cancelled, Job
from phys_pipeline.web.engine.training import Training, configs, last_lines, read_records, settings_of


@pytest.fixture
def training(tmp_path, settings, monkeypatch):
    checkout = write_checkout(tmp_path / "checkout")
    monkeypatch.setattr(module, "CHECKOUT", checkout)
    monkeypatch.setattr(module, "CONFIGS", checkout / "training" / "configs")
    settings.root.mkdir()
    found = Training(settings)
    yield found
    found.stop()


def wait_for(condition, job):
    for _ in range(1000):
        if condition():
            return
        job.finished.wait(0.02)
    raise AssertionError("waited in vain")


def test_start_watch_stop_resume(training):
    training.start("tiny.yaml", "max_train_steps=500\n\nmotion_weight=0.1")
    wait_for(lambda: len(training.state()[1]) > 3, Job())
    assert training.is_running and training.state()[0].startswith("Running: step ")
    with pytest.raises(ConfigError, match="stop it first"):
        training.start("tiny.yaml", "")
    assert training.stop() == "Stopped. Resume goes on from the last checkpoint."
    text, records, tail = training.state()
    assert text.startswith("Stopped. Results in out/app/tiny-") and not training.is_running
    assert "interrupted" in tail and records[0] == {"step": 1, "denoising": 1.0, "motion": None}
    output = training.output
    training.start("tiny.yaml", "", resume=True)
    assert training.output == output
    wait_for(lambda: len(training.state()[1]) > len(records), Job())
    training.stop()
    with Job().device():
        pass  # free again
    assert training.stop() == "No training run is going on."


def test_of_two_starts_at_once_one_is_refused(training, monkeypatch):
    begun, go = [], threading.Event()
    monkeypatch.setattr(Training, "_own_device", lambda self, command, job, started: (begun.append(command), started.set()))
    monkeypatch.setattr(module, "settings_of", lambda lines: go.wait(10) and [])
    refused = []

    def start():
        try:
            training.start("tiny.yaml", "")
        except ConfigError as error:
            refused.append(str(error))

    threads = [threading.Thread(target=start) for _ in range(5)]
    for thread in threads:
        thread.start()
    go.set()
    for thread in threads:
        thread.join()
    assert len(begun) == 1 and len(refused) == 4 and all("stop it first" in text for text in refused)
    training._stopping = None  # nothing runs


def test_a_run_of_an_app_in_the_background_can_be_stopped(training):
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as `nohup python app.py &` leaves it
    try:
        training.start("tiny.yaml", "max_train_steps=500")
    finally:
        signal.signal(signal.SIGINT, before)
    wait_for(lambda: training.state()[1], Job())
    assert training.stop() == "Stopped. Resume goes on from the last checkpoint."


def test_dry_run_and_errors_are_told(training):
    assert training.dry_run("tiny.yaml", "", Job()) == "clips: 6 usable\n"
    (module.CHECKOUT / "training" / "train_lora.py").write_text(
        "import sys; print('error: no clips', file=sys.stderr); sys.exit(2)"
    )
    with pytest.raises(ConfigError, match=r"^no clips$"):
        training.dry_run("tiny.yaml", "", Job())
    job = Job()
    job.cancel()
    (module.CHECKOUT / "training" / "train_lora.py").write_text("import time; time.sleep(60)")
    with pytest.raises(Cancelled):
        training.dry_run("tiny.yaml", "", job)


@pytest.mark.parametrize("config", ["../secret.yaml", "", None, "other.yaml"])
def test_only_configurations_of_the_list(training, config):
    with pytest.raises(ConfigError, match="in the list"):
        training.start(config, "")


@pytest.mark.parametrize("lines", ["rm -rf", "--config=x", "Frames=3", "a b=1"])
def test_only_settings(lines):
    with pytest.raises(ConfigError, match="is no setting"):
        settings_of(lines)


def test_a_server_does_not_train(settings):
    with pytest.raises(ConfigError, match="--local-files"):
        Training(replace(settings, local=False)).start("tiny.yaml", "")


def test_publishing_needs_a_dry_run_first(training, monkeypatch, tmp_path):
    commands = []
    monkeypatch.setattr(training, "_run", lambda arguments, job: commands.append(arguments) or "report")
    with pytest.raises(ConfigError, match="no finished run"):
        training.publish("owner/name", True, False, Job())
    training.output = tmp_path
    with pytest.raises(ConfigError, match="dry run"):
        training.publish("owner/name", True, False, Job())
    with pytest.raises(ConfigError, match="OWNER/NAME"):
        training.publish("../x", True, True, Job())
    assert training.publish("owner/name", True, True, Job()) == training.publish("owner/name", True, False, Job()) == "report"
    assert commands[0][-2:] == ["--private", "--dry-run"] and "--dry-run" not in commands[1]


def test_logs(tmp_path):
    assert read_records(tmp_path / "none") == [] and last_lines(tmp_path / "none") == ""
    (tmp_path / "log.jsonl").write_text('{"step": 1}\n{"st')
    assert read_records(tmp_path / "log.jsonl") == [{"step": 1}]
    (tmp_path / "log").write_bytes(b"a\r\n 1%\r 2%\r 3%\nwrote\n")
    assert last_lines(tmp_path / "log") == "a\n 3%\nwrote"


def test_configs_of_this_checkout():
    assert "tiny.yaml" in configs()
