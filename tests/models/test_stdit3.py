import golden_data
import pytest
import torch
from tiny_open_sora import tiny_transformer

from phys_pipeline.errors import ConfigError
from phys_pipeline.models.stdit3 import STDiT3Transformer3DModel, position_table

CPU = torch.device("cpu")
CASES = ("basic", "x_mask", "pad", "image", "cfg")
PLACES = {  # names of the reference's modules -> ours; all outputs are compared flattened to (rows, tokens, channels)
    "t_embedder": "time_embed", "fps_embedder": "fps_embed", "t_block": "time_proj", "y_embedder": "caption_projection",
    "x_embedder": "patch_embed.proj", "final_layer": "proj_out",
    "spatial_blocks.0": "transformer_blocks.0", "spatial_blocks.1": "transformer_blocks.1",
    "temporal_blocks.0": "temporal_transformer_blocks.0", "temporal_blocks.1": "temporal_transformer_blocks.1",
    "spatial_blocks.0.attn": "transformer_blocks.0.attn1", "temporal_blocks.0.attn": "temporal_transformer_blocks.0.attn1",
    "spatial_blocks.0.cross_attn": "transformer_blocks.0.attn2",
}  # fmt: skip


@pytest.fixture(scope="module")
def model():
    return tiny_transformer()


def arguments(case):
    given = golden_data.group("stdit3_tiny", f"inputs.{case}.")
    return {
        "hidden_states": given["x"],
        "timestep": given["timestep"],
        "encoder_hidden_states": given["y"][:, 0],
        "encoder_attention_mask": given.get("mask"),
        "fps": given["fps"],
        "height": float(given["height"][0]),
        "width": float(given["width"][0]),
        "frame_mask": given.get("x_mask"),
    }


def expected(case):
    return golden_data.group("stdit3_tiny", f"outputs.{case}.")["sample"]


@pytest.mark.parametrize("case", CASES)
def test_the_reference_s_numbers(model, case):
    with torch.no_grad():
        sample = model(**arguments(case)).sample
    torch.testing.assert_close(sample, expected(case), atol=2e-5, rtol=1e-4)


def test_every_intermediate_result(model):
    golden = golden_data.group("stdit3_tiny", "intermediates.basic.")
    torch.testing.assert_close(
        position_table(3, 5, 72, (48 * 80) ** 0.5 / 512, CPU)[None].float(), golden.pop("pos_embed"), atol=2e-5, rtol=1e-4
    )
    assert set(golden) == set(PLACES)
    seen = {}
    hooks = [
        model.get_submodule(ours).register_forward_hook(lambda _m, _i, out, name=name: seen.__setitem__(name, out))
        for name, ours in PLACES.items()
    ]
    with torch.no_grad():
        model(**arguments("basic"))
    for hook in hooks:
        hook.remove()
    seen["x_embedder"] = seen["x_embedder"].flatten(2).transpose(1, 2)
    for name, values in golden.items():
        torch.testing.assert_close(
            seen[name].reshape(values.shape), values, atol=2e-5, rtol=1e-4, msg=lambda m, n=name: f"{n}: {m}"
        )


def test_given_frames_are_normed_twice_at_the_end(model, monkeypatch):
    """Normed once, the case with a frame mask is off by about 2."""
    finish, before = model._finish, []

    def once(x, time):
        before.append(x)
        return finish(before[0], time)

    monkeypatch.setattr(model, "_finish", once)
    with torch.no_grad():
        sample = model(**arguments("x_mask")).sample
    assert len(before) == 2 and (sample - expected("x_mask")).abs().max() > 0.5


def test_a_frame_mask_that_makes_every_frame_changes_nothing(model):
    given = arguments("basic")
    with torch.no_grad():
        plain = model(**given).sample
        made = model(**{**given, "frame_mask": torch.ones(2, 5, dtype=torch.bool)}).sample
    torch.testing.assert_close(made, plain, atol=1e-6, rtol=1e-6)


def test_padding_of_the_text_never_matters(model):
    given = arguments("basic")
    other = given["encoder_hidden_states"].clone()
    other[~given["encoder_attention_mask"].bool()] = 100.0
    with torch.no_grad():
        assert torch.equal(model(**{**given, "encoder_hidden_states": other}).sample, model(**given).sample)


def test_positions_put_the_column_first_and_follow_the_size_in_pixels(model):
    table = position_table(2, 3, 8, 1.0, CPU)
    first, second = table.view(2, 3, 8)[..., :4], table.view(2, 3, 8)[..., 4:]
    assert torch.equal(first[0], first[1]) and not torch.equal(first[:, 0], first[:, 1])
    assert torch.equal(second[:, 0], second[:, 2]) and not torch.equal(second[0], second[1])
    given = arguments("basic")
    with torch.no_grad():
        other = model(**{**given, "height": 2 * given["height"], "width": 2 * given["width"]}).sample
    assert (other - expected("basic")).abs().max() > 1e-3


def test_bfloat16_stays_within_two_percent(model):
    low = tiny_transformer().to(torch.bfloat16)
    for case in CASES:
        given = arguments(case)
        with torch.no_grad():
            sample = low(**{**given, "hidden_states": given["hidden_states"].bfloat16()}).sample
        error = (sample - expected(case)).norm() / expected(case).norm()
        assert sample.dtype == torch.float32 and error < 0.02, (case, float(error))


def test_checkpointed_gradients_are_the_same(model):
    model = tiny_transformer().requires_grad_(True)
    gradients = []
    for checkpointing in (False, True):
        (model.enable_gradient_checkpointing if checkpointing else model.disable_gradient_checkpointing)()
        model.zero_grad()
        model(**arguments("x_mask")).sample[:, :4].square().mean().backward()
        gradients.append({name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None})
    assert set(gradients[0]) == set(gradients[1]) == {name for name, _ in model.named_parameters()}
    for name, value in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], value, atol=1e-7, rtol=1e-5)


def test_saved_and_loaded_it_is_the_same_also_in_bfloat16(model, tmp_path):
    model.save_pretrained(tmp_path)
    again = STDiT3Transformer3DModel.from_pretrained(tmp_path)
    with torch.no_grad():
        assert torch.equal(again(**arguments("cfg")).sample, model(**arguments("cfg")).sample)
    low = STDiT3Transformer3DModel.from_pretrained(tmp_path, torch_dtype=torch.bfloat16)
    assert low.scale_shift_table.dtype == low.time_proj.weight.dtype == torch.float32
    assert low.transformer_blocks[0].attn1.to_q.weight.dtype == torch.bfloat16
    with torch.no_grad():
        sample = low(**arguments("cfg")).sample
    assert (sample - expected("cfg")).norm() / expected("cfg").norm() < 0.02


def test_a_new_model_starts_without_effect_of_time_blocks_and_frame_rate():
    torch.manual_seed(0)
    new = STDiT3Transformer3DModel(num_attention_heads=2, attention_head_dim=8, num_layers=1, caption_channels=48)
    given = {**arguments("image"), "hidden_states": torch.randn(1, 4, 3, 8, 8)}
    seen = []
    new.temporal_transformer_blocks[0].register_forward_hook(lambda _m, i, out: seen.append((i[0], out)))
    with torch.no_grad():
        one = new(**given).sample
        two = new(**{**given, "fps": torch.tensor([7.0])}).sample
    assert torch.equal(one, two) and torch.equal(*seen[0])


def test_rows_that_do_not_divide_the_batch_are_refused(model):
    with pytest.raises(ConfigError, match="fps has 3 rows for a batch of 2"):
        model(**{**arguments("basic"), "fps": torch.ones(3)})
