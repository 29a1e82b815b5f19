import itertools
import json
import logging

import pytest
import torch
from safetensors import safe_open
from tiny import save_tiny
from training_run import ADAPTER, make_base, records, settings, weights

from phys_pipeline.adapters.readers import open_adapter
from phys_pipeline.adapters.writers import check_same
from phys_pipeline.errors import ConfigError, DataError, ModelError
from phys_pipeline.families import get_family
from training.buckets import batch_indices
from training.checkpoint import clear_output, refuse_unfinished
from training.config import TrainConfig
from training.launch import start_accelerator
from training.loop import train
from training.schedule import generator, learning_rate, noise_levels
from training.tracking import FreezingAlarm

pytestmark = pytest.mark.usefixtures("fresh_accelerate_state")


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A tiny random pipeline on disk, three clips, and a cache that all runs of this module share."""
    return make_base(tmp_path_factory.mktemp("base"))


def equal(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def trainer_of(config):
    from training.filling import prepare_dataset
    from training.loop import DTYPES, Trainer
    from training.objective import spectral_config

    accelerator = start_accelerator(config)
    family = get_family(config.family)
    dataset, vae = prepare_dataset(config, family, device=accelerator.device, text_dtype=DTYPES[config.precision])
    return Trainer(config, accelerator, family, dataset, vae, spectral_config(config))


def test_ten_steps_equal_five_and_resume_and_five(base, tmp_path):
    changes = {"caption_dropout": 0.0, "motion_weight": 0.5, "sigma_max": 1.0, "preference_space": "pixel"}
    changes |= {"sampled_steps": 3, "sampled_levels": 2}
    changes["objective"] = ["spectral", "preference", "coherence_weighted", "ltd", "sampled"]  # none keeps a state of its own
    train(settings(base, tmp_path / "straight", **changes), progress=False)
    assert (tmp_path / "straight" / "checkpoint-5" / ADAPTER).is_file()
    half = settings(base, tmp_path / "resumed", resume=str(tmp_path / "straight" / "checkpoint-5"), **changes)
    train(half, progress=False)
    assert equal(weights(tmp_path / "straight"), weights(tmp_path / "resumed"))
    assert not equal(weights(tmp_path / "straight"), weights(tmp_path / "straight" / "checkpoint-5"))
    timeless = [{k: v for k, v in r.items() if k != "seconds"} for r in records(tmp_path / "straight")]
    assert [r["step"] for r in timeless] == list(range(1, 11))
    assert [{k: v for k, v in r.items() if k != "seconds"} for r in records(tmp_path / "resumed")] == timeless[5:]
    assert (tmp_path / "straight" / ADAPTER).read_bytes() == (tmp_path / "resumed" / ADAPTER).read_bytes()


def test_resuming_with_more_steps_goes_on_learning(base, tmp_path):
    """The rate follows the new length: it neither stays at the end of the old schedule nor starts its warm-up again."""
    short = settings(base, tmp_path / "run", max_train_steps=4, checkpoint_every=3, motion_weight=0)
    train(short, progress=False)
    changes = {"max_train_steps": 12, "checkpoint_every": 8, "motion_weight": 0}
    longer = settings(base, tmp_path / "more", resume=str(tmp_path / "run" / "checkpoint-3"), **changes)
    train(longer, progress=False)
    found = {r["step"]: r["learning_rate"] for r in records(tmp_path / "more")}
    assert found == {step + 1: pytest.approx(learning_rate(longer, step)) for step in range(3, 12)}
    state = torch.load(tmp_path / "more" / "checkpoint-8" / "optimizer.pt", weights_only=True)
    assert min(found.values()) > 0 and state["optimizer"]["param_groups"][0]["lr"] == found[8]


def test_output_folder_and_provenance(base, tmp_path):
    changes = {"max_train_steps": 2, "checkpoint_every": 1, "motion_weight": 0.3, "gradient_ratio_every": 1, "sigma_max": 1.0}
    path = train(settings(base, tmp_path / "run", **changes), progress=False)
    assert path == tmp_path / "run" / ADAPTER
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == [
        "checkpoint-1", "comfyui", "config.yaml", "curves.png", "log.jsonl", "provenance.json", ADAPTER, "report.html",
        "report.md", "tensorboard",
    ]  # fmt: skip
    about = json.loads((tmp_path / "run" / "provenance.json").read_text())
    assert [c["caption"] for c in about["clips"]] == ["clip number 0", "clip number 1", "clip number 2"]
    assert about["config"]["motion_weight"] == 0.3 and about["revision"] and about["motion_preset"] == "calibrated"
    with safe_open(path, "pt") as reader:  # what it was told and how it was noised travel with the adapter itself
        inside = json.loads(reader.metadata()["phys_pipeline"])
    assert inside["guidance"] == about["guidance"] == 6.0 and inside["shift"] == about["shift"] == 1.0
    assert inside["loss_weights"] == {"spectral": 0.3} and inside["sigma_law"] and inside["rank"] and inside["versions"]["torch"]
    assert inside == {key: about[key] for key in inside}
    assert [path.name for path in (tmp_path / "run" / "comfyui").iterdir()] == ["run.safetensors"]
    check_same(tmp_path / "run" / "comfyui" / "run.safetensors", open_adapter(path).read())
    assert not (tmp_path / "run" / "checkpoint-1" / "comfyui").exists()
    assert about["trainable_parameters"] == sum(t.numel() for t in weights(tmp_path / "run").values())
    first = records(tmp_path / "run")[0]
    assert first["motion_share"] == 1.0 and first["motion"] >= 0 and first["motion_energy_ratio"] > 0
    assert first["gradient_norm"] > 0 and first["gradient_ratio"] is not None
    assert any((tmp_path / "run" / "tensorboard").iterdir())


def test_weight_zero_is_the_plain_denoising_run(base, tmp_path, caplog):
    with caplog.at_level(logging.INFO):
        train(settings(base, tmp_path / "a", max_train_steps=2, motion_weight=0), progress=False)
    train(settings(base, tmp_path / "b", max_train_steps=2, motion_weight=2.0, sigma_max=1.0), progress=False)
    plain, moved = records(tmp_path / "a"), records(tmp_path / "b")
    assert plain[0]["motion"] is None and plain[0]["motion_share"] == 0 and "denoising loss alone" in caplog.text
    assert plain[0]["denoising"] == moved[0]["denoising"]  # same clips, noise and sigma
    assert plain[1]["denoising"] != moved[1]["denoising"]


def test_a_batch_is_the_mean_of_its_samples(base, tmp_path):
    """So accumulation and several processes train like one large batch: same clips, noise and sigma in the same places."""
    trainer = trainer_of(settings(base, tmp_path / "run", motion_weight=0.5, sigma_max=1.0))
    sigma = torch.tensor([0.3, 0.6])

    def loss_and_gradient(places):
        total = trainer.losses(0, places, sigma[places.start : places.stop])[0].total
        return total.item(), torch.cat([g.flatten() for g in torch.autograd.grad(total, trainer.parameters)])

    (both, gradient), (first, g1), (second, g2) = map(loss_and_gradient, (range(0, 2), range(0, 1), range(1, 2)))
    assert both == pytest.approx((first + second) / 2, rel=1e-5)
    assert torch.allclose(gradient, (g1 + g2) / 2, atol=1e-3 * gradient.abs().max())  # float32: 2e-4 was seen


def test_accumulation_sees_the_same_samples_as_a_large_batch(base, tmp_path):
    train(settings(base, tmp_path / "large", max_train_steps=1, motion_weight=0.5, sigma_max=1.0), progress=False)
    split = {"train_batch_size": 1, "gradient_accumulation_steps": 2, "max_train_steps": 1}
    train(settings(base, tmp_path / "small", motion_weight=0.5, sigma_max=1.0, **split), progress=False)
    large, small = records(tmp_path / "large")[0], records(tmp_path / "small")[0]
    for key in ("denoising", "motion", "motion_share", "gradient_norm", "sigma_mean"):
        assert large[key] == pytest.approx(small[key], rel=1e-4), key


def test_adapter_is_float32_on_a_bfloat16_base_and_moves_with_a_tiny_rate(base, tmp_path):
    trainer = trainer_of(settings(base, tmp_path / "run", precision="bf16", learning_rate=1e-6, gradient_checkpointing=True))
    assert {p.dtype for p in trainer.parameters} == {torch.float32}
    assert {p.dtype for p in trainer.bare_model.parameters() if not p.requires_grad} == {torch.bfloat16}
    before = [p.detach().clone() for p in trainer.parameters]
    for step in range(3):
        trainer.step(step)
    moved = [not torch.equal(a, b) for a, b in zip(before, trainer.parameters, strict=True)]
    assert all(moved)
    names = [n for n, p in trainer.bare_model.named_parameters() if p.requires_grad]
    assert names and all(n.startswith(("transformer_blocks.", "single_transformer_blocks.")) and "lora_" in n for n in names)


def test_model_is_told_guidance_times_thousand_and_the_sigma_that_made_the_noise(base, tmp_path):
    trainer = trainer_of(settings(base, tmp_path / "run", guidance=4.5, motion_weight=0))
    seen = {}
    trainer.bare_model.register_forward_pre_hook(lambda _, __, kwargs: seen.update(kwargs), with_kwargs=True)
    sigma = torch.tensor([0.25, 0.98733])
    trainer.losses(0, range(0, 2), sigma)
    assert seen["guidance"].tolist() == [4500.0, 4500.0]
    assert torch.equal(seen["timestep"], sigma * 1000)
    x0 = torch.stack([trainer.dataset.clean(i) for i in batch_indices([0] * 3, 3, 0, 2)])
    noise = torch.stack([torch.randn(x0.shape[1:], generator=generator(3, "noise", 0, p)) for p in range(2)])
    s = sigma.view(-1, 1, 1, 1, 1)
    assert torch.allclose(seen["hidden_states"], (1 - s) * x0 + s * noise, atol=1e-6)


def test_caption_dropout_uses_the_encoded_empty_caption(base, tmp_path):
    with pytest.raises(ModelError, match="caption_dropout=0"):  # this model makes no token of an empty caption
        trainer_of(settings(base, tmp_path / "run", caption_dropout=0.5, cache_dir=str(tmp_path / "cache")))
    save_tiny(tmp_path / "model", prompt_template={"template": "a video: {}", "crop_start": 0})
    model = str(tmp_path / "model")
    trainer = trainer_of(settings(base, tmp_path / "run", caption_dropout=0.5, model=model, cache_dir=str(tmp_path / "cache")))
    empty = trainer.dataset.conditioning(0, drop=True)
    assert empty["prompt_attention_mask"].sum() > 0
    seen = []
    trainer.bare_model.register_forward_pre_hook(
        lambda _, __, kwargs: seen.append(kwargs["encoder_hidden_states"].detach()), with_kwargs=True
    )
    for step in range(8):
        trainer.losses(step, range(0, 2), torch.tensor([0.5, 0.5]))
    dropped = [torch.equal(row, empty["prompt_embeds"]) for rows in seen for row in rows]
    assert 3 <= sum(dropped) <= 13


def test_latent_space_motion_term(base, tmp_path):
    trainer = trainer_of(settings(base, tmp_path / "run", motion_space="latent", sigma_max=1.0, frames=13))
    term = trainer.objective.terms["spectral"][1]
    assert term.decode is None and term.drop_first  # 13 frames become 4 latent frames
    record = trainer.step(0)
    assert record["motion"] is not None and record["motion_share"] == 1.0
    with pytest.raises(ConfigError, match="leaves 1 of 5 frames, too few"):
        trainer_of(settings(base, tmp_path / "run", motion_space="latent"))


def test_not_finite_loss_names_step_and_clips(base, tmp_path):
    with pytest.raises(ModelError, match=r"step \d+: the loss is not finite on \d\.mp4, \d\.mp4") as caught:
        extreme = {"learning_rate": 1e30, "max_grad_norm": 1e30, "lr_warmup_steps": 0, "motion_weight": 0}
        train(settings(base, tmp_path / "run", **extreme), progress=False)
    assert "\n" not in str(caught.value) and not (tmp_path / "run" / ADAPTER).exists()


def test_a_gradient_that_is_not_finite_changes_no_weight(base, tmp_path):
    trainer = trainer_of(settings(base, tmp_path / "run", motion_weight=0))
    trainer.parameters[3].register_hook(lambda gradient: gradient * float("inf"))
    before = [p.detach().clone() for p in trainer.parameters]
    with pytest.raises(ModelError, match=r"step 5: the gradient is not finite on \d\.mp4, \d\.mp4"):
        trainer.step(4)
    assert all(torch.equal(a, b) for a, b in zip(before, trainer.parameters, strict=True))


def test_sizes_the_model_cannot_take_are_refused(base, tmp_path):
    with pytest.raises(ConfigError, match="use 5 or 9"):
        train(settings(base, tmp_path / "run", frames=6), progress=False)
    with pytest.raises(ConfigError, match="multiple of 16"):
        train(settings(base, tmp_path / "run", height=24), progress=False)
    with pytest.raises(ConfigError, match="use 37 or 41"):  # though no clip is long enough for it
        train(settings(base, tmp_path / "run", buckets=[[5, 16, 16], [40, 16, 16]]), progress=False)


def test_half_precision_on_a_cpu_and_wrong_process_counts_are_refused(tmp_path, monkeypatch):
    for key in ("precision", "vae_precision"):
        with pytest.raises(ConfigError, match=f"{key}=fp16 .*use bf16 or fp32"):
            start_accelerator(TrainConfig(**{key: "fp16"}))
    with pytest.raises(ConfigError, match="2 processes were asked for, accelerate runs 1"):
        start_accelerator(TrainConfig(num_processes=2))
    monkeypatch.setenv("WORLD_SIZE", "2")  # what a launcher sets where accelerate then finds itself alone
    with pytest.raises(ConfigError, match="2 processes were asked for, accelerate runs 1"):
        start_accelerator(TrainConfig())


def test_a_finished_run_is_not_trained_again_unless_something_changed(base, tmp_path, caplog):
    """With resume=true the same settings, clips, captions and base model give the adapter that is there."""
    once = settings(base, tmp_path / "run", max_train_steps=2, motion_weight=0.0, resume="true")
    path = train(once, progress=False)
    made = path.stat().st_mtime_ns
    with caplog.at_level(logging.INFO):
        assert train(once, progress=False) == path
    assert path.stat().st_mtime_ns == made and "already trained" in caplog.text
    longer = settings(base, tmp_path / "run", max_train_steps=3, motion_weight=0.0, resume="true")
    assert train(longer, progress=False) == path
    assert path.stat().st_mtime_ns != made and records(tmp_path / "run")[-1]["step"] == 3


def test_a_fresh_run_never_destroys_an_unfinished_one(tmp_path):
    config = TrainConfig(output_dir=str(tmp_path))
    (tmp_path / "checkpoint-5").mkdir()
    (tmp_path / "checkpoint-5" / "state.json").write_text("{}")
    for refusing in (refuse_unfinished, clear_output):
        with pytest.raises(ConfigError, match=r"checkpoint-5 of an unfinished run: resume=true"):
            refusing(config)
    assert (tmp_path / "checkpoint-5").is_dir()
    (tmp_path / "provenance.json").write_text("{}")  # written last: the run is finished
    refuse_unfinished(config)
    assert (tmp_path / "checkpoint-5").is_dir()
    clear_output(config)
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_data_folder_costs_a_finished_run_nothing(base, tmp_path):
    once = settings(base, tmp_path / "run", max_train_steps=4, checkpoint_every=2, motion_weight=0.0)
    train(once, progress=False)
    before = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*"))
    with pytest.raises(DataError):
        train(settings(base, tmp_path / "run", data=str(tmp_path / "typo"), motion_weight=0.0), progress=False)
    assert sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*")) == before


def test_every_sample_once_per_epoch_in_an_order_that_needs_no_state():
    order = batch_indices([0] * 7, 1, 0, 21)
    assert [sorted(order[i : i + 7]) for i in (0, 7, 14)] == [list(range(7))] * 3
    assert order[:7] != order[7:14]
    assert order == [batch_indices([0] * 7, 1, i, 1)[0] for i in range(21)]
    assert order != batch_indices([0] * 7, 2, 0, 21)


def test_noise_levels_are_stratified_over_steps():
    path = get_family("hunyuan_video").path
    config = TrainConfig()
    for batch in (1, 2, 3, 32):
        levels = torch.cat([noise_levels(path, config, 1.0, step, batch) for step in range(-(-16 // batch))])
        counts = torch.histc(levels, bins=len(levels), min=0, max=1)
        assert levels.dtype == torch.float32 and counts.max() <= 2 and (counts == 1).float().mean() > 0.9  # an edge may round


@pytest.mark.parametrize("law", ["stratified", "uniform", "logit_normal"])
@pytest.mark.parametrize("shift", [1.0, 7.0])
def test_noise_levels_have_the_laws_quantiles_shifted_once(law, shift):
    path = get_family("hunyuan_video").path
    config = TrainConfig(sigma_law=law)
    levels = torch.cat([noise_levels(path, config, shift, step, 4) for step in range(1500)])
    q = torch.tensor([0.1, 0.25, 0.5, 0.75, 0.9])
    u = torch.sigmoid(2**0.5 * torch.erfinv(2 * q - 1)) if law == "logit_normal" else q
    once = shift * u / (1 + (shift - 1) * u)
    twice = shift * once / (1 + (shift - 1) * once)
    assert torch.allclose(levels.quantile(q), once, atol=0.03)
    assert shift == 1.0 or (levels.quantile(q)[:3] - twice[:3]).abs().min() > 0.07


def test_learning_rate_schedule():
    config = TrainConfig(learning_rate=2.0, lr_warmup_steps=3, max_train_steps=103)
    rates = [learning_rate(config, s) for s in range(104)]
    assert rates[:4] == [0.5, 1.0, 1.5, 2.0] and rates[53] == pytest.approx(1.0) and rates[103] == pytest.approx(0.0)
    assert all(a >= b for a, b in itertools.pairwise(rates[3:]))
    assert all(r > 0 for r in rates[:103])
    assert learning_rate(TrainConfig(learning_rate=2.0, lr_warmup_steps=50, max_train_steps=2), 1) > 0


def test_generators_depend_on_their_purpose():
    purposes = [(0, "noise", 1, 0), (0, "noise", 0, 1), (1, "noise", 1, 0), (0, "drop", 1, 0)]
    draws = {torch.rand(1, generator=generator(*p)).item() for p in purposes}
    assert len(draws) == 4
    assert torch.equal(torch.rand(3, generator=generator(0, "a")), torch.rand(3, generator=generator(0, "a")))


def test_freezing_alarm_rings_once_under_four_fifths_of_the_start(caplog):
    alarm = FreezingAlarm()
    with caplog.at_level(logging.WARNING):
        rung = [alarm.update(step, ratio) for step, ratio in enumerate([0.8] * 50 + [None] * 5 + [0.7] * 50 + [0.5] * 90)]
    assert sum(rung) == 1 and not any(rung[:105]) and "motion_weight" in caplog.text
    steady = FreezingAlarm()
    assert not any(steady.update(step, 0.5) for step in range(200))  # blur by noise, from the start


def test_every_objective_trains_and_is_logged(base, tmp_path):
    pytest.importorskip("cv2")
    names = ["spectral", "anchored", "coherence_weighted", "preference", "flow", "ltd", "sampled"]
    changes: dict = {
        "sampled_steps": 3,
        "motion_sigma": "every_step",
        "flow_sigma_max": 1.0,
        "preference_space": "pixel",
        "gradient_ratio_every": 1,
    }
    trainer = trainer_of(settings(base, tmp_path / "run", objective=names, **changes))
    flags = [p.requires_grad for p in trainer.bare_model.parameters()]
    record = trainer.step(0)
    for key in ("denoising", "denoising_weighted", "motion", "anchored", "flow", "preference", "sampled", "gradient_ratio"):
        assert record[key] is not None and record[key] >= 0, key
    assert record["motion_share"] == 1.0 and record["motion_skipped"] == 0 and record["motion_energy_ratio"] > 0
    assert record["preference"] == pytest.approx(0.6931, abs=1e-4)  # the adapter starts as the base model
    assert [p.requires_grad for p in trainer.bare_model.parameters()] == flags
    assert trainer.step(1)["preference"] != pytest.approx(0.6931, abs=1e-7)  # the base is still the base, the adapter moved
    plain = trainer_of(settings(base, tmp_path / "plain", objective="none")).step(0)
    assert plain["denoising"] == record["denoising"]
    assert plain["motion"] is None and plain["denoising_weighted"] is None and "preference" not in plain


@pytest.mark.parametrize("objective", ["preference", "sampled"])
def test_objectives_that_compare_with_the_base_need_an_adapter_to_switch_off(objective, base, tmp_path, monkeypatch):
    monkeypatch.setattr("training.loop.adapter_names", lambda transformer: [])
    with pytest.raises(ConfigError, match="compares with the base model"):
        trainer_of(settings(base, tmp_path / "run", objective=objective, preference_space="pixel"))


def test_cropped_motion_loss_is_the_same_in_one_batch_and_in_two(base, tmp_path):
    changes = {"motion_weight": 0.5, "sigma_max": 1.0, "frames": 13, "height": 32, "width": 32, "max_train_steps": 1}
    changes |= {"motion_crop_frames": 2, "motion_crop_size": 16, "objective": ["spectral", "preference"]}
    large = trainer_of(settings(base, tmp_path / "large", **changes))
    small = trainer_of(settings(base, tmp_path / "small", train_batch_size=1, gradient_accumulation_steps=2, **changes))
    assert large.objective.terms["spectral"][1].crop.size == 2
    first, second = large.step(0), small.step(0)
    for key in ("denoising", "motion", "preference", "motion_energy_ratio", "gradient_norm"):
        assert first[key] == pytest.approx(second[key], rel=1e-3), key


def test_full_fine_tuning_saves_a_diffusers_folder_and_resumes_exactly(base, tmp_path):
    """`rank: null` trains every weight; the average of the weights is kept beside them and resumed too."""
    from diffusers import HunyuanVideoTransformer3DModel

    changes = {"rank": None, "max_train_steps": 4, "checkpoint_every": 2, "motion_weight": 0.0, "ema_decay": 0.5}
    path = train(settings(base, tmp_path / "straight", **changes), progress=False)
    assert path == tmp_path / "straight" / "transformer"
    resume = str(tmp_path / "straight" / "checkpoint-2")
    train(settings(base, tmp_path / "resumed", resume=resume, **changes), progress=False)

    def state(folder):
        return HunyuanVideoTransformer3DModel.from_pretrained(folder / "transformer").state_dict()

    trained, before = state(tmp_path / "straight"), state(base / "model")
    assert equal(trained, state(tmp_path / "resumed"))
    assert equal(state(tmp_path / "straight" / "ema"), state(tmp_path / "resumed" / "ema"))
    assert sum(not torch.equal(trained[k], before[k]) for k in before) > 0.9 * len(before)
    assert not equal(trained, state(tmp_path / "straight" / "ema"))
    about = json.loads((tmp_path / "straight" / "provenance.json").read_text())
    assert about["base_model"] == "model" and about["trainable_parameters"] == sum(v.numel() for v in before.values())
    once_more = settings(base, tmp_path / "straight", **{**changes, "resume": "true"})
    assert train(once_more, progress=False) == path and str(tmp_path) not in json.dumps(about)
    with pytest.raises(ConfigError, match="rank=None and this run rank=2"):
        train(settings(base, tmp_path / "other", **{**changes, "resume": resume, "rank": 2}), progress=False)


def test_full_fine_tuning_in_bfloat16_keeps_float32_weights(base, tmp_path):
    trainer = trainer_of(settings(base, tmp_path / "run", rank=None, precision="bf16", learning_rate=1e-6))
    assert {p.dtype for p in trainer.bare_model.parameters()} == {torch.float32}
    before = [p.detach().clone() for p in trainer.parameters]
    trainer.step(0)
    assert sum(not torch.equal(a, b) for a, b in zip(before, trainer.parameters, strict=True)) > 0.9 * len(before)


def test_epochs_become_steps(base, tmp_path):
    train(settings(base, tmp_path / "run", num_epochs=3, motion_weight=0, checkpoint_every=0), progress=False)
    assert [r["step"] for r in records(tmp_path / "run")] == [1, 2, 3, 4, 5]  # 3 passes over 3 samples, 2 per step
