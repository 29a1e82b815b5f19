import json
import logging
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from training_run import make_base, settings, weights

from phys_pipeline.errors import ConfigError
from training import loop
from training.config import TrainConfig, load_config
from training.dry_run import dry_run
from training.loop import train
from training.objective import Objective
from training.objectives.term import MotionTerm, motion_energy
from training.validate import HeldOutLoss, clip_of, motion_kept, sigma_quantiles

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


class Stillness:
    """An objective that rewards stillness: the motion energy of x0-hat over the clip's."""

    needs_reference, one_number = True, True

    def of_clean(self, reference, sigma):
        return motion_energy(reference)

    def __call__(self, video, clean):
        return motion_energy(video) / clean


@pytest.mark.slow
@pytest.mark.parametrize("freezes", [True, False])
def test_a_run_that_freezes_rings_the_alarm_and_a_healthy_one_does_not(freezes, tmp_path, monkeypatch, caplog):
    root = Path(__file__).parents[2]
    config = load_config(root / "training" / "configs" / "tiny.yaml", [
        f"data={root / 'samples' / 'clips'}", f"output_dir={tmp_path}/run", f"cache_dir={tmp_path}/cache", "frames=8", "shift=1",
        "frame_extraction=middle", "motion_space=latent", "max_train_steps=20", "checkpoint_every=0", "gradient_ratio_every=0",
        "validation_split=0.3", "validation_quantiles=3", "trackers=[]", "learning_rate=5e-3", "motion_weight=0.1",
    ])  # fmt: skip
    if freezes:
        still = Objective({"spectral": (30.0, MotionTerm(Stillness(), 1.0, every_step=True))}, sigma_max=config.sigma_max)
        monkeypatch.setattr(loop, "build_objective", lambda *_, **__: still)
    with caplog.at_level(logging.INFO):
        train(config, progress=False)
    kept = [float(r.getMessage().split("motion_energy_kept ")[1].split(",")[0]) for r in caplog.records
            if "motion_energy_kept" in r.getMessage()]  # fmt: skip
    warned = any("of the motion energy that the base model's have" in r.getMessage() for r in caplog.records)
    assert len(kept) == 1 and (kept[0] < 0.8) == warned == freezes, kept
    assert freezes or kept[0] > 0.9


def test_motion_is_compared_on_the_same_clips_at_low_noise():
    def losses(scale):
        rows = [("a", 0.2, 1.0 * scale), ("b", 0.2, 3.0), ("still", 0.2, None), ("a", 0.9, 50.0)]
        return [HeldOutLoss(clip, clip, sigma, 1.0, None, energy) for clip, sigma, energy in rows]

    assert motion_kept(losses(0.2), losses(1.0), 0.7) == pytest.approx(0.2 ** (1 / 2))
    assert motion_kept(losses(0.2), losses(1.0), 1.0) == pytest.approx(0.2 ** (1 / 3))
    assert motion_kept(losses(0.2), losses(1.0), 0.1) == pytest.approx(0.2 ** (1 / 2))  # none is below: the lowest
    assert motion_kept(losses(1.0)[2:3], losses(1.0)[2:3], 0.7) is None


def test_held_out_clips_must_not_be_trained_on_and_some_must_remain(base, tmp_path):
    with pytest.raises(ConfigError, match=r"3 clip\(s\) of validation_data are also in data, such as 0\.mp4"):
        train(settings(base, tmp_path / "run", validation_data=str(base / "clips")), progress=False)
    with pytest.raises(ConfigError, match=r"3 clip\(s\) of validation_data are also in data"):
        dry_run(settings(base, tmp_path / "run", validation_data=str(base / "clips")))
    with pytest.raises(ConfigError, match="leaves none of 3 clips"):
        train(settings(base, tmp_path / "run", validation_split=0.99), progress=False)
    with pytest.raises(ConfigError, match="something to validate on"):
        TrainConfig(validate_every=3)
    with pytest.raises(ConfigError, match="validation_seeds is empty"):
        TrainConfig(validation_prompts=["a ball rolls"], validation_seeds=[])


def test_filters_of_the_training_clips_leave_held_out_clips_alone(base, tmp_path):
    """A folder of held-out clips has no columns to filter by, and no rows in the scores."""
    table = tmp_path / "clips.csv"
    table.write_text(f"video,caption,score\n{base / 'clips' / '0.mp4'},a,1\n{base / 'clips' / '1.mp4'},b,5\n")
    apart = tmp_path / "apart"
    apart.mkdir()
    for suffix in (".mp4", ".txt"):
        shutil.copy(base / "clips" / f"2{suffix}", apart)
    config = settings(base, tmp_path / "run", data=str(table), data_filters={"score": ">=3"}, validation_data=str(apart))
    assert "1 usable, 1 skipped; 1 samples to train on, 1 held out" in dry_run(config)
    train(replace(config, max_train_steps=1), progress=False)
    assert {row["clip"] for row in results(tmp_path / "run", "base")["held_out"]} == {"2.mp4"}


def test_noise_levels_are_middles_of_equal_slices_of_the_training_law():
    assert sigma_quantiles(TrainConfig(validation_quantiles=4), 1.0).tolist() == [0.125, 0.375, 0.625, 0.875]
    u = torch.tensor([0.25, 0.75])
    assert torch.allclose(sigma_quantiles(TrainConfig(validation_quantiles=2), 7.0), 7 * u / (1 + 6 * u))
    normal = sigma_quantiles(TrainConfig(validation_quantiles=3, sigma_law="logit_normal"), 1.0)
    part = sigma_quantiles(TrainConfig(validation_quantiles=2), 1.0, (0.5, 1.0))
    assert part.tolist() == [0.625, 0.875]
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
