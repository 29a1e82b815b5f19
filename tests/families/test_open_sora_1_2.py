import golden_data
import pytest
import torch
from tiny_open_sora import GENERATION, save_tiny, tiny_transformer, tiny_vae

from phys_pipeline.adapters import inject_lora
from phys_pipeline.errors import ConfigError, ModelError
from phys_pipeline.families import as_loaded, find_family, get_family, load_model
from phys_pipeline.families.open_sora_1_2 import LORA_TEMPORAL
from phys_pipeline.models.open_sora_sizes import timestep_shift
from phys_pipeline.pipelines import generate


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_tiny(tmp_path_factory.mktemp("open_sora") / "model")


@pytest.fixture(scope="module")
def model(folder):
    return load_model(str(folder))


@pytest.fixture
def family():
    return get_family("open-sora-1.2")


def test_a_folder_loads_whole_and_in_parts(folder, model):
    family = find_family(folder)
    assert family.spec.name == "open_sora_1_2" and type(model.pipeline).__name__ == family.spec.pipeline_class
    assert model.defaults == {**family.spec.generation, **GENERATION}
    assert type(family.load("transformer", str(folder))).__name__ == family.spec.transformer_class
    assert type(family.load("vae", str(folder))).__name__ == family.spec.vae_class
    assert torch.equal(family.null_caption, model.pipeline.transformer.null_caption)
    text = family.load("text", str(folder))
    assert text.transformer is None
    one, two = family.encode_text(text, ["a ball", ""]), family.encode_text(model, ["a ball", ""])
    assert all(torch.equal(one[name], two[name]) for name in one) and one["prompt_embeds"].shape == (2, 10, 48)
    assert as_loaded(model.pipeline).family.spec.name == "open_sora_1_2"


@pytest.mark.parametrize("frames", [1, 17, 18, 34, 39, 51, 102])
def test_lengths_that_come_back_from_their_latents(family, frames):
    vae = tiny_vae()
    family.check_size(frames, 16, 24, vae)
    shape = family.latent_shape(frames, 16, 24, vae)
    with torch.no_grad():
        decoded = family.decode_video(vae, torch.zeros(1, *shape))
    assert decoded.shape == (1, 3, frames, 16, 24)


@pytest.mark.parametrize(
    ("size", "message"),
    [
        ((9, 16, 16), "no noise schedule for 2 to 16"),
        ((0, 16, 16), "no noise schedule"),
        ((40, 16, 16), "40 frames do not fit .*: use 39 or 43"),
        ((17, 12, 16), "height 12 is not a multiple of 8"),
    ],
)
def test_other_lengths_and_sizes_are_refused(family, size, message):
    with pytest.raises(ConfigError, match=message):
        family.check_size(*size)


def test_latents_are_normalised_per_channel_and_come_back(family):
    vae = tiny_vae()
    pixels = torch.rand(1, 3, 17, 16, 16, generator=torch.Generator().manual_seed(0))
    latents = family.encode_video(vae, pixels)
    with torch.no_grad():
        raw = vae.encode(pixels * 2 - 1).latent_dist.mode()
        expected = (raw - vae.latents_shift) / vae.latents_scale
        decoded = vae.decode(raw, num_frames=17).sample
    torch.testing.assert_close(latents, expected, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(family.decode_video(vae, latents), (decoded / 2 + 0.5).clamp(0, 1), atol=1e-5, rtol=1e-4)
    assert not torch.equal(family.encode_video(vae, pixels, torch.Generator().manual_seed(0)), latents)
    vae.enable_tiling()
    assert family.encoding_settings(vae) == {"use_tiling": True}


def golden_step():
    train, text = golden_data.group("rflow_v12", "train."), golden_data.group("stdit3_tiny", "inputs.basic.")
    conditioning = {"prompt_embeds": text["y"][:, 0], "prompt_attention_mask": text["mask"]}
    return train, text, conditioning


def test_training_loss_is_the_references(family):
    train, text, conditioning = golden_step()
    sigma = train["t"] / 1000
    x_t = family.path.corrupt(train["x0"], train["noise"], sigma)
    torch.testing.assert_close(x_t, train["x_t"], atol=1e-5, rtol=1e-5)
    target = family.path.target(train["x0"], train["noise"], sigma)
    assert torch.equal(target, train["x0"] - train["noise"])  # the sign is the opposite of diffusers'
    arguments = {**family.inputs(x_t, sigma, conditioning), "fps": text["fps"]}
    assert (arguments["height"], arguments["width"]) == (48, 80)
    with torch.no_grad():
        raw = tiny_transformer()(**arguments)
    loss = (family.prediction(raw, x_t) - target).square().mean(dim=(1, 2, 3, 4))
    torch.testing.assert_close(loss, train["loss_per_sample"], atol=1e-5, rtol=1e-4)
    wrong = raw[0].chunk(2, dim=1)[1]  # the half that was never trained
    assert ((wrong - target).square().mean(dim=(1, 2, 3, 4)) - train["loss_per_sample"]).abs().min() > 1e-2
    with pytest.raises(ConfigError, match="this is another model"):
        family.prediction(raw[0][:, :4], x_t)


def test_training_with_given_frames_is_the_references(family):
    train, text, conditioning = golden_step()
    sigma, made = train["t"] / 1000, train["frame_mask"]
    over = made[:, None, :, None, None]
    x_t = torch.where(over, family.path.corrupt(train["x0"], train["noise"], sigma), train["x0"])
    arguments = {**family.inputs(x_t, sigma, conditioning), "fps": text["fps"], "frame_mask": made}
    with torch.no_grad():
        velocity = family.prediction(tiny_transformer()(**arguments), x_t)
    error = (velocity - family.path.target(train["x0"], train["noise"], sigma)).square() * over
    loss = error.sum(dim=(1, 2, 3, 4)) / (made.sum(1) * error[0, :, 0].numel())
    torch.testing.assert_close(loss, train["loss_per_sample_frame_mask"], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("sigma", [0.001, 0.3, 1.0])
def test_one_step_from_the_exact_prediction_gives_the_clean_latents(model, sigma):
    family, scheduler = model.family, model.pipeline.scheduler
    generator = torch.Generator().manual_seed(0)
    x0, noise = (torch.randn(1, 4, 5, 2, 2, generator=generator) for _ in range(2))
    level = torch.tensor([sigma])
    x_t, target = family.path.corrupt(x0, noise, level), family.path.target(x0, noise, level)
    torch.testing.assert_close(family.path.clean(target, x_t, level), x0, atol=1e-5, rtol=1e-5)
    scheduler.set_shift(1.0)
    scheduler.set_timesteps(sigmas=[sigma])
    stepped = scheduler.step(-target, scheduler.timesteps[0], x_t, return_dict=False)[0]
    torch.testing.assert_close(stepped, x0, atol=1e-5, rtol=1e-5)


def test_the_shift_follows_size_and_length_whatever_the_scheduler_says(model):
    assert model.family.timestep_shift(model.pipeline.scheduler, 51, 480, 848) == timestep_shift(51, 480, 848)
    assert timestep_shift(102, 480, 848) == pytest.approx(2**0.5 * timestep_shift(51, 480, 848))


def test_training_tells_the_transformer_what_sampling_tells_it(model):
    seen = []
    hook = model.pipeline.transformer.register_forward_pre_hook(lambda _, __, given: seen.append(given), with_kwargs=True)
    generate(model, "A ball.", num_inference_steps=2)
    hook.remove()
    given, family = seen[0], model.family
    text = family.encode_text(model, ["A ball."])
    x_t = given["hidden_states"][:1]
    family.fps = 8.0
    prompt = family.inputs(x_t, torch.tensor([1.0]), text)
    assert set(given) - set(prompt) == {"frame_mask"} and given["frame_mask"] is None
    row = {name: value[0] for name, value in text.items()}
    empty = {name: value[0] for name, value in family.encode_text(model, [""]).items()}
    dropped = {name: value[None] for name, value in family.uncaptioned(row, empty).items()}
    null = family.inputs(x_t, torch.tensor([1.0]), dropped)
    for place, told in enumerate((prompt, null)):
        for name in ("hidden_states", "timestep", "encoder_hidden_states"):
            torch.testing.assert_close(told[name], given[name][place : place + 1], msg=name)
        for name in ("encoder_attention_mask", "fps"):
            assert torch.equal(told[name], given[name]), name
        assert (told["height"], told["width"]) == (given["height"], given["width"])
    assert not torch.equal(null["encoder_hidden_states"], empty["prompt_embeds"][None])
    family.fps = None
    assert family.inputs(x_t, torch.tensor([1.0]), text)["fps"].item() == 24.0
    assert family.inputs(x_t[:, :, :1], torch.tensor([1.0]), text)["fps"].item() == 120.0


def test_scores_behind_the_caption_belong_to_the_cache_key(model):
    family = model.family
    assert family.text_settings(model.defaults) == {"aesthetic_score": 6.5, "motion_score": None, "camera_motion": None}
    plain, scored = family.encode_text(model, ["a ball"], {"aesthetic_score": None}), family.encode_text(model, ["a ball"])
    assert plain["prompt_attention_mask"].sum() < scored["prompt_attention_mask"].sum()
    assert not family.uses_negative_prompt(model.defaults)


def test_wrong_batch_and_missing_transformer_are_errors(family):
    text = {"prompt_embeds": torch.zeros(1, 10, 48), "prompt_attention_mask": torch.ones(1, 10)}
    with pytest.raises(ConfigError, match="encoder_hidden_states has 1 rows for a batch of 2"):
        family.inputs(torch.zeros(2, 4, 5, 2, 2), torch.zeros(2), text)
    with pytest.raises(ModelError, match="load the transformer before"):
        family.uncaptioned(text, text)
    with pytest.raises(ConfigError, match="no caption given"):
        family.encode_text(None, [])


def test_default_adapter_layers_are_attention_alone_and_all_get_gradients(family):
    transformer = tiny_transformer()
    trained = inject_lora(transformer, rank=2, regex=family.spec.lora_target_regex, seed=0)
    assert len(trained) == 2 * 2 * 2 * 2 * 4  # LoRA halves, kinds of block, blocks, attentions, layers
    for name, parameter in transformer.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter)
    train, _, conditioning = golden_step()
    arguments = family.inputs(train["x_t"], train["t"] / 1000, conditioning)
    family.prediction(transformer(**arguments), train["x_t"]).square().mean().backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in trained)
    assert len(inject_lora(tiny_transformer(), rank=1, regex=LORA_TEMPORAL)) == 2 * 2 * 2 * 4
