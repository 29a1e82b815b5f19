import json
import logging

import pytest
import torch
from training_run import make_base, settings, weights

from phys_pipeline.errors import ConfigError
from training.config import TrainConfig
from training.loop import train
from training.validate import clip_of, sigma_quantiles

pytestmark = pytest.mark.usefixtures("fresh_accelerate_state")


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return make_base(tmp_path_factory.mktemp("base"))


def results(run, name):
    return json.loads((run / "validation" / name / "results.json").read_text())


def test_base_and_adapter_are_scored_on_the_same_noise_and_reported(base, tmp_path, caplog):
    changes = {"validation_split": 0.3, "validate_every": 2, "max_train_steps": 3, "checkpoint_every": 2, "sigma_max": 1.0}
    changes |= {"validation_prompts": ["clip number 7"], "validation_quantiles": 2, "motion_space": "pixel"}
    run = tmp_path / "run"
    with caplog.at_level(logging.INFO):
        train(settings(base, run, **changes), progress=False)
    assert sorted(p.name for p in (run / "validation").iterdir()) == ["base", "step-2", "step-3"]
    before, after = results(run, "base"), results(run, "step-3")
    assert [(x["sample"], x["sigma"]) for x in before["held_out"]] == [(x["sample"], x["sigma"]) for x in after["held_out"]]
    assert len(before["held_out"]) == 2 and before["held_out"][0]["motion"] is not None
    assert [x["denoising"] for x in before["held_out"]] != [x["denoising"] for x in after["held_out"]]
    trained = {c["name"] for c in json.loads((run / "provenance.json").read_text())["clips"]}
    assert len(trained) == 2 and before["held_out"][0]["clip"] not in trained
    (video,) = after["videos"]
    assert (run / "validation" / "base" / video["file"]).is_file() and (run / "validation" / "step-3" / video["pair"]).is_file()
    assert set(video["scores"]) >= {"composite", "dynamic_degree"}
    report = (run / "report.md").read_text()
    assert "## Held-out clips" in report and f"validation/step-3/{video['pair']}" in report and "no interval" in report
    assert str(tmp_path) not in report and "<video" in (run / "report.html").read_text()

    resumed = settings(base, tmp_path / "again", resume=str(run / "checkpoint-2"), **changes)
    train(resumed, progress=False)  # the base is scored before the checkpoint is loaded
    assert results(tmp_path / "again", "base")["held_out"] == before["held_out"]
    assert results(tmp_path / "again", "step-3")["held_out"] == after["held_out"]
    straight, again = weights(run), weights(tmp_path / "again")
    assert all(torch.equal(straight[k], again[k]) for k in straight)


def test_validation_changes_nothing_about_training(base, tmp_path):
    plain = settings(base, tmp_path / "plain", max_train_steps=2, motion_weight=0)
    train(plain, progress=False)
    other = make_base(tmp_path / "other", clips=4)
    (other / "clips" / "0.mp4").unlink(), (other / "clips" / "1.mp4").unlink(), (other / "clips" / "2.mp4").unlink()
    watched = settings(base, tmp_path / "watched", max_train_steps=2, motion_weight=0, validate_every=1,
                       validation_data=str(other / "clips"), validation_prompts=["a ball"])  # fmt: skip
    train(watched, progress=False)
    first, second = weights(tmp_path / "plain"), weights(tmp_path / "watched")
    assert all(torch.equal(first[k], second[k]) for k in first)
    assert results(tmp_path / "watched", "step-2")["held_out"][0]["clip"] == "3.mp4"


def test_held_out_clips_must_not_be_trained_on_and_some_must_remain(base, tmp_path):
    with pytest.raises(ConfigError, match=r"3 clip\(s\) of validation_data are also in data, such as 0\.mp4"):
        train(settings(base, tmp_path / "run", validation_data=str(base / "clips")), progress=False)
    with pytest.raises(ConfigError, match="leaves none of 3 clips"):
        train(settings(base, tmp_path / "run", validation_split=0.99), progress=False)
    with pytest.raises(ConfigError, match="something to validate on"):
        TrainConfig(validate_every=3)


def test_noise_levels_are_middles_of_equal_slices_of_the_training_law():
    assert sigma_quantiles(TrainConfig(validation_quantiles=4), 1.0).tolist() == [0.125, 0.375, 0.625, 0.875]
    u = torch.tensor([0.25, 0.75])
    assert torch.allclose(sigma_quantiles(TrainConfig(validation_quantiles=2), 7.0), 7 * u / (1 + 6 * u))
    normal = sigma_quantiles(TrainConfig(validation_quantiles=3, sigma_law="logit_normal"), 1.0)
    assert normal[1] == 0.5 and normal[0] == pytest.approx(1 - normal[2].item()) and 0.25 < normal[0] < 0.3


def test_the_scheduler_never_makes_its_own_sigmas(base, tmp_path, monkeypatch):
    """Asked for a number of steps alone it shifts sigmas that are shifted already."""
    from diffusers import FlowMatchEulerDiscreteScheduler

    asked, set_timesteps = [], FlowMatchEulerDiscreteScheduler.set_timesteps

    def watched(scheduler, num_inference_steps=None, device=None, sigmas=None, mu=None, timesteps=None):
        asked.append(sigmas)
        return set_timesteps(scheduler, num_inference_steps, device, sigmas, mu, timesteps)

    monkeypatch.setattr(FlowMatchEulerDiscreteScheduler, "set_timesteps", watched)
    train(settings(base, tmp_path / "run", max_train_steps=1, motion_weight=0, validation_prompts=["a ball"]), progress=False)
    assert len(asked) == 2 and all(sigmas is not None for sigmas in asked)  # a video of the base and one of the adapter


def test_the_clip_of_a_window():
    assert clip_of("a.mp4#3", {"a.mp4"}) == "a.mp4"
    assert clip_of("a#1.mp4", {"a#1.mp4", "a"}) == "a#1.mp4"
    assert clip_of("b.mp4#0", {"a.mp4"}) is None
