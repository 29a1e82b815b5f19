"""The real trainer on every family of diffusers: two steps, the adapter in a fresh pipeline, and a pair from the same noise."""

from __future__ import annotations

import json

import pytest
import torch
from tiny import save_clips
from tiny_families import CASES, save

from phys_pipeline.adapters import load_adapter, transformers_of
from phys_pipeline.adapters.merging import merge_adapter
from phys_pipeline.errors import AdapterError, ConfigError, ModelError
from phys_pipeline.families import load_model
from phys_pipeline.noise_path import fraction_below
from phys_pipeline.pipelines import generate_pair
from training.config import TrainConfig
from training.model_family import model_family
from training.schedule import noise_levels
from training.train_lora import main

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:CPU Autocast", "ignore:In CPU autocast")
TRAINED = {  # cases of tests/tiny_families.py and what their command needs more
    "wan": [], "wan_two_experts": ["expert=low"], "wan_time_per_token": [], "cogvideox": [], "cogvideox_1_5": [], "ltx_video": [],
    "hunyuan_video_1_5": [], "mochi": [],
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.usefixtures("fresh_accelerate_state")
@pytest.mark.parametrize("case", TRAINED)
def test_trained_saved_loaded_and_compared(case, tmp_path, capsys):
    model, size = save(case, tmp_path / "model"), CASES[case]
    clips = save_clips(tmp_path / "clips", count=2, frames=size.frames)
    command = [
        f"model={model}", f"data={clips}", f"output_dir={tmp_path / 'run'}", f"cache_dir={tmp_path / 'cache'}", "fps=8",
        f"frames={size.frames}", f"height={size.side}", f"width={size.side}", "rank=2", "precision=fp32", "learning_rate=0.1",
        "max_train_steps=2", "lr_warmup_steps=0", "checkpoint_every=0", "trackers=[]", "sigma_max=1.0", *TRAINED[case],
    ]  # fmt: skip
    if case == "wan":
        command += ["validation_prompts=[a ball]", "objective=none"]
    assert main(command) == 0, capsys.readouterr().err
    about = json.loads((tmp_path / "run" / "provenance.json").read_text())
    assert about["family"] == size.family and "guidance" not in about
    assert (tmp_path / "run" / "comfyui").exists() == (size.family == "wan")

    fresh = load_model(str(model))
    info = load_adapter(fresh, tmp_path / "run")
    place = 1 if "expert=low" in command else 0
    changed = transformers_of(fresh.pipeline)[place]
    assert info.delta > 0 and "physics" in changed.peft_config

    pair = generate_pair(fresh, "clip number 0", "physics")
    assert (pair.baseline.frames != pair.physics.frames).any()
    off = generate_pair(fresh, "clip number 0", "physics", weight=0)
    assert (off.baseline.frames == off.physics.frames).all() and (off.baseline.frames == pair.baseline.frames).all()

    plain = load_model(str(model))  # diffusers' own reader gives the same layers, bit for bit
    bare = transformers_of(plain.pipeline)[place]
    bare.load_lora_adapter(str(tmp_path / "run"), prefix="transformer", weight_name="pytorch_lora_weights.safetensors")
    x = torch.randn(1, *plain.family.latent_shape(size.frames, size.side, size.side, plain.pipeline.vae))
    inputs = plain.family.inputs(x, torch.tensor([0.5]), plain.family.encode_text(plain, ["clip number 0"]))
    with torch.no_grad():
        assert torch.equal(bare(**inputs)[0], changed(**inputs)[0])


def test_each_expert_is_trained_on_its_own_noise_levels(tmp_path):
    model = str(save("wan_two_experts", tmp_path / "model"))
    weights = {}
    for expert, low, high in (("high", 0.875, 1.0), ("low", 0.0, 0.875)):
        for law in ("stratified", "logit_normal", "uniform"):
            config, family = model_family(TrainConfig(model=model, expert=expert, sigma_law=law, sigma_max=1.0))
            levels = torch.cat([noise_levels(family.path, config, 3.0, s, 4, family.sigma_range) for s in range(500)])
            assert config.family == "wan" and low <= levels.min() and levels.max() <= high
            below, start, end = (fraction_below(sigma, law, 3.0) for sigma in ((low + high) / 2, low, high))
            assert (levels < (low + high) / 2).double().mean() == pytest.approx((below - start) / (end - start), abs=0.04)
        weights[expert] = family.load("transformer", model).proj_out.weight
    assert not torch.equal(weights["high"], weights["low"])
    for wrong in ({}, {"expert": "middle"}):
        with pytest.raises(ConfigError, match="set expert=high or low"):
            model_family(TrainConfig(model=model, **wrong))
    with pytest.raises(ConfigError, match="validation_prompts need both experts"):
        model_family(TrainConfig(model=model, expert="low", validation_prompts=["a ball"]))
    for changes in ({}, {"objective": ["flow"]}, {"objective": ["repaired"], "sigma_max": 1.0}):
        with pytest.raises(ConfigError, match=r"expert=high sees noise levels from 0\.875 up"):
            model_family(TrainConfig(model=model, expert="high", **changes))
    assert model_family(TrainConfig(model=model, expert="high", objective=["none"]))[1].expert == "high"
    one = str(save("wan", tmp_path / "one"))
    with pytest.raises(ConfigError, match="wan has one transformer: leave expert=low out"):
        model_family(TrainConfig(model=one, expert="low"))


@pytest.mark.parametrize("model", ["Wan-AI/Wan2.1-T2V-1.3B-Diffusers", "zai-org/CogVideoX-5b"])
def test_a_dry_run_of_a_released_model_that_is_not_here(model, tmp_path):
    """What can't be known without its files is said; the rest is counted from the class's own defaults."""
    from training.dry_run import dry_run

    clips = save_clips(tmp_path / "clips", count=2, frames=9)
    places = {"data": str(clips), "output_dir": str(tmp_path / "run"), "cache_dir": str(tmp_path / "cache")}
    text = dry_run(TrainConfig(model=model, frames=9, height=16, width=16, objective=["none"], **places))
    assert f"not checked: experts and noise schedule of {model}" in text and "trainable parameters: " in text
    with pytest.raises(ModelError, match="can't get"):
        model_family(TrainConfig(model=model))


def test_an_adapter_of_the_low_noise_expert_is_for_a_model_with_two(tmp_path):
    from phys_pipeline.adapters import inject_lora, save_adapter

    both, one = load_model(str(save("wan_two_experts", tmp_path / "both"))), load_model(str(save("wan", tmp_path / "one")))
    for parameter in inject_lora(both.pipeline.transformer_2, 2, seed=0):
        parameter.data.add_(0.1)
    adapter = save_adapter(
        both.pipeline.transformer_2, tmp_path / "adapter", family="wan", base_model=both, extra_metadata={"expert": "low"}
    )
    with pytest.raises(AdapterError, match="low-noise expert"):
        load_adapter(one, adapter)
    file = adapter / "pytorch_lora_weights.safetensors"
    merge_adapter(file, str(tmp_path / "both"), tmp_path / "merged")
    merged = load_model(str(tmp_path / "merged"))
    before, after = (model.pipeline.transformer.state_dict() for model in (both, merged))
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    load_adapter(both := load_model(str(tmp_path / "both")), adapter)
    frames = generate_pair(both, "a ball", "physics").physics.frames.astype(int)
    assert abs(frames - generate_pair(merged, "a ball").baseline.frames).max() <= 1
