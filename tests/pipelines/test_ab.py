"""The fair pair: same noise, same prompt, bit-equal without an adapter, and nothing left behind."""

import numpy as np
import pytest
import torch
from tiny import GENERATION, save_tiny, tiny_pipeline

from phys_pipeline.adapters import adapter_names, inject_lora, load_adapter, save_adapter
from phys_pipeline.errors import AdapterError, ConfigError, ModelError
from phys_pipeline.families import LoadedModel, load_model
from phys_pipeline.media import Video
from phys_pipeline.pipelines import Pair, generate, generate_pair

PROMPT = "a red ball"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_tiny(tmp_path_factory.mktemp("ab") / "tiny")


@pytest.fixture(scope="module")
def adapter(tmp_path_factory):
    pipeline = tiny_pipeline()
    g = torch.Generator().manual_seed(1)
    for parameter in inject_lora(pipeline.transformer, 4, 8.0, seed=0):
        parameter.data.add_(0.3 * torch.randn(parameter.shape, generator=g))
    folder = tmp_path_factory.mktemp("ab") / "adapter"
    return save_adapter(pipeline.transformer, folder, family="hunyuan_video", base_model="tiny")


@pytest.fixture
def model(folder):
    return load_model(str(folder))


def _equal(a, b):
    return np.array_equal(a.frames, b.frames)


def test_defaults_come_from_the_model_and_can_be_overridden(model):
    video = generate(model, PROMPT)
    assert isinstance(video, Video)
    assert video.frames.shape == (5, 16, 16, 3) and video.fps == 8 and video.source == PROMPT
    wide = generate(model, PROMPT, num_frames=1, width=32, fps=4, num_inference_steps=1)
    assert wide.frames.shape == (1, 16, 32, 3) and wide.fps == 4
    assert video.frames.std() > 1  # not one flat colour, so that equality below says something


def test_same_as_the_plain_pipeline_with_a_cpu_generator(model):
    options = {k: v for k, v in GENERATION.items() if k != "fps"}
    frames = model.pipeline(PROMPT, generator=torch.Generator().manual_seed(3), output_type="pt", **options).frames[0]
    assert _equal(generate(model, PROMPT, 3), Video.from_tensor(frames.permute(1, 0, 2, 3), 8))


def test_bare_pipeline_and_loaded_model_agree(model):
    assert _equal(generate(model.pipeline, PROMPT), generate(model, PROMPT))
    in_memory = generate(tiny_pipeline(), PROMPT, **GENERATION)
    assert _equal(in_memory, generate(model, PROMPT))


def test_seed_and_prompt_decide_and_the_global_generator_does_not(model):
    torch.manual_seed(0)
    first = generate(model, PROMPT, 1)
    state = torch.get_rng_state()
    torch.manual_seed(99)
    again = generate(model, PROMPT, 1)
    torch.set_rng_state(state)
    generate(model, PROMPT, 1)
    assert _equal(first, again) and torch.equal(torch.get_rng_state(), state)
    assert not _equal(first, generate(model, PROMPT, 2))
    assert not _equal(first, generate(model, "blue", 1))


def test_without_adapter_or_with_weight_zero_both_videos_are_bit_equal(model, adapter):
    plain = generate(model, PROMPT)
    for options in ({}, {"adapter": adapter, "weight": 0.0}):
        pair = generate_pair(model, PROMPT, **options)
        assert isinstance(pair, Pair)
        assert _equal(pair.baseline, pair.physics) and _equal(pair.baseline, plain)
    load_adapter(model, adapter)
    for options in ({}, {"adapter": "physics", "weight": 0}):
        pair = generate_pair(model, PROMPT, **options)
        assert _equal(pair.baseline, pair.physics) and _equal(pair.baseline, plain)


def test_adapter_changes_only_the_physics_video(model, adapter):
    plain = generate(model, PROMPT)
    by_path = generate_pair(model, PROMPT, adapter)
    assert _equal(by_path.baseline, plain) and not _equal(by_path.physics, plain)
    assert adapter_names(model.pipeline.transformer) == []
    load_adapter(model, adapter)
    by_name = generate_pair(model, PROMPT, "physics")
    assert _equal(by_name.physics, by_path.physics) and _equal(by_name.baseline, plain)
    assert _equal(generate(model, PROMPT), by_path.physics)  # generate keeps what is active
    half = generate_pair(model, PROMPT, "physics", weight=0.5)
    assert not _equal(half.physics, by_path.physics) and not _equal(half.physics, plain)
    assert half.settings["weight"] == 0.5 and half.settings["adapter"] == "physics"
    assert (half.prompt, half.seed, half.settings["num_inference_steps"]) == (PROMPT, 0, 2)


def test_adapter_state_survives_pairs_errors_and_ctrl_c(model, adapter):
    load_adapter(model, adapter, name="mine", weight=0.5)
    expected = generate(model, PROMPT)
    model.pipeline.transformer.train()

    def interrupt(stage, step, total):
        if stage == "physics" and step == 1:
            raise KeyboardInterrupt

    for chosen in ("mine", adapter):
        generate_pair(model, PROMPT, chosen, weight=2.0)
        assert _equal(generate(model, PROMPT), expected)
        with pytest.raises(KeyboardInterrupt):
            generate_pair(model, PROMPT, chosen, weight=2.0, progress=interrupt)
        assert _equal(generate(model, PROMPT), expected)
        assert adapter_names(model.pipeline.transformer) == ["mine"]
    assert model.pipeline.transformer.training


def test_dropout_of_a_model_in_training_does_not_reach_the_videos(model):
    for parameter in inject_lora(model.pipeline.transformer, 4, 8.0, dropout=0.5, seed=0):
        parameter.data.add_(0.3)
    trainable = [p.requires_grad for p in model.pipeline.transformer.parameters()]
    model.pipeline.transformer.train()
    pairs = [generate_pair(model, PROMPT, "default") for _ in range(2)]
    assert _equal(pairs[0].physics, pairs[1].physics) and not _equal(pairs[0].physics, pairs[0].baseline)
    assert [p.requires_grad for p in model.pipeline.transformer.parameters()] == trainable


def test_progress_counts_every_stage(model):
    seen = []
    generate_pair(model, PROMPT, progress=lambda *report: seen.append(report), true_cfg_scale=2.0, negative_prompt="bad")
    assert seen == [("text", i, 2) for i in range(3)] + [(s, i, 2) for s in ("baseline", "physics") for i in range(3)]
    seen.clear()
    generate(model, PROMPT, progress=lambda *report: seen.append(report), num_inference_steps=1)
    assert seen == [("text", 0, 1), ("text", 1, 1), ("video", 0, 1), ("video", 1, 1)]


def test_negative_prompt_and_guidance_have_an_effect(model):
    base = generate(model, PROMPT)
    assert not _equal(base, generate(model, PROMPT, true_cfg_scale=3.0, negative_prompt="bad"))
    assert _equal(base, generate(model, PROMPT, negative_prompt="bad"))  # unused at scale 1
    assert not _equal(base, generate(model, PROMPT, guidance_scale=1.0))


def test_nothing_is_printed_and_the_progress_bar_setting_stays(model, capfd):
    model.pipeline.set_progress_bar_config(desc="mine")
    generate(model, PROMPT)
    out = capfd.readouterr()
    assert out.out == "" and out.err == ""
    assert model.pipeline._progress_bar_config == {"desc": "mine"}


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"num_frames": 6}, ConfigError, "use 5 or 9"),
        ({"height": 20}, ConfigError, "use 16 or 32"),
        ({"num_inference_steps": 0}, ConfigError, "at least 1"),
        ({"fps": 0}, ConfigError, "positive"),
        ({"steps": 3}, ConfigError, "unknown generation setting 'steps'"),
        ({"guidance": 3}, ConfigError, "did you mean guidance_scale"),
        ({"true_cfg_scale": 2.0, "negative_prompt": ""}, ModelError, "has no token"),
    ],
)
def test_unfit_settings_are_named(model, options, error, message):
    with pytest.raises(error, match=message):
        generate_pair(model, PROMPT, **options)


def test_unfit_adapters_are_named(model, adapter, tmp_path):
    load_adapter(model, adapter)
    with pytest.raises(AdapterError, match="there is no adapter phisics"):
        generate_pair(model, PROMPT, "phisics")
    with pytest.raises(AdapterError, match="not a number"):
        generate_pair(model, PROMPT, "physics", weight=float("inf"))
    assert adapter_names(model.pipeline.transformer) == ["physics"]


def test_a_model_that_returns_nan_is_an_error(model):
    broken = LoadedModel(tiny_pipeline(), model.family, "memory", None, model.defaults)
    broken.pipeline.transformer.proj_out.bias.data.fill_(float("nan"))
    with pytest.raises(ModelError, match="returned NaN"):
        generate(broken, PROMPT)
