"""MVDiT against the reference's numbers, and each of its peculiarities alone."""

import re

import golden_data
import pytest
import torch
from tiny_mvdit import GOLDEN, golden_inputs, golden_transformer, tiny_transformer

from phys_pipeline.errors import ConfigError, ModelError
from phys_pipeline.models import dit_layers, mvdit
from phys_pipeline.models.mvdit import MVDiTTransformer3DModel

CASES = ("a_basic", "a_fullmask", "a_cfg", "b_basic")
CLOSE = {"atol": 2e-5, "rtol": 1e-4}


@pytest.fixture(scope="module")
def model():
    return golden_transformer("a")


@torch.no_grad()
def run(model, case="a_basic", **changes):
    return model(**{**golden_inputs(case), **changes}).sample


def expected(case):
    return golden_data.group(GOLDEN, f"outputs.{case}.")["sample"]


# the reference's numbers


@pytest.mark.parametrize("case", CASES)
def test_output_is_the_references(case):
    out = run(golden_transformer(case[0]), case)
    assert out.shape == expected(case).shape
    torch.testing.assert_close(out, expected(case), **CLOSE)


def test_every_stage_is_the_references(model):
    stages = {
        "x_embedder": "patch_embed", "t_embedder": "time_embed", "t_block": "time_proj", "t_block_y": "time_proj_y",
        "t_block_temp": "time_proj_temp", "t_block_y_temp": "time_proj_y_temp", "y_embedder": "caption_projection",
        "blocks.0.attn": "transformer_blocks.0.attn1", "blocks.0.attn_temp": "transformer_blocks.0.attn_temp",
        "blocks.0.cross_attn": "transformer_blocks.0.attn2", "blocks.0": "transformer_blocks.0",
        "blocks.1": "transformer_blocks.1", "final_layer": "proj_out",
    }  # fmt: skip
    seen, hooks = {}, []
    for original, ours in stages.items():
        hooks.append(model.get_submodule(ours).register_forward_hook(lambda *a, name=original: seen.update({name: a[2]})))
    run(model)
    for hook in hooks:
        hook.remove()
    for block in ("blocks.0", "blocks.1"):
        seen[f"{block}.x"], seen[f"{block}.y"] = seen.pop(block)
    golden = golden_data.group(GOLDEN, "intermediates.a_basic.")
    assert seen.keys() == golden.keys()
    for name, value in golden.items():
        torch.testing.assert_close(seen[name].reshape(value.shape), value, **CLOSE, msg=lambda m, name=name: f"{name}: {m}")


@pytest.mark.parametrize("variant", ["a", "b"])
def test_position_tables_are_the_references(variant):
    model = golden_transformer(variant)
    buffers = golden_data.group(GOLDEN, "weights." if variant == "a" else "buffers_b.")
    frames, height, width = golden_data.config(GOLDEN)[variant]["input_size"]
    spatial = model._spatial_table((frames, height // 2, width // 2), torch.device("cpu"))
    assert torch.equal(spatial.float(), buffers["pos_embed"][0])
    assert torch.equal(model._temporal_table(frames, torch.device("cpu")).float(), buffers["pos_embed_temporal"][0])


# peculiarities: without each of them, the reference's numbers are missed


def _rows_first(monkeypatch):
    table = dit_layers.sincos_table_2d
    monkeypatch.setattr(mvdit, "sincos_table_2d", lambda *a: torch.cat(table(*a).chunk(2, dim=1)[::-1], dim=1))


def _without_space_scale(monkeypatch):
    table = dit_layers.sincos_table_2d
    monkeypatch.setattr(mvdit, "sincos_table_2d", lambda rows, columns, d: table(rows * 0.5, columns * 0.5, d))


def _temporal_table(monkeypatch, change):
    forward = mvdit.MVDiTBlock.forward
    kept = []

    def changed(self, x, y, time, mask, table=None):
        kept.append(table if table is not None else kept[0])
        return change(lambda x, t: forward(self, x, y, time, mask, t), x, table, kept[-1])

    monkeypatch.setattr(mvdit.MVDiTBlock, "forward", changed)


def _table_in_every_block(monkeypatch):
    _temporal_table(monkeypatch, lambda block, x, table, always: block(x, always))


def _table_in_no_block(monkeypatch):
    _temporal_table(monkeypatch, lambda block, x, table, always: block(x, None))


def _table_on_the_stream(monkeypatch):
    _temporal_table(monkeypatch, lambda block, x, table, always: block(x if table is None else x + table[:, None], None))


def _cross_attention_with_normed_text(monkeypatch):
    forward = dit_layers.DiTAttention.forward

    def changed(self, x, context=None, mask=None):
        if context is not None:
            context = torch.nn.functional.layer_norm(context, context.shape[-1:])
        return forward(self, x, context, mask)

    monkeypatch.setattr(dit_layers.DiTAttention, "forward", changed)


def _text_stays_as_it_came(monkeypatch):
    forward = mvdit.MVDiTBlock.forward
    monkeypatch.setattr(mvdit.MVDiTBlock, "forward", lambda self, x, y, *a: (forward(self, x, y, *a)[0], y))


def _text_modulated_as_video(monkeypatch):
    forward = mvdit.MVDiTBlock.forward

    def changed(self, x, y, time, mask, table=None):
        return forward(self, x, y, (time[0], time[0], time[2], time[2]), mask, table)

    monkeypatch.setattr(mvdit.MVDiTBlock, "forward", changed)


def _values_of_a_patch_in_another_order(monkeypatch):
    monkeypatch.setattr(mvdit, "unpatchify", lambda x, *a: dit_layers.unpatchify(x.flip(-1), *a))


@pytest.mark.parametrize(
    "mistake",
    [
        _rows_first, _without_space_scale, _table_in_every_block, _table_in_no_block, _table_on_the_stream,
        _cross_attention_with_normed_text, _text_stays_as_it_came, _text_modulated_as_video, _values_of_a_patch_in_another_order,
    ],
)  # fmt: skip
def test_each_mistake_misses_the_references_numbers(model, monkeypatch, mistake):
    mistake(monkeypatch)
    assert (run(model) - expected("a_basic")).abs().max() > 1e-3


def test_a_mask_is_required_and_padded_text_never_matters(model):
    with pytest.raises(ModelError, match="needs encoder_attention_mask"):
        run(model, encoder_attention_mask=None)
    given = golden_inputs("a_basic")
    other = given["encoder_hidden_states"].clone()
    other[given["encoder_attention_mask"] == 0] = 7.0
    assert torch.equal(run(model, encoder_hidden_states=other), run(model))
    other[1, 0] += 1.0
    assert not torch.allclose(run(model, encoder_hidden_states=other)[1], run(model)[1], atol=1e-3)
    everything = torch.ones_like(given["encoder_attention_mask"])
    assert (run(model, encoder_attention_mask=everything) - run(model)).abs().max() > 1e-2


def test_mask_of_the_prompts_is_repeated_for_the_null_captions(model):
    mask = golden_inputs("a_cfg")["encoder_attention_mask"]
    assert len(mask) == 1
    assert torch.equal(run(model, "a_cfg"), run(model, "a_cfg", encoder_attention_mask=mask.repeat(2, 1)))
    with pytest.raises(ConfigError, match="3 rows for a batch of 2"):
        run(model, "a_cfg", encoder_attention_mask=mask.repeat(3, 1))
    with pytest.raises(ModelError, match="does not fit a batch of 2"):
        run(model, "a_cfg", encoder_attention_mask=mask[:, 1:])


def test_null_caption_is_a_tensor_in_the_text_encoders_space(model):
    null = golden_data.group(GOLDEN, "weights.y_embedder.")["y_embedding"]
    assert torch.equal(model.null_caption, null)
    assert torch.equal(golden_inputs("a_cfg")["encoder_hidden_states"][1], null)


# sizes


def test_other_sizes_than_the_trained_one_run_and_misfits_say_what_to_do(model):
    text = {name: value for name, value in golden_inputs("a_fullmask").items() if name.startswith("encoder")}
    t = torch.tensor([10])
    with torch.no_grad():
        assert model(torch.randn(1, 4, 1, 2, 2), t, **text).sample.shape == (1, 8, 1, 2, 2)
        assert model(torch.randn(1, 4, 7, 4, 14), t, **text).sample.shape == (1, 8, 7, 4, 14)
        with pytest.raises(ModelError, match=r"latents of 3x4.*multiples of 16"):
            model(torch.randn(1, 4, 1, 3, 4), t, **text)
    with pytest.raises(ModelError, match="twice as many channels out as in"):
        MVDiTTransformer3DModel(2, 12, 1, out_channels=4)


# training


def small_batch(frames=3):
    generator = torch.Generator().manual_seed(0)
    return {
        "hidden_states": torch.randn(2, 4, frames, 4, 4, generator=generator),
        "timestep": torch.tensor([3, 700]),
        "encoder_hidden_states": torch.randn(2, 24, 48, generator=generator),
        "encoder_attention_mask": (torch.arange(24)[None] < torch.tensor([[5], [24]])).int(),
    }


def gradients(model):
    model.zero_grad()
    model(**small_batch()).sample.square().mean().backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}


def test_only_the_last_blocks_text_mlp_gets_no_gradient():
    model = tiny_transformer()
    found = gradients(model)
    dead = {id(parameter) for parameter in model.unused_parameters()}
    assert {name for name, gradient in found.items() if gradient is None} == {
        name for name, parameter in model.named_parameters() if id(parameter) in dead
    }
    assert sum(p.numel() for p in model.unused_parameters()) > 0
    rows = found["transformer_blocks.1.scale_shift_table_y"]
    assert not rows[3:].any() and rows[:3].abs().sum(dim=1).all()
    assert all(gradient.any() for name, gradient in found.items() if gradient is not None)


def test_gradient_checkpointing_changes_nothing():
    model = tiny_transformer().train()
    plain = gradients(model)
    model.enable_gradient_checkpointing()
    for name, gradient in gradients(model).items():
        assert (gradient is None) == (plain[name] is None), name
        if gradient is not None:
            torch.testing.assert_close(gradient, plain[name])


def test_new_weights_start_as_the_original_training_did():
    model = MVDiTTransformer3DModel(2, 12, 2, caption_channels=48, max_sequence_length=24)
    assert not model(**small_batch()).sample.any()
    zero = {name for name, p in model.named_parameters() if name.endswith("weight") and not p.any()}
    assert zero == {"proj_out.weight"} | {
        f"transformer_blocks.{i}.{layer}.to_out.0.weight" for i in range(2) for layer in ("attn_temp", "attn2")
    }


# precision, storage


def test_bfloat16_stays_within_two_percent_and_keeps_the_modulation_in_float32(tmp_path, model):
    model.save_pretrained(tmp_path)
    half = MVDiTTransformer3DModel.from_pretrained(tmp_path, torch_dtype=torch.bfloat16)
    kept = {name for name, p in half.named_parameters() if p.dtype == torch.float32}
    assert kept == {name for name, _ in model.named_parameters() if re.search("time_|scale_shift_table", name)}
    assert half.dtype == torch.bfloat16
    for case in CASES[:3]:
        out = run(half, case, hidden_states=golden_inputs(case)["hidden_states"].bfloat16(),
                  encoder_hidden_states=golden_inputs(case)["encoder_hidden_states"].bfloat16())  # fmt: skip
        assert out.dtype == torch.bfloat16
        assert (out.float() - expected(case)).norm() < 0.02 * expected(case).norm()
    whole = golden_transformer("a").to(torch.bfloat16)  # every weight
    out = run(whole, hidden_states=golden_inputs("a_basic")["hidden_states"].bfloat16(),
              encoder_hidden_states=golden_inputs("a_basic")["encoder_hidden_states"].bfloat16())  # fmt: skip
    assert (out.float() - expected("a_basic")).norm() < 0.02 * expected("a_basic").norm()


def test_saved_and_loaded_model_gives_the_same_output(tmp_path, model):
    model.save_pretrained(tmp_path)
    again = MVDiTTransformer3DModel.from_pretrained(tmp_path)
    assert dict(again.config)["space_scale"] == 0.5 and torch.equal(again.null_caption, model.null_caption)
    assert torch.equal(run(again), run(model))
