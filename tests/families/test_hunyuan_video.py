"""HunyuanVideo family on the tiny random pipeline: loading, text, latents, inputs, sizes."""

import json

import numpy as np
import pytest
import torch
from tiny import GENERATION, save_tiny, tiny_pipeline, tiny_transformer, tiny_vae

from phys_pipeline.errors import ConfigError, ModelError
from phys_pipeline.families import LoadedModel, as_loaded, family_names, get_family, load_model

# registry and loading


def test_families_are_separate_objects_and_unknown_names_are_listed():
    assert get_family("hunyuan_video") is not get_family("hunyuan_video")
    assert "hunyuan_video" in family_names()
    with pytest.raises(ConfigError, match=r"did you mean hunyuan_video.*use one of .*hunyuan_video"):
        get_family("hunyuan-vidio")
    assert get_family("Hunyuan-Video").spec.name == get_family("hunyuan.video").spec.name == "hunyuan_video"


def test_spec_holds_the_published_facts(family):
    spec = family.spec
    assert (spec.time_stride, spec.size_multiple, spec.native_fps, spec.latent_channels) == (4, 16, 24.0, 16)
    assert (spec.default_shift, spec.default_guidance) == (7.0, 6.0)
    family.check_size(spec.generation["num_frames"], spec.generation["height"], spec.generation["width"])


def test_pipeline_loads_with_everything_equal(folder, model):
    original = tiny_pipeline()
    for part in ("transformer", "vae", "text_encoder", "text_encoder_2"):
        a, b = getattr(original, part).state_dict(), getattr(model.pipeline, part).state_dict()
        assert a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)
        assert not getattr(model.pipeline, part).training
    assert model.pipeline.scheduler.config.shift == 7.0
    assert model.revision == json.loads((folder / "phys_pipeline.json").read_text())["revision"]
    assert model.defaults["num_frames"] == GENERATION["num_frames"]


def test_parts_load_alone_and_in_the_dtype_asked_for(folder, family):
    assert family.load("transformer", str(folder), torch.bfloat16).dtype == torch.bfloat16
    assert type(family.load("vae", str(folder))).__name__ == family.spec.vae_class
    assert type(family.load("scheduler", str(folder))).__name__ == "FlowMatchEulerDiscreteScheduler"
    text = family.load("text", str(folder))
    assert text.transformer is None and text.vae is None
    assert set(family.encode_text(text, ["a ball"])) == {"prompt_embeds", "prompt_attention_mask", "pooled_prompt_embeds"}
    with pytest.raises(ConfigError, match="unknown model part"):
        family.load("unet", str(folder))


def test_bare_pipeline_is_recognised(model):
    loaded = as_loaded(model.pipeline)
    assert isinstance(loaded, LoadedModel) and loaded.family.spec.name == "hunyuan_video"
    assert dict(loaded.defaults) == dict(model.defaults) and loaded.revision == model.revision
    assert as_loaded(tiny_pipeline()).defaults["num_frames"] == 61
    with pytest.raises(ModelError, match="is not supported"):
        as_loaded(object())


# text


def test_text_features_are_the_pipelines_own(model):
    ours = model.family.encode_text(model, ["a ball"])
    options = {k: GENERATION[k] for k in ("prompt_template", "max_sequence_length")}
    embeds, pooled, mask = model.pipeline.encode_prompt("a ball", **options)
    assert torch.equal(ours["prompt_embeds"], embeds) and torch.equal(ours["pooled_prompt_embeds"], pooled)
    assert torch.equal(ours["prompt_attention_mask"], mask)
    ids = model.pipeline.tokenizer("a ball", padding="max_length", max_length=16, return_tensors="pt")
    states = model.pipeline.text_encoder(**ids, output_hidden_states=True).hidden_states
    assert torch.equal(ours["prompt_embeds"], states[-3])


def test_template_of_the_caller_wins(model):
    template = {"prompt_template": {"template": "##{}", "crop_start": 2}}
    cropped = model.family.encode_text(model, ["ab"], template)["prompt_embeds"]
    assert cropped.shape[1] == 16
    assert not torch.allclose(cropped, model.family.encode_text(model, ["ab"])["prompt_embeds"])


def test_caption_with_braces_is_text(model):
    assert model.family.encode_text(model, ["{0} {a}"])["prompt_attention_mask"].sum() == 8


def test_no_mask_is_ever_empty(model):
    with pytest.raises(ModelError, match="caption '' has no token"):
        model.family.encode_text(model, ["a ball", ""])
    with pytest.raises(ConfigError, match="no caption"):
        model.family.encode_text(model, [])


def test_left_padding_is_refused(folder):
    model = load_model(str(folder))
    model.pipeline.tokenizer.padding_side = "left"
    with pytest.raises(ModelError, match="pads on the left"):
        model.family.encode_text(model, ["a ball"])


# transformer inputs


def _forward(model, x, sigma, conditioning, guidance=None):
    family = model.family
    with torch.no_grad():
        return family.prediction(model.pipeline.transformer(**family.inputs(x, sigma, conditioning, guidance)), x)


def _latents(batch, seed=0):
    return torch.randn(batch, 4, 2, 3, 3, generator=torch.Generator().manual_seed(seed))


def test_batch_of_two_lengths_equals_two_batches_of_one(model):
    x, sigma = _latents(2), torch.tensor([0.3, 0.8])
    both = model.family.encode_text(model, ["ab", "a longer one"])
    together = _forward(model, x, sigma, both)
    for i in range(2):
        alone = _forward(model, x[i : i + 1], sigma[i : i + 1], {k: v[i : i + 1] for k, v in both.items()})
        assert torch.allclose(together[i], alone[0], atol=1e-5)


def test_padding_content_does_not_matter_but_text_does(model):
    x, sigma = _latents(1), torch.tensor([0.5])
    text = model.family.encode_text(model, ["a ball"])
    plain = _forward(model, x, sigma, text)
    padding = {**text, "prompt_embeds": text["prompt_embeds"].clone()}
    padding["prompt_embeds"][:, 7:] = 5.0
    assert torch.allclose(_forward(model, x, sigma, padding), plain, atol=1e-5)
    words = {**text, "prompt_embeds": text["prompt_embeds"].clone()}
    words["prompt_embeds"][:, :7] = 5.0
    assert not torch.allclose(_forward(model, x, sigma, words), plain, atol=1e-3)


class _Seen:
    """Forward arguments as the transformer gets them."""

    def __init__(self, transformer):
        self.calls = []
        self.hook = transformer.register_forward_pre_hook(lambda _, __, kw: self.calls.append(kw), with_kwargs=True)

    def __enter__(self):
        return self.calls

    def __exit__(self, *_):
        self.hook.remove()


@pytest.mark.parametrize(("dtype", "value"), [(torch.float32, 6000.0), (torch.bfloat16, 6016.0)])
def test_guidance_seen_in_training_is_that_of_sampling(dtype, value):
    pipeline = tiny_pipeline().to(dtype)
    family = get_family("hunyuan_video").bind(pipeline.transformer)
    text = family.encode_text(pipeline, ["a ball"], GENERATION)
    with _Seen(pipeline.transformer) as calls, torch.no_grad():
        pipeline(**text, num_frames=1, height=16, width=16, num_inference_steps=1, guidance_scale=6.0, output_type="latent")
        pipeline.transformer(**family.inputs(_latents(2).to(dtype), torch.tensor([0.3, 0.8]), text_twice(text)))
        pipeline.transformer(**family.inputs(_latents(1).to(dtype), torch.tensor([0.98733]), text, guidance=1.0))
    sampled, trained, other = calls
    assert sampled["guidance"].tolist() == [value] and trained["guidance"].tolist() == [value] * 2
    assert other["guidance"].item() == 1000.0
    assert sampled["guidance"].dtype == trained["guidance"].dtype == dtype
    assert other["timestep"].dtype == sampled["timestep"].dtype == torch.float32
    assert other["timestep"].item() == pytest.approx(987.33, abs=1e-3)  # not rounded to an integer or to bfloat16
    for name in ("hidden_states", "encoder_hidden_states", "encoder_attention_mask", "pooled_projections"):
        assert sampled[name].dtype == other[name].dtype == dtype


def text_twice(text):
    return {k: torch.cat([v, v]) for k, v in text.items()}


def test_guidance_changes_the_prediction_and_is_left_out_without_embedding(model):
    text = model.family.encode_text(model, ["a ball"])
    x, sigma = _latents(1), torch.tensor([0.5])
    assert not torch.equal(_forward(model, x, sigma, text, 6.0), _forward(model, x, sigma, text, 1.0))
    unguided = get_family("hunyuan_video").bind(tiny_transformer(guidance_embeds=False))
    assert "guidance" not in unguided.inputs(x, sigma, text)
    with torch.no_grad():
        assert torch.isfinite(tiny_transformer(guidance_embeds=False)(**unguided.inputs(x, sigma, text))[0]).all()


def test_load_notes_the_variant(tmp_path):
    folder = save_tiny(tmp_path / "plain", tiny_pipeline(guidance_embeds=False))
    family = get_family("hunyuan_video")
    assert family.guidance_embeds
    family.load("transformer", str(folder))
    assert not family.guidance_embeds


def test_wrong_batches_and_shapes_are_named(model):
    text = model.family.encode_text(model, ["a ball"])
    with pytest.raises(ConfigError, match="encoder_hidden_states has 1 rows for a batch of 2"):
        model.family.inputs(_latents(2), torch.tensor([0.1, 0.2]), text)
    with pytest.raises(ConfigError, match="multiples of its patch size"):
        model.family.prediction((torch.zeros(1, 4, 2, 2, 3),), _latents(1))


def test_sampling_sigmas_are_shifted_once_as_ours_are(model):
    from phys_pipeline.noise_path import shift_sigma

    text = model.family.encode_text(model, ["a ball"])
    with _Seen(model.pipeline.transformer) as calls:
        model.pipeline(**text, num_frames=1, height=16, width=16, num_inference_steps=8, output_type="latent")
    plain = torch.from_numpy(np.linspace(1, 0, 9)[:-1])
    once = shift_sigma(plain, 7.0)
    seen = torch.cat([kw["timestep"] for kw in calls]).double() / 1000
    assert torch.allclose(seen, once, atol=1e-6)
    assert (seen - shift_sigma(once, 7.0)).abs().max() > 0.05
    assert torch.allclose(model.pipeline.scheduler.sigmas[:-1].double(), once, atol=1e-6)
    u = model.family.path.sample(100_000, torch.Generator().manual_seed(0), "uniform", 7.0)
    quantiles = torch.tensor([0.125, 0.5, 0.875])  # of the uniform law: steps 1, 4 and 7 of the schedule
    assert torch.allclose(torch.quantile(u, quantiles), once[[7, 4, 1]].float(), atol=0.01)


# sizes


def test_frames_and_sides_name_the_nearest(family):
    family.check_size(1, 16, 16)
    family.check_size(129, 720, 1280)
    for frames, nearest in ((0, "at least 1"), (8, "use 5 or 9"), (130, "use 129 or 133")):
        with pytest.raises(ConfigError, match=nearest):
            family.check_size(frames, 64, 64)
    with pytest.raises(ConfigError, match=r"height 100 .* use 96 or 112"):
        family.check_size(5, 100, 64)
    with pytest.raises(ConfigError, match=r"width 8 .* use 16"):
        family.check_size(5, 64, 8)


def test_frame_rule_follows_the_autoencoder(family):
    from phys_pipeline.models import FrameAutoencoder

    still = FrameAutoencoder(latent_channels=4, widths=(4, 4, 4))
    family.check_size(16, 64, 64, still)
    assert family.latent_shape(16, 32, 64, still) == (4, 16, 4, 8)
    assert family.latent_shape(61, 720, 1280) == (16, 16, 90, 160)
    with pytest.raises(ConfigError, match="use 13 or 17"):
        family.check_size(16, 64, 64, tiny_vae())


# latents


def test_encoding_scales_and_centres_pixels(model):
    family, vae = model.family, model.pipeline.vae
    pixels = torch.rand(2, 3, 5, 16, 32, generator=torch.Generator().manual_seed(0))
    latents = family.encode_video(vae, pixels)
    assert latents.shape == (2, *family.latent_shape(5, 16, 32, vae)) and latents.dtype == torch.float32
    with torch.no_grad():
        expected = vae.encode(pixels * 2 - 1).latent_dist.mode() * vae.config.scaling_factor
    assert torch.equal(latents, expected)
    assert torch.equal(family.encode_video(vae, pixels), latents)
    drawn = [family.encode_video(vae, pixels, torch.Generator().manual_seed(s)) for s in (1, 1, 2)]
    assert torch.equal(drawn[0], drawn[1]) and not torch.equal(drawn[0], drawn[2])


def test_decoding_is_the_pipelines(model):
    text = model.family.encode_text(model, ["a ball"])
    common = {**text, "num_frames": 5, "height": 16, "width": 16, "num_inference_steps": 1, "latents": torch.zeros(1, 4, 2, 2, 2)}
    latents = model.pipeline(**common, output_type="latent").frames
    frames = model.pipeline(**common, output_type="pt").frames
    with torch.no_grad():
        ours = model.family.decode_video(model.pipeline.vae, latents)
    assert torch.allclose(ours.permute(0, 2, 1, 3, 4), frames, atol=1e-6)


def test_decoding_passes_gradients_and_half_precision_gives_float32(model):
    family = model.family
    latents = (0.1 * _latents(1)[..., :2, :2]).requires_grad_()
    family.decode_video(model.pipeline.vae, latents).mean().backward()
    assert latents.grad.abs().sum() > 0
    half = tiny_vae().to(torch.bfloat16)
    with torch.no_grad():
        pixels = family.decode_video(half, family.encode_video(half, torch.rand(1, 3, 5, 16, 16)))
    assert pixels.dtype == torch.float32 and pixels.shape == (1, 3, 5, 16, 16) and 0 <= pixels.min() <= pixels.max() <= 1


@pytest.mark.parametrize(
    ("pixels", "message"),
    [
        (torch.rand(1, 3, 8, 16, 16), "use 5 or 9"),
        (torch.rand(1, 3, 5, 20, 16), "height 20"),
        (torch.rand(1, 3, 5, 16, 16) * 2 - 1, r"values in \[0, 1\]"),
        (torch.rand(1, 3, 5, 16, 16) * 255, r"values in \[0, 1\]"),
        (torch.full((1, 3, 5, 16, 16), float("nan")), r"values in \[0, 1\]"),
        (torch.zeros(1, 3, 5, 16, 16, dtype=torch.uint8), "must be float"),
        (torch.rand(3, 5, 16, 16), "must be float"),
    ],
)
def test_unfit_pixels_are_refused(model, pixels, message):
    with pytest.raises(ConfigError, match=message):
        model.family.encode_video(model.pipeline.vae, pixels)


def test_encoding_settings_tell_framewise_encoding(model):
    vae = tiny_vae()
    before = model.family.encoding_settings(vae)
    assert before["use_framewise_encoding"] is True
    vae.use_framewise_encoding = False
    assert model.family.encoding_settings(vae) != before


def test_the_frame_autoencoder_fits_the_pipeline(tmp_path):
    from phys_pipeline.models import FrameAutoencoder

    pipeline = tiny_pipeline()
    pipeline.register_modules(vae=FrameAutoencoder(latent_channels=4, widths=(4, 4, 4)))
    folder = save_tiny(tmp_path / "frames", pipeline, num_frames=3)
    model = load_model(str(folder))
    assert type(model.pipeline.vae) is FrameAutoencoder
    pixels = torch.rand(1, 3, 3, 16, 16)
    latents = model.family.encode_video(model.pipeline.vae, pixels)
    assert latents.shape == (1, 4, 3, 2, 2)
    assert model.family.decode_video(model.pipeline.vae, latents).shape == pixels.shape
