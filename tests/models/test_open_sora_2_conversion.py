"""The official layout of Open-Sora 2.0 and diffusers': numbers of the golden model, every shape of the full one."""

import json

import pytest
import torch
from safetensors.torch import save_file
from tiny_open_sora_2 import GOLDEN_CONFIG, golden, golden_transformer, golden_weights

from phys_pipeline.errors import ConfigError
from phys_pipeline.models.conversion import Conversion, convert, plan
from phys_pipeline.models.open_sora_2 import TRANSFORMER_CONFIG
from phys_pipeline.models.open_sora_2_conversion import CONVERSIONS, transformer_key_map

TRANSFORMER, VAE = CONVERSIONS
SMALL = transformer_key_map(head_dim=16, latent_channels=4)


@pytest.fixture(scope="module")
def tensors():
    return golden()


@pytest.fixture(scope="module")
def model(tensors):
    return golden_transformer(tensors)


@torch.no_grad()
def forward(model, tensors, case, dtype=torch.float32):
    given = {
        name: tensors[f"inputs.{case}.{name}"] for name in ("img", "cond", "txt", "y_vec", "timesteps", "img_ids", "txt_ids")
    }
    return model(
        hidden_states=torch.cat([given["img"], given["cond"]], dim=-1).to(dtype),
        encoder_hidden_states=given["txt"].to(dtype),
        pooled_projections=given["y_vec"].to(dtype),
        timestep=given["timesteps"],
        img_ids=given["img_ids"][0],
        txt_ids=given["txt_ids"][0],
        return_dict=False,
    )[0]


@pytest.mark.parametrize("case", ["i2v", "t2i"])
def test_outputs_are_the_reference_s_and_not_those_of_the_other_rotary_layout(model, tensors, case):
    output = forward(model, tensors, case)
    torch.testing.assert_close(output, tensors[f"outputs.{case}.sample"], atol=2e-5, rtol=1e-4)
    assert (output - tensors[f"outputs.{case}.sample_interleaved_rope"]).abs().max() > 0.1


@pytest.mark.parametrize("case", ["i2v", "t2i"])
def test_without_reordered_rows_the_output_is_the_garbage_that_a_mix_up_gives(tensors, case):
    from diffusers import FluxTransformer2DModel

    wrong = FluxTransformer2DModel(**GOLDEN_CONFIG).eval()
    mixed_up = transformer_key_map(head_dim=2, latent_channels=4)  # heads of two channels have nothing to reorder
    wrong.load_state_dict(mixed_up.forward(golden_weights(tensors)))
    output = forward(wrong, tensors, case)
    torch.testing.assert_close(output, tensors[f"outputs.{case}.sample_interleaved_rope"], atol=2e-5, rtol=1e-4)


def test_intermediates(model, tensors):
    seen = {}

    def keep(name):
        return lambda module, inputs, output: seen.__setitem__(name, output)

    hooks = [
        model.get_submodule(name).register_forward_hook(keep(name))
        for name in (
            "x_embedder", "context_embedder", "time_text_embed.timestep_embedder", "time_text_embed.text_embedder",
            "transformer_blocks.0", "transformer_blocks.1", "single_transformer_blocks.0", "single_transformer_blocks.1",
        )
    ]  # fmt: skip
    forward(model, tensors, "i2v")
    for hook in hooks:
        hook.remove()

    def close(value, *names):
        expected = sum(tensors[f"intermediates.i2v.{name}"] for name in names)
        torch.testing.assert_close(value, expected, atol=2e-5, rtol=1e-4)

    close(seen["x_embedder"], "img_in", "cond_in")
    close(seen["context_embedder"], "txt_in")
    close(seen["time_text_embed.timestep_embedder"], "time_in")
    close(seen["time_text_embed.text_embedder"], "vector_in")
    for i in range(2):
        text, video = seen[f"transformer_blocks.{i}"]
        close(text, f"double_blocks.{i}.txt")
        close(video, f"double_blocks.{i}.img")
        close(torch.cat(seen[f"single_transformer_blocks.{i}"], dim=1), f"single_blocks.{i}")


def test_bfloat16_stays_within_two_percent_but_for_the_time_that_diffusers_rounds(tensors, model):
    """diffusers multiplies the timestep by 1000 in the model's dtype: 0.91 becomes 912."""
    low = golden_transformer(tensors).to(torch.bfloat16)
    for case in ("i2v", "t2i"):
        told = (tensors[f"inputs.{case}.timesteps"].bfloat16() * 1000).float() / 1000
        assert (told - tensors[f"inputs.{case}.timesteps"]).abs().max() <= 2e-3 + 1e-6
        expected = forward(model, {**tensors, f"inputs.{case}.timesteps": told}, case)
        error = (forward(low, tensors, case, torch.bfloat16).float() - expected).norm() / expected.norm()
        assert 0 < error < 0.02


def test_the_way_back_gives_the_original_but_for_the_two_biases_that_are_one(model, tensors):
    original = golden_weights(tensors)
    back = SMALL.backward(model.state_dict())
    assert back.keys() == original.keys()
    for name in original.keys() - {"img_in.bias", "cond_in.bias"}:
        assert torch.equal(back[name], original[name]), name
    assert torch.equal(back["img_in.bias"], original["img_in.bias"] + original["cond_in.bias"]) and not back["cond_in.bias"].any()
    again = SMALL.forward(back)
    assert all(torch.equal(value, again[name]) for name, value in model.state_dict().items())


def full_shapes():
    from diffusers import FluxTransformer2DModel

    with torch.device("meta"):
        state = FluxTransformer2DModel(**TRANSFORMER_CONFIG).state_dict()
    return {name: tuple(value.shape) for name, value in transformer_key_map().backward(state).items()}


def test_the_full_model_accounts_for_every_value():
    shapes = full_shapes()
    # by hand, from the released settings; D = 3072
    d, blocks = 3072, 19
    attention = 4 * (d * d + d) + 2 * 128
    double = 2 * (6 * d * d + 6 * d + attention + 2 * 4 * d * d + 5 * d)
    single = 3 * d * d + 3 * d + 2 * (d * d + d) + 5 * d * (d + 1) + (5 * d * d + d) + 2 * 128
    ends = (64 + 1 + 68 + 1) * d + (4096 + 1) * d + (256 + 1 + d + 1) * d + (768 + 1 + d + 1) * d + 2 * d * (d + 1) + 64 * (d + 1)
    assert sum(torch.Size(shape).numel() for shape in shapes.values()) == blocks * double + 38 * single + ends == 11_891_390_528
    assert shapes["cond_in.weight"] == (d, 68) and shapes["single_blocks.37.v_mlp.weight"] == (5 * d, d) and len(shapes) == 1082

    _, made, settings = plan(shapes, {}, TRANSFORMER)
    assert settings["in_channels"] == 132 and settings["axes_dims_rope"] == (16, 56, 56)
    assert sum(torch.Size(shape).numel() for shape in made.values()) == 11_891_390_528 - d  # one bias for two


def test_look_alikes_are_refused_by_name_and_shape():
    shapes = full_shapes()

    def refused(message, config=None, drop=(), **changes):
        changed = {name: shape for name, shape in {**shapes, **changes}.items() if name not in drop}
        with pytest.raises(ConfigError, match=message):
            plan(changed, config or {}, TRANSFORMER)

    deep = {"img_in.weight": (3072, 128), "cond_in.weight": (3072, 129), "final_layer.linear.weight": (128, 3072)}
    refused("deep-compression", **deep)
    fused = [name for name in shapes if "q_proj" in name or "k_proj" in name or "v_proj" in name]
    refused(
        "doesn't know: double_blocks.0.img_attn.qkv.weight", drop=fused, **{"double_blocks.0.img_attn.qkv.weight": (9216, 3072)}
    )
    refused("other rotary layout", config={"use_liger_rope": False})
    refused("other rotary layout", config={"fused_qkv": True})
    refused("doesn't know: guidance_in.in_layer.weight", **{"guidance_in.in_layer.weight": (3072, 256)})
    refused("lacks .*txt_in|lacks context_embedder.weight", drop=["txt_in.weight"])
    refused("wrong shapes: transformer_blocks.3.ff.net.2.weight", **{"double_blocks.3.img_mlp.2.weight": (3072, 3072)})


def test_flux_itself_is_refused(tmp_path):
    flux = {
        "img_in.weight": torch.zeros(3072, 64),
        "guidance_in.in_layer.weight": torch.zeros(8, 8),
        "txt_in.bias": torch.zeros(8),
    }
    save_file(flux, tmp_path / "flux1-dev.safetensors")
    with pytest.raises(ConfigError, match=r"not of this family.*cond_in\.weight"):
        convert(tmp_path / "flux1-dev.safetensors", tmp_path / "out", CONVERSIONS)
    assert not (tmp_path / "out").exists()


def test_a_file_becomes_a_folder_that_diffusers_loads(tensors, tmp_path):
    from diffusers import FluxTransformer2DModel

    save_file(golden_weights(tensors), tmp_path / "small.safetensors")
    small = Conversion(TRANSFORMER.part, TRANSFORMER.model_class, TRANSFORMER.marker, SMALL, lambda shapes, config: GOLDEN_CONFIG)
    folder = convert(tmp_path / "small.safetensors", tmp_path / "out", (small, VAE), shard_bytes=200_000)
    assert len(list(folder.glob("*.safetensors"))) > 2
    loaded = FluxTransformer2DModel.from_pretrained(folder).eval()
    torch.testing.assert_close(forward(loaded, tensors, "t2i"), tensors["outputs.t2i.sample"], atol=2e-5, rtol=1e-4)


def test_the_autoencoder_keeps_its_names():
    from diffusers import AutoencoderKLHunyuanVideo

    with torch.device("meta"):
        state = AutoencoderKLHunyuanVideo().state_dict()
    shapes = {name: tuple(value.shape) for name, value in state.items()}
    _, made, settings = plan(shapes, {}, VAE)
    assert made == shapes and settings == {} and sum(v.numel() for v in state.values()) == 246_478_803
    with pytest.raises(ConfigError, match=r"encoder\.extra"):
        plan({**shapes, "encoder.extra": (1,)}, {}, VAE)
    with pytest.raises(ConfigError, match=r"lacks post_quant_conv\.bias"):
        plan({name: shape for name, shape in shapes.items() if name != "post_quant_conv.bias"}, {}, VAE)


def test_of_a_copy_of_the_hub_repository_flux_s_files_are_not_looked_at(tmp_path, monkeypatch, capsys):
    """The command's parts, and that from the Hub nothing but the two named files is asked for."""
    import huggingface_hub

    from phys_pipeline.models import convert_command

    asked = {}

    def fetch(source, **options):
        asked.update(options)
        return str(tmp_path / "hub")

    done = []
    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetch)
    monkeypatch.setattr(convert_command, "convert", lambda source, *_: done.append(source.name) or source)
    (tmp_path / "hub").mkdir()
    for name in ("Open_Sora_v2.safetensors", "flux1-dev.safetensors", "flux1-dev-ae.safetensors", "hunyuan_vae.safetensors"):
        (tmp_path / "hub" / name).touch()
    assert convert_command.main(["--family", "open-sora-2", "hpcai-tech/Open-Sora-v2", str(tmp_path / "out")]) == 0
    assert asked["allow_patterns"] == ["config.json", "Open_Sora_v2.safetensors", "hunyuan_vae.safetensors"]
    assert done == ["Open_Sora_v2.safetensors", "hunyuan_vae.safetensors"]
    assert "text_encoder_2 (the weights" in capsys.readouterr().out
    index = json.loads((tmp_path / "out" / "model_index.json").read_text())
    assert index["_class_name"] == "OpenSora2Pipeline" and index["transformer"] == ["diffusers", "FluxTransformer2DModel"]
