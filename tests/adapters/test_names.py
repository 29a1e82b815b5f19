"""The table of names against diffusers' model and its own consistency."""

import pytest
from tiny import tiny_transformer

from phys_pipeline.adapters.layers import linear_layers
from phys_pipeline.adapters.names import HUNYUAN_VIDEO, original_layer, resolve


def test_every_linear_layer_of_the_model_has_an_original_and_comes_back_in_every_spelling():
    layers = linear_layers(tiny_transformer(num_layers=2, num_single_layers=3))
    for module in layers:
        original, name, part = original_layer(module)
        assert original.parts[part] == module
        assert resolve(module).modules == (module,) and resolve(module.replace(".", "_")).modules == (module,)
        assert resolve(name).modules == original.parts and resolve(name).swapped is original.swapped
        for spelling in original.names:
            number = [word for word in module.split(".") if word.isdigit()][:1]
            spelled = spelling.replace(".N.", f".{number[0]}.") if number else spelling
            assert resolve(spelled).modules == original.parts == resolve(spelled.replace(".", "_")).modules
    assert len({original_layer(module)[1] for module in layers}) == len({original_layer(module)[0] for module in layers})


def test_fused_layers_hold_consecutive_rows_of_the_model():
    layers = linear_layers(tiny_transformer())
    for original in HUNYUAN_VIDEO:
        widths = [layers[part.replace(".N.", ".0.")].out_features for part in original.parts]
        assert widths == ([20, 20, 20, 80] if len(widths) == 4 else [widths[0]] * len(widths))


def test_no_spelling_means_two_layers():
    seen = {}
    for original in HUNYUAN_VIDEO:
        for name in original.names:
            for spelling in {name, name.replace(".", "_")}:
                assert seen.setdefault(spelling, original) is original


@pytest.mark.parametrize(
    "name",
    ["", "N", "double_blocks.N.img_attn_qkv", "double_blocks.00.img_attn_qkv", "double_blocks.-1.img_attn_qkv", "to_q",
     "double_blocks.99999.img_attn_qkv", "double_blocks.0.img_attn_qkv.3", "double_blocks.0.img_attn_proj.0", "blocks.0.proj_out",
     "../double_blocks.0.img_attn_qkv", "double_blocks.0.single_blocks.1.linear1", "transformer_blocks.N.attn.to_q"],
)  # fmt: skip
def test_other_names_stand_for_nothing(name):
    assert resolve(name) is None


def test_only_layers_of_blocks_can_go_to_comfyui():
    outside = [original.names[0] for original in HUNYUAN_VIDEO if not original.in_blocks]
    assert outside[:1] == ["txt_in.individual_token_refiner.blocks.N.self_attn_qkv"] and "final_layer.linear" in outside
    assert not any(name.startswith(("double", "single")) for name in outside)
