"""Open-Sora 2.0 as a family: what training tells the transformer is what sampling tells it."""

import shutil

import pytest
import torch
from tiny_open_sora_2 import GENERATION, save_tiny, tiny_pipeline

from phys_pipeline.errors import ConfigError, ModelError
from phys_pipeline.families import as_loaded, get_family
from phys_pipeline.families.open_sora_2 import SPEC, OpenSora2Family
from phys_pipeline.models.open_sora_2 import TRANSFORMER_CONFIG, pack, video_shift

SIZE = {"height": 16, "width": 32, "num_frames": 5, "num_inference_steps": 3}


@pytest.fixture(scope="module")
def pipeline():
    return tiny_pipeline()


def noise(channels=4, frames=2, height=2, width=4, seed=0):
    return torch.randn(1, channels, frames, height, width, generator=torch.Generator().manual_seed(seed))


def test_names_and_facts():
    family = get_family("open-sora-2.0")
    assert isinstance(family, OpenSora2Family) and family.spec is SPEC and SPEC.prediction == "noise - x0"
    assert SPEC.latent_channels * 4 == TRANSFORMER_CONFIG["out_channels"] and SPEC.parameters == 11.9
    assert family.path.timestep(torch.tensor([0.25])).item() == 0.25
    assert as_loaded(tiny_pipeline()).family.spec is SPEC


def test_sizes_and_their_shift():
    family = OpenSora2Family()
    assert family.latent_shape(129, 192, 336) == (16, 33, 24, 42)
    for size in ((6, 192, 336), (133, 192, 336), (5, 200, 336)):
        with pytest.raises(ConfigError):
            family.check_size(*size)
    from diffusers import FlowMatchEulerDiscreteScheduler

    scheduler = FlowMatchEulerDiscreteScheduler(shift=3.0)
    assert family.timestep_shift(scheduler, 129, 256, 256) == video_shift(129, 256, 256) == pytest.approx(33**0.5)


@torch.no_grad()
def test_the_transformer_is_told_the_same_in_training_as_in_sampling(pipeline):
    model = as_loaded(pipeline)
    family, settings = model.family, {**model.defaults, **GENERATION, **SIZE, "guidance_scale": 1.0}
    conditioning = family.sampling_conditioning(pipeline, "a ball", settings)
    calls, latents = [], [noise()]
    hook = pipeline.transformer.register_forward_pre_hook(lambda m, a, k: calls.append(k), with_kwargs=True)
    arguments = family.sampling_arguments(conditioning, settings, latents[0].clone())
    pipeline(
        **arguments, output_type="latent", callback_on_step_end=lambda p, s, t, k: latents.append(k["latents"].clone()) or {}
    )
    hook.remove()
    assert len(calls) == 3
    for call, x_t, sigma in zip(calls, latents, pipeline.scheduler.sigmas, strict=False):
        inputs = family.inputs(x_t, sigma[None], conditioning)
        assert inputs.keys() == call.keys() - {"joint_attention_kwargs"} and call["joint_attention_kwargs"] is None
        for name, value in inputs.items():
            if isinstance(value, torch.Tensor):
                assert value.dtype == call[name].dtype and torch.equal(value, call[name]), name
            else:
                assert value == call[name]
        velocity = family.prediction(pipeline.transformer(**inputs), x_t)
        assert velocity.shape == x_t.shape


@torch.no_grad()
def test_from_the_exact_prediction_sampling_and_training_find_the_clean_video(pipeline):
    """The path's target, packed as the transformer's answer, leads the sampler to x0 in any number of steps."""
    family, x0, start = OpenSora2Family(), noise(seed=1), noise(seed=2)
    sigma = torch.tensor([0.7])
    target = family.path.target(x0, start, sigma)
    assert torch.allclose(family.path.clean(target, family.path.corrupt(x0, start, sigma), sigma), x0, atol=1e-6)
    answer = pack(target)
    hook = pipeline.transformer.register_forward_hook(lambda *_: (answer,))
    try:
        for steps in (1, 12):
            options = {**SIZE, "num_inference_steps": steps, "output_type": "latent", "max_sequence_length": 8}
            assert torch.allclose(pipeline("a ball", latents=start, **options).frames, x0, atol=1e-5)
    finally:
        hook.remove()
    assert torch.equal(family.prediction((answer,), x0), target)


def test_captions_are_told_rate_and_motion_and_others_are_not(pipeline):
    family = as_loaded(pipeline).family
    settings = {**SPEC.generation, **GENERATION}

    def encoded(text):
        return pipeline.encode_prompt(text, max_sequence_length=24)[0]

    def read(*captions, **generation):
        return family.encode_text(pipeline, captions, {"max_sequence_length": 24, **generation})["prompt_embeds"]

    assert torch.equal(read("a ball", fps=8, motion_score=6), encoded("a ball 8 FPS. 6 motion score."))
    assert torch.equal(read("a ball"), encoded("a ball 24 FPS. 4 motion score."))
    assert torch.equal(read(""), encoded(""))
    both = family.sampling_conditioning(pipeline, "a ball", {**settings, "negative_prompt": "a blur"})
    assert torch.equal(both["prompt_embeds"], encoded("a ball 8 FPS. 4 motion score."))
    assert torch.equal(both["negative_prompt_embeds"], encoded("a blur"))
    assert "negative_prompt_embeds" not in family.sampling_conditioning(pipeline, "a", {**settings, "guidance_scale": 1.0})

    family.fps = 16.0  # of the clips in training
    assert torch.equal(read("a ball"), encoded("a ball 16 FPS. 4 motion score."))
    assert torch.equal(read("a ball", fps=8), encoded("a ball 8 FPS. 4 motion score."))
    assert family.text_settings(settings) == {"fps": 16.0, "motion_score": 4}
    with pytest.raises(ConfigError, match="no caption"):
        read()


def test_a_batch_needs_a_text_and_a_noise_level_per_sample(pipeline):
    family = OpenSora2Family()
    text = family.encode_text(pipeline, ["a", "b"], {"max_sequence_length": 8})
    assert family.inputs(noise().repeat(2, 1, 1, 1, 1), torch.tensor([0.1, 0.9]), text)["hidden_states"].shape == (2, 4, 36)
    with pytest.raises(ConfigError, match="one per sample"):
        family.inputs(noise(), torch.tensor([0.5]), text)


def test_adapters_go_on_the_attention_of_all_blocks_and_nothing_else(pipeline):
    import re

    from phys_pipeline.adapters.layers import linear_layers

    found = [name for name in linear_layers(pipeline.transformer) if re.fullmatch(SPEC.lora_target_regex, name)]
    assert len(found) == 8 + 3 and all(name.startswith(("transformer_blocks.0.attn", "single_transformer_blocks.0.attn"))
                                       for name in found)  # fmt: skip


def test_the_hub_s_official_files_are_for_the_converter(tmp_path, monkeypatch):
    """Two small files are asked for, none of FLUX's; and the message doesn't tell anyone to fetch all."""
    import huggingface_hub

    asked = []

    def fetch(source, allow_patterns):
        asked.extend(allow_patterns)
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetch)
    with pytest.raises(ModelError, match="phys-pipeline convert --family open_sora_2"):
        get_family("open_sora_2").load("transformer", SPEC.hub_id)
    assert set(asked) == {"model_index.json", "phys_pipeline.json"}
    save_tiny(tmp_path / "model")
    shutil.rmtree(tmp_path / "model" / "text_encoder")
    with pytest.raises(ModelError, match=r"no text_encoder folder.*phys-pipeline convert"):
        get_family("open_sora_2").load("text", str(tmp_path / "model"))
