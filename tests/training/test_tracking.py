import sys
from types import SimpleNamespace

import pytest
from PIL import Image

from phys_pipeline.errors import ConfigError
from training.config import TrainConfig
from training.tracking import FreezingAlarm, RunLog, check_trackers


def test_missing_or_unknown_trackers_are_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ConfigError, match="wandb is not installed: pip install wandb"):
        check_trackers(["tensorboard", "wandb"])
    with pytest.raises(ConfigError, match="did you mean 'tensorboard'"):
        TrainConfig(trackers=["tensorbord"])
    assert TrainConfig(trackers="tensorboard").trackers == ["tensorboard"] and TrainConfig(trackers=None).trackers == []


def test_wandb_gets_the_same_numbers(tmp_path, monkeypatch):
    calls = []
    fake = SimpleNamespace(
        init=lambda **options: calls.append(("init", options["name"], options["config"]["seed"])),
        log=lambda values, step: calls.append((values, step)),
        finish=lambda: calls.append("finish"),
        Video=lambda path, format: "video",
    )
    monkeypatch.setitem(sys.modules, "wandb", fake)
    log = RunLog(tmp_path / "run", start_step=0, max_steps=2, show_bar=False, trackers=["wandb"], config={"seed": 4})
    log.write(1, {"denoising": 0.5, "motion": None})
    log.animation("clip", tmp_path / "x.gif", 1)
    log.close()
    log.close()
    name = f"run-{(tmp_path / 'run' / 'tracker_run.txt').read_text()}"
    assert calls == [("init", name, 4), ({"train/denoising": 0.5}, 1), ({"clip": "video"}, 1), "finish"]
    assert not (tmp_path / "run" / "tensorboard").exists()


@pytest.mark.parametrize("package", ["wandb", "trackio"])
def test_a_resumed_run_goes_on_where_the_tracker_knows_it_and_a_new_one_does_not(tmp_path, monkeypatch, package):
    """Weights & Biases finds a run to resume by its id alone, trackio by its name, and two folders may have one name."""
    found = []

    def init(project, name, resume, config, **more):
        assert resume == "allow" and set(more) == ({"id"} if package == "wandb" else set())
        found.append(more.get("id", name))

    monkeypatch.setitem(sys.modules, package, SimpleNamespace(init=init, finish=lambda: None))
    for folder, start in (("a", 0), ("a", 5), ("a", 0), ("b", 0)):
        RunLog(tmp_path / folder / "run", start_step=start, max_steps=9, show_bar=False, trackers=[package]).close()
    assert found[0] == found[1] and len(set(found)) == 3


def test_tensorboard_shows_animations(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    frames = [Image.new("RGB", (4, 4), colour) for colour in ("red", "blue")]
    frames[0].save(tmp_path / "x.gif", save_all=True, append_images=frames[1:])
    log = RunLog(tmp_path, start_step=0, max_steps=1, show_bar=False)
    log.animation("validation/a", tmp_path / "x.gif", 3)
    log.track({"validation/denoising": 0.25, "none": None}, 3)
    log.close()
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert events.Images("validation/a")[0].encoded_image_string == (tmp_path / "x.gif").read_bytes()
    assert events.Scalars("validation/denoising")[0].value == 0.25 and events.Tags()["scalars"] == ["validation/denoising"]


def test_the_alarm_of_a_resumed_run_compares_with_its_first_start(tmp_path):
    """Else a run that is resumed often would freeze bit by bit, unheard."""
    log = RunLog(tmp_path, start_step=0, max_steps=200, show_bar=False, trackers=[])
    for step in range(1, 71):
        log.write(step, {"motion_energy_ratio": 1.0 if step <= 50 else None})
    resumed = RunLog(tmp_path, start_step=60, max_steps=200, show_bar=False, trackers=[])
    assert [record["step"] for record in resumed.past] == list(range(1, 61))
    alarm = FreezingAlarm(resumed.past)
    assert [step for step in range(61, 121) if alarm.update(step, 0.7)] == [110]


def test_one_clip_that_hardly_moves_rings_no_alarm(caplog):
    """One step in fifty at the start has a ratio of 200, which would be a mean of 4.9; a real fall is heard all the same."""
    ratios = [200.0 if step == 7 else 0.9 for step in range(100)]
    alarm = FreezingAlarm()
    assert not any(alarm.update(step, ratio) for step, ratio in enumerate(ratios)) and not caplog.records
    assert sum(alarm.update(step, 0.6) for step in range(100, 200)) == 1
    assert "lower the weights of the motion terms" in caplog.text
