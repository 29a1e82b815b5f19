"""MVDiT's sampling against the reference's numbers, its guidance, and the pipeline's own manners."""

import diffusers.schedulers.scheduling_ddpm as scheduling
import golden_data
import pytest
import torch
from diffusers import DDPMScheduler
from tiny_mvdit import golden_inputs, golden_transformer, tiny_pipeline

from phys_pipeline.errors import ConfigError
from phys_pipeline.pipelines.mvdit import MVDiTPipeline, guide, mvdit_scheduler

GOLDEN = "iddpm_openvid"
SAMPLING = 1e-4  # of the largest absolute value, as the golden data's notes say


def distance(found, golden):
    return ((found - golden).abs().max() / golden.abs().max()).item()


@pytest.fixture
def step_noise(monkeypatch):
    """Noise of the scheduler's steps, in order, or zero."""

    def use(rows=None):
        rows = None if rows is None else iter(rows)
        monkeypatch.setattr(scheduling, "randn_tensor", lambda shape, **_: torch.zeros(shape) if rows is None else next(rows))

    return use


# schedule


def test_schedule_is_the_references():
    full = golden_data.group(GOLDEN, "full.")
    scheduler = mvdit_scheduler()
    torch.testing.assert_close(scheduler.alphas_cumprod.double(), full["alphas_cumprod"], atol=1e-6, rtol=1e-4)
    torch.testing.assert_close(scheduler.betas.double(), full["betas"], atol=1e-8, rtol=1e-5)


@pytest.mark.parametrize("steps", [100, 20, 8])
def test_respaced_schedule_is_the_references(steps):
    golden = golden_data.group(GOLDEN, f"respaced{steps}.")
    scheduler = mvdit_scheduler()
    scheduler.set_timesteps(steps)
    ascending = scheduler.timesteps.flip(0)
    assert torch.equal(ascending, golden["timestep_map"])
    assert ascending[0] == 0 and ascending[-1] == 999
    abar = scheduler.alphas_cumprod[ascending].double()
    torch.testing.assert_close(abar, golden["alphas_cumprod"], atol=1e-6, rtol=1e-4)
    betas = 1 - abar / torch.cat([abar.new_ones(1), abar[:-1]])
    torch.testing.assert_close(betas, golden["betas"], atol=1e-6, rtol=1e-3)
    for spacing in ("leading", "trailing"):
        other = DDPMScheduler.from_config(scheduler.config, timestep_spacing=spacing)
        other.set_timesteps(steps)
        assert not torch.equal(other.timesteps, scheduler.timesteps)


@pytest.mark.parametrize("index", [0, 1, 4, 7])
def test_one_step_is_the_references(step_noise, index):
    golden, given = golden_data.group(GOLDEN, f"p.step{index}."), golden_data.group(GOLDEN, "p.")
    step_noise()
    scheduler = mvdit_scheduler()
    scheduler.set_timesteps(8)
    timestep = scheduler.timesteps[7 - index]
    step = scheduler.step(given["model_output"], timestep, given["x"])
    assert distance(step.prev_sample, golden["mean"]) < 1e-5
    assert distance(step.pred_original_sample, golden["pred_xstart"]) < 1e-5
    if index > 0:  # at index 0 diffusers has another value, which no step uses
        log_variance = scheduler._get_variance(timestep, given["model_output"][:, 4:])
        torch.testing.assert_close(log_variance, golden["log_variance"], atol=1e-3, rtol=1e-4)
        torch.testing.assert_close(log_variance.exp(), golden["variance"], atol=1e-6, rtol=1e-3)
    clipped = DDPMScheduler.from_config(scheduler.config, clip_sample=True)
    clipped.set_timesteps(8)
    assert distance(clipped.step(given["model_output"], timestep, given["x"]).prev_sample, golden["mean"]) > 1e-2


# sampling


def sampled(cfg_channels, transformer=None, **changes):
    pipeline = MVDiTPipeline(None, None, transformer or golden_transformer("a"), None, mvdit_scheduler())
    pipeline.set_progress_bar_config(disable=True)
    text = golden_inputs("a_basic")
    arguments = {
        "prompt_embeds": text["encoder_hidden_states"], "prompt_attention_mask": text["encoder_attention_mask"],
        "num_frames": 4, "height": 48, "width": 80, "num_inference_steps": 8, "guidance_scale": 2.0,
        "cfg_channels": cfg_channels, "latents": golden_data.group(GOLDEN, "sample.")["z"], "output_type": "latent",
    }  # fmt: skip
    return pipeline(**{**arguments, **changes}).frames


@pytest.mark.parametrize(("name", "channels"), [("cfg_all", None), ("cfg_all", 4), ("cfg_channel3", 3)])
def test_sampling_is_the_references(step_noise, name, channels):
    golden = golden_data.group(GOLDEN, "sample.")
    step_noise(golden["noise"])
    assert distance(sampled(channels), golden[f"{name}.result"]) < SAMPLING


def test_other_guidance_misses_the_references_numbers(step_noise):
    golden = golden_data.group(GOLDEN, "sample.")

    def missed(cfg_channels, name, **changes):
        step_noise(golden["noise"])
        return distance(sampled(cfg_channels, **changes), golden[f"{name}.result"])

    assert missed(3, "cfg_all") > 100 * SAMPLING and missed(None, "cfg_channel3") > 100 * SAMPLING
    empty = golden_transformer("a")
    empty.null_caption.zero_()  # the null caption is a learned tensor
    assert missed(None, "cfg_all", transformer=empty) > 100 * SAMPLING


def test_null_caption_is_read_with_the_prompts_mask():
    model, seen = golden_transformer("a"), []
    model.register_forward_pre_hook(lambda _, __, inputs: seen.append(inputs), with_kwargs=True)
    sampled(None, transformer=model, num_inference_steps=2)
    text = golden_inputs("a_basic")
    given = seen[0]
    assert torch.equal(given["encoder_hidden_states"][:2], text["encoder_hidden_states"])
    assert torch.equal(given["encoder_hidden_states"][2:], model.null_caption.expand(2, -1, -1))
    assert torch.equal(given["encoder_attention_mask"], text["encoder_attention_mask"])  # of the prompts; the model repeats it
    assert given["timestep"].tolist() == [999] * 4 and seen[1]["timestep"].tolist() == [0] * 4
    assert torch.equal(given["hidden_states"][:2], given["hidden_states"][2:])
    seen.clear()
    sampled(None, transformer=model, num_inference_steps=2, guidance_scale=1.0)
    assert len(seen[0]["hidden_states"]) == 2


def test_guidance_leaves_the_other_channels_and_the_variance_to_the_prompt():
    prompt, null = torch.randn(1, 8, 2, 2, 2), torch.randn(1, 8, 2, 2, 2)
    out = guide(prompt, null, 3.0, 3)
    assert torch.equal(out[:, 3:], prompt[:, 3:])
    assert torch.allclose(out[:, :3], null[:, :3] + 3 * (prompt[:, :3] - null[:, :3]))
    assert torch.equal(guide(prompt, null, 3.0, 4)[:, 4:], prompt[:, 4:])


@pytest.fixture(scope="module")
def pipeline():
    return tiny_pipeline()


SMALL = {"height": 16, "width": 32, "num_frames": 3, "num_inference_steps": 2, "guidance_scale": 2.0}


# text


def test_prompts_are_cleaned_twice_cut_at_the_length_and_masked(pipeline):
    said = "A &amp;lt;b&amp;gt;Red&amp;lt;/b&amp;gt; ball, see https://example.org/x"
    embeds, mask = pipeline.encode_prompt([said, "a red ball, see"])
    assert embeds.shape == (2, 24, 48) and torch.equal(embeds[0], embeds[1])
    tokens = pipeline.tokenizer(["a red ball, see"]).input_ids[0]
    assert mask.sum(dim=1).tolist() == [len(tokens)] * 2
    raw, _ = pipeline.encode_prompt(said, clean_caption=False)
    assert not torch.equal(raw[0], embeds[0])


def test_long_empty_and_non_latin_prompts(pipeline):
    embeds, mask = pipeline.encode_prompt(["a ball rolls " * 120, "", "一只猫", "красный мяч"], max_sequence_length=120)
    assert embeds.shape == (4, 120, 48) and torch.isfinite(embeds).all()
    assert mask.sum(dim=1)[:3].tolist() == [120, 1, 1] and mask[3].sum() > 1
    video = pipeline("", **SMALL, output_type="latent").frames
    assert torch.isfinite(video).all()


# adapters


def test_adapters_load_weigh_fuse_and_unload(tmp_path):
    from peft import get_peft_model_state_dict

    from phys_pipeline.adapters import inject_lora
    from phys_pipeline.families.mvdit import LORA_ATTENTION

    pipeline = tiny_pipeline()

    def video():
        return pipeline("a", **SMALL, generator=torch.Generator().manual_seed(0), output_type="latent").frames

    base = video()
    for parameter in inject_lora(pipeline.transformer, rank=2, regex=LORA_ATTENTION, seed=0):
        torch.nn.init.normal_(parameter, std=0.3, generator=torch.Generator().manual_seed(0))
    trained = video()
    assert distance(trained, base) > 1e-2
    pipeline.save_lora_weights(tmp_path, transformer_lora_layers=get_peft_model_state_dict(pipeline.transformer))
    pipeline.unload_lora_weights()
    assert distance(video(), base) < 1e-5
    pipeline.load_lora_weights(tmp_path, adapter_name="mine")
    assert torch.equal(video(), trained)
    pipeline.set_adapters(["mine"], [0.0])
    assert torch.equal(video(), base)
    pipeline.set_adapters(["mine"], [1.0])
    pipeline.fuse_lora()
    assert distance(video(), trained) < 1e-4
    pipeline.unfuse_lora()
    pipeline.unload_lora_weights()
    assert distance(video(), base) < 1e-4


# the pipeline's manners


def test_shapes_of_every_kind_of_output(pipeline):
    one = pipeline("a ball", **SMALL, output_type="pt").frames
    assert one.shape == (1, 3, 3, 16, 32) and one.min() >= 0 and one.max() <= 1
    assert pipeline("a ball", **SMALL, output_type="np").frames.shape == (1, 3, 16, 32, 3)
    pictures = pipeline("a ball", **SMALL).frames[0]
    assert len(pictures) == 3 and pictures[0].size == (32, 16)
    noise = torch.randn(4, 4, 3, 2, 4, generator=torch.Generator().manual_seed(0))

    def four(**text):
        settings = {**SMALL, "latents": noise, "generator": torch.Generator().manual_seed(0), "output_type": "latent"}
        return pipeline(**text, **settings).frames

    videos = four(prompt=["a", "b"], num_videos_per_prompt=2)
    embeds, mask = pipeline.encode_prompt(["a", "b"])
    again = four(prompt_embeds=embeds, prompt_attention_mask=mask, num_videos_per_prompt=2)
    assert torch.equal(videos, four(prompt=["a", "a", "b", "b"])) and torch.equal(videos, again)
    assert isinstance(pipeline("a", **SMALL, return_dict=False, output_type="latent"), tuple)


def test_a_generator_decides_the_start_and_every_step(pipeline):
    def made(seed, **more):
        return pipeline("a", **SMALL, **more, generator=torch.Generator().manual_seed(seed), output_type="latent").frames

    assert torch.equal(made(0), made(0)) and not torch.equal(made(0), made(1))
    start = torch.randn(1, 4, 3, 2, 4)
    assert torch.equal(made(0, latents=start), made(0, latents=start))
    assert not torch.equal(made(0, latents=start), made(1, latents=start))  # the steps draw too


def test_callback_sees_and_changes_the_latents_and_can_stop(pipeline):
    steps = []

    def stop(pipe, step, timestep, tensors):
        steps.append((step, int(timestep)))
        pipe._interrupt = True
        return {"latents": torch.zeros_like(tensors["latents"])}

    settings = {**SMALL, "num_inference_steps": 5}
    frames = pipeline("a", **settings, callback_on_step_end=stop, output_type="latent").frames
    assert steps == [(0, 999)] and not frames.any()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"height": 24}, "multiples of 16"),
        ({"num_frames": 0}, "use at least one"),
        ({"num_inference_steps": 1}, "num_inference_steps is 1: use 2 to 1000"),
        ({"cfg_channels": 5}, "cfg_channels is 5: use 1 to 4"),
        ({"prompt_embeds": torch.zeros(1, 4, 48)}, "pass either prompt"),
        ({"latents": torch.zeros(1, 4, 3, 2, 2)}, "latents are .*these settings need"),
        ({"callback_on_step_end_tensor_inputs": ["video"]}, "no callback tensor 'video'"),
    ],
)
def test_bad_arguments_say_what_to_do(pipeline, change, message):
    with pytest.raises(ConfigError, match=message):
        pipeline("a", **{**SMALL, **change})


def test_embeddings_may_not_be_longer_than_the_null_caption(pipeline):
    embeds, mask = torch.zeros(1, 25, 48), torch.ones(1, 25)
    with pytest.raises(ConfigError, match="25 tokens, the null caption only 24"):
        pipeline(prompt_embeds=embeds, prompt_attention_mask=mask, **SMALL)


def test_saved_pipeline_loads_and_gives_the_same_video(tmp_path, pipeline):
    pipeline.save_pretrained(tmp_path)
    again = MVDiTPipeline.from_pretrained(tmp_path)
    again.set_progress_bar_config(disable=True)
    settings = {**SMALL, "output_type": "pt"}
    videos = [p("a ball", **settings, generator=torch.Generator().manual_seed(0)).frames for p in (pipeline, again)]
    assert torch.equal(*videos)
    assert again.scheduler.config.variance_type == "learned_range" and not again.scheduler.config.clip_sample


def test_null_caption_is_found_where_sequential_offload_keeps_it():
    from accelerate import cpu_offload

    model = golden_transformer("a")
    expected = sampled(None, transformer=model, num_inference_steps=2, generator=torch.Generator().manual_seed(0))
    cpu_offload(model, torch.device("cpu"), offload_buffers=True)  # as diffusers' enable_sequential_cpu_offload does
    assert model.null_caption.is_meta
    found = sampled(None, transformer=model, num_inference_steps=2, generator=torch.Generator().manual_seed(0))
    assert torch.equal(found, expected)
