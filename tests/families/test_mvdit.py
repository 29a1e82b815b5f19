"""MVDiT as a family: latents, text, noise path, what the transformer is told, and training with the real script."""

from pathlib import Path

import golden_data
import pytest
import torch
import yaml
from tiny_mvdit import golden_inputs, golden_transformer, save_tiny, tiny_pipeline, tiny_transformer, tiny_vae

from phys_pipeline.adapters import inject_lora
from phys_pipeline.errors import ConfigError, ModelError
from phys_pipeline.families import as_loaded, get_family, load_model
from phys_pipeline.families.mvdit import LORA_ATTENTION, LORA_ATTENTION_AND_FEED_FORWARD, LORA_TEMPORAL
from phys_pipeline.pipelines import generate
from phys_pipeline.pipelines.mvdit import mvdit_scheduler
from training.config import TrainConfig
from training.objectives.term import sigma_weight
from training.weights import attach, load_trained, save_trained

ROOT = Path(__file__).parents[2]


@pytest.fixture
def family():
    return get_family("mvdit")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_tiny(tmp_path_factory.mktemp("mvdit") / "model")


@pytest.fixture(scope="module")
def model(folder):
    return load_model(str(folder))


# loading


def test_a_folder_loads_whole_and_in_parts(folder, model):
    original = tiny_pipeline()
    for part in ("transformer", "vae", "text_encoder"):
        a, b = getattr(original, part).state_dict(), getattr(model.pipeline, part).state_dict()
        assert a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)
    assert model.family.spec.name == "mvdit" and model.defaults["num_frames"] == 5
    assert as_loaded(tiny_pipeline()).family.spec.name == "mvdit"
    family = get_family("mvdit")
    half = family.load("transformer", str(folder), torch.bfloat16)
    assert half.dtype == torch.bfloat16 and half.time_proj.weight.dtype == torch.float32
    assert torch.equal(family.null_caption, half.null_caption)
    text = family.load("text", str(folder))
    assert text.transformer is None and text.vae is None
    assert set(family.encode_text(text, ["a ball"], {"max_sequence_length": 24})) == {
        "prompt_embeds", "prompt_attention_mask"
    }  # fmt: skip


def test_any_number_of_frames_and_multiples_of_sixteen(family):
    assert family.latent_shape(16, 512, 512) == (4, 16, 64, 64)
    assert family.latent_shape(2, 16, 48, tiny_vae()) == (4, 2, 2, 6)
    with pytest.raises(ConfigError, match="height 24 is not a multiple of 16"):
        family.check_size(2, 24, 16)


# latents


def test_latents_are_frames_alone_times_the_factor_of_stable_diffusion(family):
    vae, pixels = tiny_vae(), torch.rand(1, 3, 5, 16, 32, generator=torch.Generator().manual_seed(0))
    vae.register_to_config(scaling_factor=0.13025)  # as that of SDXL: what was trained with counts, not this
    latents = family.encode_video(vae, pixels)
    with torch.no_grad():
        alone = vae.encode(pixels[:, :, 2] * 2 - 1).latent_dist.mode() * 0.18215
    assert latents.shape == (1, 4, 5, 2, 4) and torch.allclose(latents[:, :, 2], alone, atol=1e-6)
    with torch.no_grad():
        decoded = family.decode_video(vae, latents)
        assert torch.allclose(decoded[:, :, 2], (vae.decode(alone / 0.18215).sample / 2 + 0.5).clamp(0, 1), atol=1e-5)
    assert family.encoding_settings(vae)["use_tiling"] is False
    with pytest.raises(ConfigError, match=r"pixels span"):
        family.encode_video(vae, pixels * 255)


# noise path


def test_noise_path_is_the_references(family):
    full, train = golden_data.group("iddpm_openvid", "full."), golden_data.group("iddpm_openvid", "train.")
    torch.testing.assert_close(family.path.alphas_cumprod, full["alphas_cumprod"], rtol=1e-10, atol=0)
    sigma = train["t"].float() / 999
    assert torch.equal(family.path.timestep(sigma), train["t"]) and train["t"].tolist() == [700, 0]
    x_t = family.path.corrupt(train["x0"], train["noise"], sigma)
    torch.testing.assert_close(x_t, train["x_t"], atol=1e-5, rtol=1e-5)
    assert torch.equal(family.path.target(train["x0"], train["noise"], sigma), train["noise"])


def test_training_loss_is_the_references(family):
    train, text = golden_data.group("iddpm_openvid", "train."), golden_inputs("a_basic")
    conditioning = {
        "prompt_embeds": text["encoder_hidden_states"], "prompt_attention_mask": text["encoder_attention_mask"]
    }  # fmt: skip
    with torch.no_grad():
        raw = golden_transformer("a")(**family.inputs(train["x_t"], train["t"].float() / 999, conditioning))
    predicted = family.prediction(raw, train["x_t"])
    assert raw[0].shape[1] == 2 * predicted.shape[1]
    loss = (predicted - train["noise"]).square().mean(dim=(1, 2, 3, 4))
    torch.testing.assert_close(loss, train["mse"], atol=1e-5, rtol=1e-4)
    wrong = raw[0].chunk(2, dim=1)[1]  # the variance
    assert ((wrong - train["noise"]).square().mean(dim=(1, 2, 3, 4)) - train["mse"]).abs().min() > 1e-2
    with pytest.raises(ConfigError, match=r"the transformer returned \(2, 3"):
        family.prediction(raw[0][:, :3], train["x_t"])


@pytest.mark.parametrize("timestep", [0, 1, 250, 700])
def test_one_step_from_the_exact_prediction_gives_the_clean_latents(family, timestep):
    generator = torch.Generator().manual_seed(timestep)
    x0, noise = (torch.randn(1, 4, 3, 2, 2, generator=generator) for _ in range(2))
    sigma = torch.tensor([timestep / 999])
    x_t, target = family.path.corrupt(x0, noise, sigma), family.path.target(x0, noise, sigma)
    torch.testing.assert_close(family.path.clean(target, x_t, sigma), x0, atol=1e-4, rtol=1e-4)
    scheduler = mvdit_scheduler()
    output = torch.cat([target, torch.zeros_like(target)], dim=1)
    step = scheduler.step(output, torch.tensor(timestep), x_t, generator=generator)
    torch.testing.assert_close(step.pred_original_sample, x0, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(scheduler.add_noise(x0, noise, torch.tensor([timestep])), x_t, atol=1e-5, rtol=1e-5)


def test_error_of_the_clean_estimate_grows_and_the_motion_weight_ends_before_it_explodes(family):
    def growth(sigma):
        sigma = torch.tensor([sigma])
        return float(family.path.clean(torch.full((1, 1), -1.0), torch.zeros(1, 1), sigma))

    assert growth(1.0) > 150 and growth(0.7) > 11
    settings = yaml.safe_load((ROOT / "training/configs/mvdit.yaml").read_text())
    assert growth(settings["sigma_max"]) == pytest.approx(0.7 / 0.3, rel=0.03)  # noise to signal of flow models at their 0.7
    assert sigma_weight(torch.tensor([settings["sigma_max"], 0.7, 1.0]), settings["sigma_max"]).max() < 1e-12


# what the transformer is told


def test_training_tells_the_transformer_what_sampling_tells_it(model):
    seen = []
    hook = model.pipeline.transformer.register_forward_pre_hook(lambda _, __, given: seen.append(given), with_kwargs=True)
    generate(model, "A ball.", num_inference_steps=2)
    hook.remove()
    given = seen[0]
    text = model.family.encode_text(model, ["A ball."])
    x_t = given["hidden_states"][:1]
    prompt = model.family.inputs(x_t, torch.tensor([1.0]), text)
    assert prompt.keys() == given.keys()
    row = {name: value[0] for name, value in text.items()}
    empty = {name: value[0] for name, value in model.family.encode_text(model, [""]).items()}
    dropped = {name: value[None] for name, value in model.family.uncaptioned(row, empty).items()}
    null = model.family.inputs(x_t, torch.tensor([1.0]), dropped)
    for place, told in enumerate((prompt, null)):
        for name in ("hidden_states", "timestep", "encoder_hidden_states"):
            assert torch.equal(told[name], given[name][place : place + 1]), name
            assert told[name].dtype == given[name].dtype
        assert torch.equal(told["encoder_attention_mask"], given["encoder_attention_mask"])
    assert not torch.equal(null["encoder_hidden_states"], empty["prompt_embeds"][None])
    assert given["timestep"].dtype == torch.int64 and seen[1]["timestep"].tolist() == [0, 0]


def test_wrong_batch_and_missing_transformer_are_errors(family):
    text = {"prompt_embeds": torch.zeros(1, 4, 48), "prompt_attention_mask": torch.ones(1, 4)}
    with pytest.raises(ConfigError, match="encoder_hidden_states has 1 rows for a batch of 2"):
        family.inputs(torch.zeros(2, 4, 1, 2, 2), torch.zeros(2), text)
    with pytest.raises(ModelError, match="load the transformer before"):
        family.uncaptioned(text, text)


# adapters


def test_default_adapter_layers_are_attention_alone_and_all_get_gradients():
    transformer = tiny_transformer()
    trained = inject_lora(transformer, rank=2, regex=LORA_ATTENTION, seed=0)
    assert len(trained) == 2 * 2 * 3 * 4  # blocks, halves, attentions, layers
    for name, parameter in transformer.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter)
    transformer(
        torch.randn(1, 4, 3, 4, 4), torch.tensor([5]), torch.randn(1, 24, 48), torch.ones(1, 24)
    ).sample.square().mean().backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in trained)
    for regex, count in ((LORA_TEMPORAL, 8), (LORA_ATTENTION_AND_FEED_FORWARD, 28)):
        other = tiny_transformer()
        assert len(inject_lora(other, rank=1, regex=regex, name="other")) == 2 * count
        assert not any(p.requires_grad for p in other.unused_parameters())


def test_training_everything_leaves_out_what_gets_no_gradient_and_comes_back(tmp_path, folder, family):
    config = TrainConfig(model=str(folder), family="mvdit", output_dir=str(tmp_path / "run"), rank=None, precision="fp32")
    transformer = family.load("transformer", str(folder))
    trained = attach(transformer, config, family)
    assert sum(p.numel() for p in transformer.parameters()) - sum(p.numel() for p in trained) == sum(
        p.numel() for p in transformer.unused_parameters()
    )
    with torch.no_grad():
        for parameter in trained:
            parameter.add_(1.0)
    (tmp_path / "run").mkdir()
    save_trained(transformer, tmp_path / "run", config, family, {})
    again = family.load("transformer", str(folder))
    attach(again, config, family)
    load_trained(again, tmp_path / "run")
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in transformer.state_dict().items())
