"""LoRA adapters on the tiny pipeline: what is trained, the round trip, and every way a file can be wrong."""

import json
import logging
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny import GENERATION, save_tiny, tiny_pipeline, tiny_transformer
from tiny_adapter import ALPHA, RANK, fill, output, save, sha, state, stored_metadata

from phys_pipeline.adapters import (
    adapter_at,
    adapter_names,
    adapters_kept,
    inject_lora,
    load_adapter,
    unload_adapter,
)
from phys_pipeline.adapters.formats import WEIGHTS_FILE
from phys_pipeline.errors import AdapterError
from phys_pipeline.families import get_family, load_model
from phys_pipeline.families.hunyuan_video import LORA_ATTENTION_AND_FEED_FORWARD

# injection


def test_only_block_attention_is_trained_in_float32(pipeline):
    transformer = pipeline.transformer.to(torch.bfloat16)
    parameters = inject_lora(transformer, RANK, ALPHA)
    trained = {n.split(".lora_")[0] for n, p in transformer.named_parameters() if p.requires_grad}
    double = ("to_q", "to_k", "to_v", "to_out.0", "add_q_proj", "add_k_proj", "add_v_proj", "to_add_out")
    expected = {f"transformer_blocks.0.attn.{n}" for n in double}
    expected |= {f"single_transformer_blocks.0.attn.{n}" for n in ("to_q", "to_k", "to_v")}
    assert trained == expected
    assert len(parameters) == 2 * len(expected) and {p.dtype for p in parameters} == {torch.float32}
    assert {p.dtype for n, p in transformer.named_parameters() if "lora" not in n} == {torch.bfloat16}


def test_feed_forward_layers_can_be_added(pipeline):
    inject_lora(pipeline.transformer, RANK, regex=LORA_ATTENTION_AND_FEED_FORWARD)
    trained = {n.split(".lora_")[0] for n, p in pipeline.transformer.named_parameters() if p.requires_grad}
    assert {"transformer_blocks.0.ff.net.0.proj", "transformer_blocks.0.ff_context.net.2"} <= trained
    assert {"single_transformer_blocks.0.proj_mlp", "single_transformer_blocks.0.proj_out"} <= trained
    assert not any("embed" in n for n in trained) and "proj_out" not in trained


def test_suffix_targets_that_reach_the_token_refiner_are_refused(pipeline):
    before = state(pipeline.transformer)
    with pytest.raises(AdapterError, match=r"context_embedder\.token_refiner"):
        inject_lora(pipeline.transformer, RANK, regex=r".*attn\.(to_q|to_k|to_v)")
    assert state(pipeline.transformer) == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"regex": "to_q"}, "matches no linear layer"),  # a regex is anchored: a bare suffix is no match
        ({"regex": "("}, "not valid"),
        ({"rank": 0}, "rank of at least 1"),
        ({"dropout": 1.0}, r"dropout in \[0, 1\)"),
    ],
)
def test_wrong_targets_leave_the_model_alone(pipeline, options, message):
    before = state(pipeline.transformer)
    with pytest.raises(AdapterError, match=message):
        inject_lora(pipeline.transformer, **options)
    assert state(pipeline.transformer) == before


def test_a_new_adapter_changes_nothing_and_its_seed_decides_its_start(pipeline):
    base, state = output(pipeline), torch.get_rng_state()
    first = [p.clone() for p in inject_lora(pipeline.transformer, RANK, seed=5)]
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(output(pipeline), base)
    other = inject_lora(tiny_transformer(), RANK, seed=5)
    assert all(torch.equal(a, b) for a, b in zip(first, other, strict=True))
    with pytest.raises(AdapterError, match="already has an adapter named 'default'"):
        inject_lora(pipeline.transformer, RANK)


def test_gradient_checkpointing_gives_equal_gradients(pipeline):
    family = get_family("hunyuan_video")
    text = family.encode_text(pipeline, ["a ball"], GENERATION)
    parameters = inject_lora(pipeline.transformer, RANK, ALPHA, seed=0)
    fill(parameters)
    x = torch.randn(1, 4, 2, 3, 3, generator=torch.Generator().manual_seed(0))
    gradients = []
    for checkpointing in (False, True):
        transformer = pipeline.transformer.train()
        if checkpointing:
            transformer.enable_gradient_checkpointing()
        transformer(**family.inputs(x, torch.tensor([0.5]), text))[0].square().mean().backward()
        gradients.append([p.grad.clone() for p in parameters])
        transformer.zero_grad()
    assert all(g.abs().sum() > 0 for g in gradients[0])
    assert all(torch.allclose(a, b, rtol=1e-5, atol=1e-8) for a, b in zip(*gradients, strict=True))


def test_small_updates_move_a_float32_adapter_on_a_bfloat16_base(pipeline):
    parameters = inject_lora(pipeline.transformer.to(torch.bfloat16), RANK, seed=0)
    before = [p.detach().clone() for p in parameters]
    optimiser = torch.optim.AdamW(parameters, lr=1e-6, weight_decay=0.0)
    family = get_family("hunyuan_video")
    text = family.encode_text(pipeline, ["a ball"], GENERATION)
    for _ in range(2):
        x = torch.randn(1, 4, 2, 3, 3, dtype=torch.bfloat16, generator=torch.Generator().manual_seed(0))
        pipeline.transformer(**family.inputs(x, torch.tensor([0.5]), text))[0].float().square().mean().backward()
        optimiser.step()
    moved = [not torch.equal(a, b) for a, b in zip(before, parameters, strict=True)]
    assert all(moved)


# round trip


def test_round_trip_gives_exactly_the_trained_output(trained, saved, pipeline):
    base = output(pipeline)
    info = load_adapter(pipeline, saved)
    assert torch.equal(output(pipeline), output(trained))
    assert (output(pipeline) - base).abs().max() > 1e-3
    assert (info.name, info.rank, info.alpha, info.tensors) == ("physics", RANK, ALPHA, 22)
    assert info.provenance["base_model"] == "hunyuanvideo-community/HunyuanVideo" and info.provenance["steps"] == 3
    layer = pipeline.transformer.transformer_blocks[0].attn.to_q
    assert layer.r["physics"] == RANK and layer.lora_alpha["physics"] == ALPHA and layer.scaling["physics"] == ALPHA / RANK


def test_plain_diffusers_reads_it_the_same(trained, saved, pipeline):
    pipeline.load_lora_weights(str(saved), adapter_name="other")
    assert torch.equal(output(pipeline), output(trained))


def test_delta_is_the_norm_of_the_weight_changes(trained, saved, pipeline):
    info = load_adapter(pipeline, saved)
    tensors = load_file(saved / WEIGHTS_FILE)
    total = 0.0
    for key in tensors:
        if key.endswith("lora_A.weight"):
            change = ALPHA / RANK * tensors[key.replace("lora_A", "lora_B")].double() @ tensors[key].double()
            total += change.square().sum().item()
    assert info.delta == pytest.approx(total**0.5, rel=1e-9)


def test_weight_scales_and_unloading_restores_the_plain_model(saved, pipeline):
    base = output(pipeline)
    before = state(pipeline.transformer)
    load_adapter(pipeline, saved, weight=0.0)
    assert torch.equal(output(pipeline), base)
    unload_adapter(pipeline, "physics")
    load_adapter(pipeline, saved, weight=0.5)
    half = output(pipeline)
    unload_adapter(pipeline, "physics")
    assert not torch.equal(half, base) and torch.equal(output(pipeline), base)
    after = state(pipeline.transformer)
    assert [n for n, *_ in after[0]] == [n for n, *_ in before[0]] and after[1:] == before[1:]
    unload_adapter(pipeline, "never there")


def test_ranks_and_alphas_of_single_layers_survive(pipeline, tmp_path):
    from peft import LoraConfig

    config = LoraConfig(
        r=4, lora_alpha=6, target_modules=["transformer_blocks.0.attn.to_q", "transformer_blocks.0.attn.to_k"],
        rank_pattern={"transformer_blocks.0.attn.to_k": 2}, alpha_pattern={"transformer_blocks.0.attn.to_k": 7},
    )  # fmt: skip
    pipeline.transformer.add_adapter(config)
    fill([p for n, p in pipeline.transformer.named_parameters() if "lora" in n])
    fresh = tiny_pipeline()
    load_adapter(fresh, save(pipeline, tmp_path / "a"))
    assert torch.equal(output(fresh), output(pipeline))
    attention = fresh.transformer.transformer_blocks[0].attn
    assert attention.to_k.scaling["physics"] == 7 / 2 and attention.to_q.scaling["physics"] == 6 / 4


def test_equal_adapters_are_equal_files(trained, saved, tmp_path):
    assert len({tuple(sha(save(trained, tmp_path / f"copy{i}")).items()) for i in range(4)}) == 1
    assert sha(tmp_path / "copy0") == sha(saved)
    again = tiny_pipeline()
    fill(inject_lora(again.transformer, RANK, ALPHA, seed=0))
    assert sha(save(again, tmp_path / "again")) == sha(saved)


def test_metadata_is_minimal_and_provenance_is_beside(saved):
    metadata = stored_metadata(saved / WEIGHTS_FILE)
    assert set(metadata) == {"format", "lora_adapter_metadata", "phys_pipeline"}
    fields = json.loads(metadata["lora_adapter_metadata"])
    assert set(fields) == {"transformer.r", "transformer.lora_alpha", "transformer.target_modules"}
    provenance = json.loads((saved / "provenance.json").read_text())
    assert provenance == json.loads(metadata["phys_pipeline"])
    assert provenance["family"] == "hunyuan_video" and provenance["preset"] == "paper"
    assert sorted(p.name for p in saved.iterdir()) == ["comfyui", "provenance.json", WEIGHTS_FILE]
    copy = stored_metadata(saved / "comfyui" / "good.safetensors")
    assert copy == {"format": "pt", "phys_pipeline": metadata["phys_pipeline"]}


def test_loaded_models_revision_is_kept_and_local_paths_are_not(trained, tmp_path):
    folder = save_tiny(tmp_path / "private" / "my_model")
    model = load_model(str(folder))
    provenance = json.loads((save(trained, tmp_path / "a", base_model=model) / "provenance.json").read_text())
    assert provenance["base_model"] == "my_model" and provenance["revision"] == model.revision != ""
    assert "private" not in json.dumps(provenance)
    load_adapter(model, tmp_path / "a")  # a LoadedModel is a pipeline too
    assert adapter_names(model.pipeline.transformer) == ["physics"]


def test_saving_replaces_a_folder_whole_and_failing_keeps_it(trained, saved, tmp_path, pipeline):
    folder = save(trained, tmp_path / "a")
    (folder / "old.txt").write_text("old")
    before = sha(folder)
    with pytest.raises(AdapterError, match="JSON"):
        save(trained, folder, extra_metadata={"loss": float("nan")})
    bad = tiny_pipeline()
    inject_lora(bad.transformer, RANK)[0].data[0, 0] = float("nan")
    with pytest.raises(AdapterError, match="NaN or infinity"):
        save(bad, folder)
    with pytest.raises(AdapterError, match="has no adapter"):
        save(pipeline, folder)
    assert sha(folder) == before
    assert sha(save(trained, folder)) == sha(saved)
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_a_writer_that_changes_a_tensor_is_caught(trained, tmp_path, monkeypatch):
    from diffusers import HunyuanVideoPipeline

    write = HunyuanVideoPipeline.save_lora_weights

    def careless(folder, transformer_lora_layers, transformer_lora_adapter_metadata):
        rounded = {k: v.bfloat16().float() for k, v in transformer_lora_layers.items()}
        write(folder, rounded, transformer_lora_adapter_metadata=transformer_lora_adapter_metadata)

    monkeypatch.setattr(HunyuanVideoPipeline, "save_lora_weights", careless)
    with pytest.raises(AdapterError, match="changed"):
        save(trained, tmp_path / "a")

    def forgetful(folder, transformer_lora_layers, transformer_lora_adapter_metadata):
        write(folder, transformer_lora_layers)

    monkeypatch.setattr(HunyuanVideoPipeline, "save_lora_weights", forgetful)
    with pytest.raises(AdapterError, match="lost its rank or alpha"):
        save(trained, tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_an_untrained_adapter_saves_and_loads_with_a_warning(pipeline, tmp_path, caplog):
    inject_lora(pipeline.transformer, RANK)
    with caplog.at_level(logging.WARNING, "phys_pipeline"):
        info = load_adapter(tiny_pipeline(), save(pipeline, tmp_path / "a"))
    assert info.delta == 0 and "changes nothing" in caplog.text


def test_bfloat16_model_takes_a_float32_adapter(saved):
    pipeline = tiny_pipeline().to(torch.bfloat16)
    load_adapter(pipeline, saved)
    family = get_family("hunyuan_video")
    text = family.encode_text(pipeline, ["a ball"], GENERATION)
    x = torch.zeros(1, 4, 2, 2, 2, dtype=torch.bfloat16)
    with torch.no_grad():
        assert pipeline.transformer(**family.inputs(x, torch.tensor([0.5]), text))[0].dtype == torch.bfloat16


# files that can't be loaded


def test_an_adapter_in_the_hub_cache_loads_offline(saved, tmp_path, pipeline, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    repository, commit = tmp_path / "models--someone--adapter", "0123456789abcdef0123456789abcdef01234567"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(commit)
    shutil.copytree(saved, repository / "snapshots" / commit)
    assert load_adapter(pipeline, "someone/adapter").tensors == 22


def test_another_revision_of_the_base_is_warned_about(trained, tmp_path, caplog):
    model = load_model(str(save_tiny(tmp_path / "model")))
    for revision, warned in ((model.revision, False), ("0000", True)):
        folder = save(trained, tmp_path / revision, extra_metadata={"revision": revision})
        with caplog.at_level(logging.WARNING, "phys_pipeline"):
            load_adapter(model, folder, name=f"r{revision}")
        assert ("was trained for revision" in caplog.text) is warned


def test_a_config_no_reader_knows_fails_cleanly(saved, tmp_path, pipeline):
    metadata = stored_metadata(saved / WEIGHTS_FILE)
    fields = {**json.loads(metadata["lora_adapter_metadata"]), "transformer.field_of_the_future": 1}
    metadata["lora_adapter_metadata"] = json.dumps(fields)
    save_file(load_file(saved / WEIGHTS_FILE), tmp_path / "new.safetensors", metadata=metadata)
    before = state(pipeline.transformer)
    with pytest.raises(AdapterError, match="can't apply"):
        load_adapter(pipeline, tmp_path / "new.safetensors")
    assert state(pipeline.transformer) == before


def test_failing_beside_another_adapter_keeps_it_active(saved, tmp_path, pipeline):
    load_adapter(pipeline, saved, name="first", weight=0.5)
    expected = output(pipeline)
    metadata = stored_metadata(saved / WEIGHTS_FILE)
    metadata["lora_adapter_metadata"] = json.dumps({"transformer.r": 4, "transformer.nonsense": 1})
    save_file(load_file(saved / WEIGHTS_FILE), tmp_path / "bad.safetensors", metadata=metadata)
    for path in (tmp_path / "bad.safetensors", tmp_path / "none"):
        with pytest.raises(AdapterError):
            load_adapter(pipeline, path)
    assert adapter_names(pipeline.transformer) == ["first"] and torch.equal(output(pipeline), expected)
    with pytest.raises(AdapterError, match="already has an adapter named 'first'"):
        load_adapter(pipeline, saved, name="first")
    with pytest.raises(AdapterError, match="not a number"):
        load_adapter(pipeline, saved, weight=float("nan"))


# state


def test_switching_restores_activity_strength_and_trainability(pipeline, saved):
    base = output(pipeline)
    fill(inject_lora(pipeline.transformer, RANK, ALPHA, seed=0))
    load_adapter(pipeline, saved, name="second", weight=0.25)
    pipeline.transformer.set_adapters(["default", "second"], [0.5, 0.25])
    pipeline.transformer.transformer_blocks[0].attn.to_q.lora_A["default"].weight.requires_grad_(False)
    expected, before = output(pipeline), state(pipeline.transformer)
    with pytest.raises(KeyboardInterrupt), adapter_at(pipeline.transformer, "second", 2.0):
        assert not torch.equal(output(pipeline), expected)
        raise KeyboardInterrupt
    assert torch.equal(output(pipeline), expected) and state(pipeline.transformer) == before
    with adapter_at(pipeline.transformer, None):
        assert torch.equal(output(pipeline), base)
    assert torch.equal(output(pipeline), expected) and state(pipeline.transformer) == before
    with adapters_kept(pipeline.transformer):
        pipeline.transformer.disable_adapters()
    assert torch.equal(output(pipeline), expected) and state(pipeline.transformer) == before
    with pytest.raises(AdapterError, match="no adapter named 'third'"), adapter_at(pipeline.transformer, "third"):
        pass
