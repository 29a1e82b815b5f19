import golden_data
import pytest
import torch
from safetensors.torch import save_file
from tiny_open_sora import golden_weights, tiny_transformer

from phys_pipeline.errors import ConfigError
from phys_pipeline.models.conversion import convert, plan
from phys_pipeline.models.open_sora_conversion import CONVERSIONS, TRANSFORMER_KEYS, VAE_KEYS
from phys_pipeline.models.open_sora_vae import AutoencoderKLOpenSora
from phys_pipeline.models.stdit3 import STDiT3Transformer3DModel

TRANSFORMER, VAE = CONVERSIONS
RELEASED = {
    "model_type": "STDiT3", "architectures": ["STDiT3"], "input_size": [None, None, None], "input_sq_size": 512, "in_channels": 4,
    "patch_size": [1, 2, 2], "hidden_size": 1152, "depth": 28, "num_heads": 16, "mlp_ratio": 4.0, "class_dropout_prob": 0.1,
    "pred_sigma": True, "drop_path": 0.0, "caption_channels": 4096, "model_max_length": 300, "qk_norm": True,
    "freeze_y_embedder": True, "skip_y_embedder": False, "only_train_temporal": False,
}  # fmt: skip


def released_shapes(width=1152, depth=28, head=72, length=300, caption=4096):
    """The list of the released transformer file, from the description of its keys."""
    linear = {
        "attn.qkv": (3 * width, width), "attn.proj": (width, width), "cross_attn.q_linear": (width, width),
        "cross_attn.kv_linear": (2 * width, width), "cross_attn.proj": (width, width),
        "mlp.fc1": (4 * width, width), "mlp.fc2": (width, 4 * width),
    }  # fmt: skip
    shapes = {
        "rope.freqs": (head // 2,),
        "y_embedder.y_embedding": (length, caption),
        "final_layer.scale_shift_table": (2, width),
    }
    outside = {
        "x_embedder.proj": (width, 4, 1, 2, 2), "t_embedder.mlp.0": (width, 256), "t_embedder.mlp.2": (width, width),
        "fps_embedder.mlp.0": (width, 256), "fps_embedder.mlp.2": (width, width), "t_block.1": (6 * width, width),
        "y_embedder.y_proj.fc1": (width, caption), "y_embedder.y_proj.fc2": (width, width), "final_layer.linear": (32, width),
    }  # fmt: skip
    for name, shape in outside.items():
        shapes |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    for kind in ("spatial_blocks", "temporal_blocks"):
        for i in range(depth):
            block = f"{kind}.{i}"
            shapes |= {f"{block}.scale_shift_table": (6, width)}
            shapes |= {f"{block}.attn.{norm}.weight": (head,) for norm in ("q_norm", "k_norm")}
            for name, shape in linear.items():
                shapes |= {f"{block}.{name}.weight": shape, f"{block}.{name}.bias": shape[:1]}
    return shapes


def test_the_released_transformer_is_accounted_for_to_the_last_value():
    shapes = released_shapes()
    values = sum(torch.Size(shape).numel() for shape in shapes.values())
    assert values == 1_208_872_772
    steps, made, settings = plan(shapes, RELEASED, TRANSFORMER)
    assert sum(torch.Size(shape).numel() for shape in made.values()) == values - 36  # rope.freqs is worked out
    with torch.device("meta"):
        model = STDiT3Transformer3DModel()
    assert settings == {name: model.config[name] for name in settings}  # the class's defaults are the released model
    assert sum(value.numel() for value in model.state_dict().values()) == values - 36
    assert {name for step in steps for name in step.sources} == set(shapes) - {"rope.freqs"}


def test_the_released_autoencoder_is_accounted_for_to_the_last_value():
    with torch.device("meta"):
        state = AutoencoderKLOpenSora().state_dict()
    shapes = {name: tuple(value.shape) for name, value in VAE_KEYS.backward(state).items()}
    assert "spatial_vae.module.encoder.conv_in.weight" in shapes and shapes["scale"] == (1, 4, 1, 1, 1)
    _, made, settings = plan(shapes, {}, VAE)
    assert sum(torch.Size(shape).numel() for shape in made.values()) == sum(value.numel() for value in state.values())
    assert settings == {} and sum(value.numel() for value in state.values()) == 393_341_015
    with pytest.raises(ConfigError, match="micro_frame_size=8"):
        plan(shapes, {"micro_frame_size": 8}, VAE)


def test_golden_weights_from_file_to_folder(tmp_path):
    save_file(golden_weights(), tmp_path / "model.safetensors")
    folder = convert(tmp_path, tmp_path / "out", CONVERSIONS)
    model = STDiT3Transformer3DModel.from_pretrained(folder)
    expected = tiny_transformer().state_dict()
    assert all(torch.equal(value, expected[name]) for name, value in model.state_dict().items())


def test_the_way_back_gives_the_official_names_again():
    back = TRANSFORMER_KEYS.backward(tiny_transformer().state_dict())
    assert set(back) == set(golden_weights()) - {"rope.freqs"}
    assert all(torch.equal(value, golden_weights()[name]) for name, value in back.items())


@pytest.mark.parametrize("setting", ["kernel_size", "use_spatial_rope"])
def test_the_later_model_of_the_same_name_is_refused_by_its_settings(setting):
    config = {**golden_data.config("stdit3_tiny"), setting: [8, 8, -1] if setting == "kernel_size" else True}
    shapes = {name: tuple(value.shape) for name, value in golden_weights().items()}
    with pytest.raises(ConfigError, match=f"{setting}, which only Open-Sora 1.3 has"):
        plan(shapes, config, TRANSFORMER)
    with pytest.raises(ConfigError, match=f"{setting}, which only Open-Sora 1.3 has"):
        plan({}, config, VAE)


@pytest.mark.parametrize(
    ("change", "config", "message"),
    [
        ({"x_embedder.proj.weight": (1152, 16, 1, 2, 2)}, {}, "latents of 16 channels, Open-Sora 1.2 takes 4"),
        ({}, {"depth": 27}, "config.json says depth=27 but the tensors say 28"),
        ({}, {"qk_norm": False}, "config.json says qk_norm=False"),
        ({"spatial_blocks.3.attn.qkv.weight": (3456, 1151)}, {}, r"wrong shapes: transformer_blocks\.3\.attn1\.to_q\.weight"),
        ({"spatial_blocks.0.attn.q_norm.weight": None}, {}, r"q_norm\.weight is missing"),
        ({"temporal_blocks.5.mlp.fc2.bias": None}, {}, r"lacks temporal_transformer_blocks\.5\.ff\.net\.2\.bias"),
        ({"blocks.0.attn.qkv.weight": (3456, 1152)}, {}, r"doesn't know: blocks\.0\.attn\.qkv\.weight"),
    ],
)
def test_look_alikes_are_refused_by_name(change, config, message):
    shapes = {name: shape for name, shape in (released_shapes() | change).items() if shape is not None}
    with pytest.raises(ConfigError, match=message):
        plan(shapes, config, TRANSFORMER)
