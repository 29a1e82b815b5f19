"""Files for ComfyUI and diffusers: the merged changes of every layer survive, whatever rank and alpha; nothing is left out."""

import json

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from tiny import tiny_pipeline
from tiny_adapter import fill, output, save, stored_metadata
from tiny_formats import BLOCKS, LAYERS, SIZE, assert_same, expected_changes, lora

from phys_pipeline.adapters import inject_lora, load_adapter
from phys_pipeline.adapters.readers import open_adapter
from phys_pipeline.adapters.weights import LoraLayer
from phys_pipeline.adapters.writers import check_same, write_adapter
from phys_pipeline.errors import AdapterError
from phys_pipeline.families.hunyuan_video import LORA_ATTENTION_AND_FEED_FORWARD

WIDTHS = {name: layer.out_features for name, layer in LAYERS.items()}


def assert_same_changes(found, layers):
    assert_same(found, expected_changes(layers))


mixed = st.dictionaries(
    st.sampled_from(BLOCKS), st.tuples(st.integers(1, 9), st.floats(0.01, 300)), min_size=1, max_size=len(BLOCKS)
)


@pytest.mark.parametrize("target", ["comfyui", "diffusers"])
@given(mixed)
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_ranks_and_alphas_survive_both_formats(tmp_path_factory, target, about):
    layers = {name: lora(name, rank, alpha, i) for i, (name, (rank, alpha)) in enumerate(sorted(about.items()))}
    file = write_adapter(tmp_path_factory.mktemp("w") / "x.safetensors", layers, target, {}, WIDTHS)
    opened = open_adapter(file)
    assert opened.format == target and not opened.skipped
    assert_same_changes(opened.read(), layers)
    assert {name: layer.rank for name, layer in opened.read().items()} == {name: layer.rank for name, layer in layers.items()}


def test_the_comfyui_file_has_tencents_names_and_no_alpha(tmp_path):
    layers = {name: lora(name, 2, 5.0) for name in BLOCKS}
    tensors = load_file(write_adapter(tmp_path / "x.safetensors", layers, "comfyui", {}))
    double = [f"{side}_{name}" for side in ("img", "txt")
              for name in ("attn_qkv", "attn_proj", "mlp.fc1", "mlp.fc2", "mod.linear")]  # fmt: skip
    names = [f"double_blocks.{i}.{name}" for i in range(2) for name in double]
    names += [f"single_blocks.{i}.{name}" for i in range(2) for name in ("linear1", "linear2", "modulation.linear")]
    assert set(tensors) == {f"diffusion_model.{name}.lora_{half}.weight" for name in names for half in "AB"}
    single = "diffusion_model.single_blocks.1.linear1"
    assert tensors[f"{single}.lora_A.weight"].shape == (8, 30) and tensors[f"{single}.lora_B.weight"].shape == (210, 8)
    merged = tensors[f"{single}.lora_B.weight"] @ tensors[f"{single}.lora_A.weight"]
    parts = [f"single_transformer_blocks.1.{name}" for name in ("attn.to_q", "attn.to_k", "attn.to_v", "proj_mlp")]
    assert torch.allclose(merged, torch.cat([layers[name].delta() for name in parts]), atol=1e-5)


@pytest.mark.parametrize("outside", ["proj_out", "context_embedder.proj_in", "norm_out.linear", "x_embedder.proj"])
def test_a_layer_that_comfyui_leaves_out_is_an_error_and_writes_nothing(tmp_path, outside):
    layers = {BLOCKS[0]: lora(BLOCKS[0], 2, 2.0), outside: LoraLayer(torch.ones(1, 30), torch.ones(30, 1), 1.0)}
    with pytest.raises(AdapterError, match=rf"{outside}.*no name that other readers accept"):
        write_adapter(tmp_path / "x.safetensors", layers, "comfyui", {})
    assert not list(tmp_path.iterdir())


def test_every_other_linear_layer_can_go_to_diffusers(tmp_path):
    """Top-level names such as proj_out are the ends of other names: each rank and alpha must stay with its own layer."""
    layers = {name: lora(name, 1 + i % 5, 1.0 + i % 7, i) for i, name in enumerate(sorted(LAYERS))}
    file = write_adapter(tmp_path / "x.safetensors", layers, "diffusers", {})
    assert_same_changes(open_adapter(file).read(), layers)
    pipeline = tiny_pipeline(**SIZE)
    plain = tiny_pipeline(**SIZE)
    load_adapter(pipeline, file)
    plain.load_lora_weights(str(tmp_path), weight_name="x.safetensors")
    assert (output(pipeline) - output(plain)).abs().max() <= 1e-6 * output(plain).abs().max()
    for name, module in plain.transformer.named_modules():
        if hasattr(module, "lora_A"):
            assert module.scaling["default_0"] == pytest.approx(layers[name].scale, rel=1e-6), name


@pytest.mark.parametrize("rslora", [False, True])
def test_both_files_of_a_save_make_the_trained_output(tmp_path, rslora):
    from peft import LoraConfig

    pipeline = tiny_pipeline(**SIZE)
    pipeline.transformer.add_adapter(LoraConfig(
        r=4, lora_alpha=6, target_modules=LORA_ATTENTION_AND_FEED_FORWARD, use_rslora=rslora,
        rank_pattern={"proj_mlp": 3, "transformer_blocks.1.attn.to_k": 5}, alpha_pattern={"attn.to_v": 11, "proj_out": 1},
    ))  # fmt: skip
    fill([p for n, p in pipeline.transformer.named_parameters() if "lora" in n])
    folder = save(pipeline, tmp_path / "mine")
    trained = output(pipeline)
    for file in (folder / "comfyui" / "mine.safetensors", folder):
        fresh = tiny_pipeline(**SIZE)
        base = output(fresh)
        load_adapter(fresh, file)
        assert (output(fresh) - trained).abs().max() <= 2e-6 and (trained - base).abs().max() > 1e-2
    plain = tiny_pipeline(**SIZE)
    plain.load_lora_weights(str(folder))
    assert (output(plain) - trained).abs().max() <= 2e-6


def test_dora_is_not_saved(tmp_path):
    from peft import LoraConfig

    pipeline = tiny_pipeline()
    pipeline.transformer.add_adapter(LoraConfig(r=2, target_modules=LORA_ATTENTION_AND_FEED_FORWARD, use_dora=True))
    with pytest.raises(AdapterError, match="is a DoRA"):
        save(pipeline, tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_an_untrained_adapter_has_both_files(tmp_path):
    pipeline = tiny_pipeline()
    inject_lora(pipeline.transformer, 2)
    folder = save(pipeline, tmp_path / "a")
    found = open_adapter(folder / "comfyui" / "a.safetensors").read()
    assert len(found) == 12 and all(layer.squared_norm() == 0 for layer in found.values())  # 8 + q, k, v and the feed-forward


def test_equal_input_gives_equal_bytes_and_a_changed_file_is_noticed(tmp_path):
    layers = {name: lora(name, 3, 2.0) for name in BLOCKS}
    files = [write_adapter(tmp_path / f"{i}.safetensors", layers, "comfyui", {"b": "1", "a": "2"}) for i in range(3)]
    assert len({file.read_bytes() for file in files}) == 1 and stored_metadata(files[0])["b"] == "1"
    reordered = dict(reversed(layers.items()))
    assert write_adapter(tmp_path / "r.safetensors", reordered, "diffusers", {}).read_bytes() == (
        write_adapter(tmp_path / "s.safetensors", layers, "diffusers", {}).read_bytes()
    )
    tensors = load_file(files[0])
    tensors["diffusion_model.double_blocks.1.txt_attn_qkv.lora_B.weight"][7] *= 1.0001
    save_file(tensors, tmp_path / "changed.safetensors")
    with pytest.raises(AdapterError, match=r"changes transformer_blocks\.1\.attn\.add_._proj by another amount"):
        check_same(tmp_path / "changed.safetensors", layers)
    del layers[BLOCKS[0]]
    with pytest.raises(AdapterError, match="by another amount"):
        check_same(files[0], layers)


def test_metadata_names_the_layers_that_differ(tmp_path):
    layers = {name: lora(name, 3, 2.0) for name in BLOCKS} | {BLOCKS[1]: lora(BLOCKS[1], 5, 7.0)}
    file = write_adapter(tmp_path / "x.safetensors", layers, "diffusers", {})
    stored = json.loads(stored_metadata(file)["lora_adapter_metadata"])
    assert stored["transformer.r"] == 3 and stored["transformer.lora_alpha"] == 2.0
    assert stored["transformer.rank_pattern"] == {f"^{BLOCKS[1]}": 5}
    assert stored["transformer.alpha_pattern"] == {f"^{BLOCKS[1]}": 7.0}
