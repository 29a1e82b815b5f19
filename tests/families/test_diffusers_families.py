"""The families of diffusers on tiny random pipelines: what each says of its model against what the model's pipeline does."""

from __future__ import annotations

import inspect
import re

import pytest
import torch
from tiny_families import CASES, build, generation

from phys_pipeline.adapters.layers import linear_layers
from phys_pipeline.errors import ConfigError, ModelError
from phys_pipeline.families import LoadedModel, as_loaded, get_family
from phys_pipeline.media import Video
from phys_pipeline.noise_path import VariancePreserving
from phys_pipeline.pipelines import generate
from phys_pipeline.pipelines.ab import _encode, _noise, _settings

PROMPT = 'a red ball and the word "go"'
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:CPU Autocast", "ignore:In CPU autocast")


@pytest.fixture(scope="module")
def models():
    made = {}

    def model(case: str) -> LoadedModel:
        if case not in made:
            loaded = as_loaded(build(case))
            made[case] = LoadedModel(loaded.pipeline, loaded.family, "memory", None, {**loaded.defaults, **generation(case)})
        return made[case]

    return model


class Seen(Exception):
    """Ends a pipeline's call once the transformer's arguments are known."""


def arguments_of_the_first_step(model, prompt, settings, noise):
    """What the pipeline itself gives its transformer in its first step, by name."""
    seen = {}

    def look(module, positional, named):
        names = list(inspect.signature(type(module).forward).parameters)[1:]
        seen.update(zip(names, positional, strict=False), **named)
        raise Seen

    conditioning = _encode(model, prompt, settings, None)
    hook = model.pipeline.transformer.register_forward_pre_hook(look, with_kwargs=True)
    try:
        with pytest.raises(Seen):
            model.pipeline(**model.family.sampling_arguments(conditioning, settings, noise), output_type="pt")
    finally:
        hook.remove()
    return seen, conditioning


def sigma_of(family, scheduler, timestep):
    """The noise level of a pipeline's timestep."""
    if isinstance(family.path, VariancePreserving):
        return timestep.float() / (len(family.path.alphas_cumprod) - 1)
    sigma = scheduler.sigmas[0].float()
    return (1 - sigma if family.path.time == "data" else sigma).reshape(1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("case", CASES)
def test_inputs_are_what_the_pipeline_gives_its_transformer(models, case, dtype):
    """Names, values, shapes and dtypes; in bfloat16 too, where a cast in another place would show."""
    model = models(case)
    model.pipeline.transformer.to(dtype)
    model.pipeline.text_encoder.to(dtype)
    try:
        settings = _settings(model, {"guidance_scale": 1.0} if "guidance_scale" in model.defaults else {})
        noise = _noise(model, 0, settings)
        seen, conditioning = arguments_of_the_first_step(model, PROMPT, settings, noise)
        sigma = sigma_of(model.family, model.pipeline.scheduler, seen["timestep"])
        model.family.fps = settings["fps"]
        own = model.family.inputs(noise.to(dtype), sigma, conditioning)
    finally:
        model.pipeline.transformer.to(torch.float32)
        model.pipeline.text_encoder.to(torch.float32)
    assert {name for name, value in seen.items() if value is not None} - {"attention_kwargs"} <= set(own)
    for name, value in own.items():
        if name == "timestep" and model.family.spec.name == "wan":  # UniPC cuts the timestep to a whole number
            assert own[name].dtype == torch.float32 and torch.equal(own[name].long(), seen[name].long()), name
        elif isinstance(value, torch.Tensor):
            assert value.dtype == seen[name].dtype and torch.equal(value, seen[name]), name
        elif isinstance(value, tuple):
            assert all(torch.equal(torch.as_tensor(a), torch.as_tensor(b)) for a, b in zip(value, seen[name], strict=True)), name
        elif name != "return_dict":
            assert value == seen[name], name


@pytest.mark.parametrize("case", CASES)
def test_one_step_from_the_exact_prediction_gives_the_clean_clip(models, case):
    """The training target and the pipeline's own scheduler agree: the last step of sampling, with the target as prediction."""
    model = models(case)
    scheduler, path = model.pipeline.scheduler, model.family.path
    generator = torch.Generator().manual_seed(0)
    x0, noise = torch.randn(2, 1, 4, 3, 4, 4, generator=generator)
    scheduler.set_timesteps(3, **({"mu": 0.5} if scheduler.config.get("use_dynamic_shifting") else {}))
    time = scheduler.timesteps[-1]
    if isinstance(path, VariancePreserving):
        sigma = (time.float() / (len(path.alphas_cumprod) - 1)).reshape(1)
        assert torch.equal(path.alphas_cumprod, scheduler.alphas_cumprod.double())
    else:
        scheduler.set_begin_index(2)
        sigma = scheduler.sigmas[2].reshape(1)
        sigma = 1 - sigma if path.time == "data" else sigma
    assert abs(float(path.timestep(sigma)) - float(time)) < 1
    prediction = path.target(x0, noise, sigma)
    result = scheduler.step(prediction, time, path.corrupt(x0, noise, sigma), return_dict=False)[0]
    assert torch.allclose(result, x0, atol=1e-5) and torch.allclose(
        path.clean(prediction, path.corrupt(x0, noise, sigma), sigma), x0, atol=1e-5
    )


@pytest.mark.parametrize("case", CASES)
def test_latents_go_through_the_autoencoder_as_in_the_pipeline(models, case):
    model = models(case)
    family, vae = model.family, model.pipeline.vae
    settings = _settings(model, {})
    size = (settings["num_frames"], settings["height"], settings["width"])
    pixels = torch.rand(1, 3, *size, generator=torch.Generator().manual_seed(0))
    latents = family.encode_video(vae, pixels)
    assert latents.dtype == torch.float32 and latents.shape[1:] == family.latent_shape(*size, vae=vae)
    with torch.no_grad():
        raw = vae.encode(pixels * 2 - 1).latent_dist.mode()
        assert torch.allclose(family.denormalised(vae, latents), raw, atol=1e-5)
        decoded = family.decode_video(vae, latents)
    assert decoded.shape == pixels.shape and decoded.min() >= 0 and decoded.max() <= 1
    assert family.encoding_settings(vae)["use_tiling"] is False

    quiet = {"decode_noise_scale": 0.0} if "decode_noise_scale" in settings else {}  # training decodes without that noise
    arguments = family.sampling_arguments(
        _encode(model, PROMPT, settings, None), {**settings, **quiet}, _noise(model, 0, settings)
    )
    end = model.pipeline(**arguments, output_type="latent").frames
    frames = model.pipeline(**arguments, output_type="pt").frames
    with torch.no_grad():
        own = family.decode_video(vae, family.prediction((end,), torch.empty(1, *family.latent_shape(*size, vae=vae))))
    assert torch.allclose(own.transpose(1, 2), frames, atol=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_a_prompt_gives_what_the_plain_pipeline_makes_of_it(models, case):
    """Encoding first and sampling then is the same as giving the pipeline the texts, with and without guidance."""
    model = models(case)
    settings = _settings(model, {"negative_prompt": "blurred"})
    noise = _noise(model, 3, settings)
    conditioning = _encode(model, PROMPT, settings, None)
    arguments = model.family.sampling_arguments(conditioning, settings, noise)
    plain = {name: value for name, value in arguments.items() if name not in conditioning}
    if "max_sequence_length" in settings:
        plain["max_sequence_length"] = settings["max_sequence_length"]
    frames = model.pipeline(prompt=PROMPT, negative_prompt="blurred", **plain, output_type="pt").frames[0]
    steps = []
    video = generate(model, PROMPT, 3, negative_prompt="blurred", progress=lambda stage, *step: steps.append((stage, *step)))
    assert (video.frames == Video.from_tensor(frames.permute(1, 0, 2, 3), video.fps).frames).all() and video.frames.std() > 1
    assert steps == [("text", i, 2) for i in range(3)] + [("video", i, 2) for i in range(3)]
    assert (generate(model, PROMPT, 3, negative_prompt="").frames != video.frames).any()
    if "guidance_scale" in settings:
        alone = generate(model, PROMPT, 3, negative_prompt="blurred", guidance_scale=1.0)
        assert (alone.frames == generate(model, PROMPT, 3, guidance_scale=1.0).frames).all()


@pytest.mark.parametrize("case", CASES)
def test_adapters_are_for_the_blocks_alone(models, case):
    model = models(case)
    layers = linear_layers(model.pipeline.transformer)
    chosen = [name for name in layers if re.fullmatch(model.family.spec.lora_target_regex, name)]
    assert chosen and all(re.match(r"(transformer_)?blocks\.\d+\.attn", name) for name in chosen)
    in_blocks = [n for n in layers if re.match(r"(transformer_)?blocks\.\d+\.attn\d?\.(to_|add_)", n)]
    assert set(chosen) == set(in_blocks)


@pytest.mark.parametrize("case", CASES)
def test_rows_of_a_batch_do_not_see_each_other_and_must_fit(models, case):
    model = models(case)
    family, transformer = model.family, model.pipeline.transformer
    settings = _settings(model, {})
    text = family.encode_text(model, [PROMPT, "a"], settings)
    x = torch.randn(2, *_noise(model, 0, settings).shape[1:], generator=torch.Generator().manual_seed(1))
    sigma = torch.tensor([0.3, 0.8])
    with torch.no_grad():
        both = family.prediction(transformer(**family.inputs(x, sigma, text)), x)
        assert both.shape == x.shape
        for i in range(2):
            row = {name: value[i : i + 1] for name, value in text.items()}
            own = family.prediction(transformer(**family.inputs(x[i : i + 1], sigma[i : i + 1], row)), x[i : i + 1])
            assert torch.allclose(both[i], own[0], atol=1e-5)
    with pytest.raises(ConfigError, match="2 rows for a batch of 1"):
        family.inputs(x[:1], sigma[:1], text)


def test_an_interrupted_pipeline_without_a_callback_leaves_its_scheduler_as_it_was(models):
    model = models("hunyuan_video_1_5")
    assert "callback_on_step_end" not in inspect.signature(type(model.pipeline).__call__).parameters

    def stop(stage, step, total):
        if (stage, step) == ("video", 1):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        generate(model, PROMPT, progress=stop)
    assert "step" not in vars(model.pipeline.scheduler)


def test_facts_that_differ_between_variants(models):
    assert not torch.equal(models("cogvideox").family.path.alphas_cumprod, models("cogvideox_2b").family.path.alphas_cumprod)
    for name, frames, side in (("ltx_video", 17, 64), ("mochi", 13, 32), ("cogvideox", 17, 32), ("wan", 5, 32)):
        family = get_family(name)
        family.check_size(frames, side, side)
        with pytest.raises(ConfigError, match="do not fit"):
            family.check_size(frames + 1, side, side)
        with pytest.raises(ConfigError, match="is not a multiple"):
            family.check_size(frames, side + 8, side)
    with pytest.raises(ConfigError, match=r"8k\+1: use 9 or 17"):
        get_family("cogvideox").check_size(13, 32, 32)


def test_cogvideox_reads_its_noise_schedule_from_the_scheduler(models):
    from diffusers import CogVideoXDDIMScheduler, CogVideoXDPMScheduler

    from phys_pipeline.families.cogvideox import alphas_cumprod

    settings = {"prediction_type": "v_prediction", "rescale_betas_zero_snr": True, "timestep_spacing": "trailing"}
    for scale in (1.0, 3.0):
        ours = alphas_cumprod(scale)
        assert ours[-1] == 0 and 0.99 < ours[0] < 1
        for cls in (CogVideoXDDIMScheduler, CogVideoXDPMScheduler):
            theirs = cls(**settings, snr_shift_scale=scale)
            assert torch.allclose(ours, theirs.alphas_cumprod.double(), atol=1e-12)
    with pytest.raises(ModelError, match="prediction_type=epsilon"):
        get_family("cogvideox").bind_scheduler(CogVideoXDDIMScheduler())


def test_ltx_video_shifts_as_its_pipeline_does(models):
    """exp(mu) is the shift: the scheduler's sigmas, before they are stretched to its terminal value, are shifted by it."""
    from diffusers import FlowMatchEulerDiscreteScheduler

    from phys_pipeline.noise_path import shift_sigma

    settings = {**models("ltx_video").pipeline.scheduler.config, "shift_terminal": None}
    scheduler = FlowMatchEulerDiscreteScheduler.from_config(settings)
    family = get_family("ltx_video")
    from diffusers.pipelines.ltx.pipeline_ltx import calculate_shift

    mu = calculate_shift(21 * 16 * 22, 1024, 4096, 0.95, 2.05)
    scheduler.set_timesteps(sigmas=[1.0, 0.7, 0.2], mu=mu)
    shift = family.timestep_shift(scheduler, 161, 512, 704)
    assert torch.allclose(shift_sigma(torch.tensor([1.0, 0.7, 0.2]), shift), scheduler.sigmas[:3], atol=1e-6)


def test_image_to_video_and_distilled_variants_are_refused():
    from diffusers import HunyuanVideo15Transformer3DModel, WanTransformer3DModel

    with torch.device("meta"):
        wan = WanTransformer3DModel(in_channels=36, num_layers=1)
        pictures = HunyuanVideo15Transformer3DModel(num_layers=1, task_type="i2v")
        distilled = HunyuanVideo15Transformer3DModel(num_layers=1, task_type="t2v", use_meanflow=True)
    with pytest.raises(ModelError, match="takes a picture"):
        get_family("wan").bind(wan)
    with pytest.raises(ModelError, match="image to video"):
        get_family("hunyuan_video_1_5").bind(pictures)
    with pytest.raises(ModelError, match="two timesteps"):
        get_family("hunyuan_video_1_5").bind(distilled)
