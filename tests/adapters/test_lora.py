"""LoRA adapters on the tiny pipeline: what is trained, the round trip, and every way a file can be wrong."""

import hashlib
import json
import logging
import shutil

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from tiny import GENERATION, save_tiny, tiny_pipeline, tiny_transformer
from torch import nn

from phys_pipeline.adapters import (
    adapter_at,
    adapter_names,
    adapters_kept,
    find_adapter,
    inject_lora,
    load_adapter,
    save_adapter,
    unload_adapter,
)
from phys_pipeline.adapters.formats import WEIGHTS_FILE, describe_format, detect_format, rewrite_header
from phys_pipeline.adapters.layers import linear_layers
from phys_pipeline.errors import AdapterError
from phys_pipeline.families import as_loaded, get_family, load_model
from phys_pipeline.families.hunyuan_video import LORA_ATTENTION_AND_FEED_FORWARD

RANK, ALPHA = 4, 10.0


@pytest.fixture
def pipeline():
    return tiny_pipeline()


@pytest.fixture(scope="module")
def trained():
    """A pipeline with a LoRA whose alpha differs from its rank and whose weights are not at their start."""
    pipeline = tiny_pipeline()
    _fill(inject_lora(pipeline.transformer, RANK, ALPHA, seed=0))
    return pipeline


@pytest.fixture(scope="module")
def saved(trained, tmp_path_factory):
    return _save(trained, tmp_path_factory.mktemp("adapters") / "good")


def _fill(parameters, seed=1):
    g = torch.Generator().manual_seed(seed)
    for parameter in parameters:
        parameter.data.add_(0.1 * torch.randn(parameter.shape, generator=g))


def _save(pipeline, folder, **options):
    options = {"base_model": "hunyuanvideo-community/HunyuanVideo", "extra_metadata": {"steps": 3, "preset": "paper"}, **options}
    return save_adapter(pipeline.transformer, folder, family="hunyuan_video", **options)


@torch.no_grad()
def _output(pipeline):
    family = get_family("hunyuan_video").bind(pipeline.transformer)
    text = family.encode_text(pipeline, ["a ball"], GENERATION)
    x = torch.randn(1, 4, 2, 3, 3, generator=torch.Generator().manual_seed(0))
    return pipeline.transformer.eval()(**family.inputs(x, torch.tensor([0.5]), text))[0]


def _state(transformer):
    """Everything an adapter could change, without copying weights."""
    return (
        [(n, p.data_ptr(), p.requires_grad) for n, p in transformer.named_parameters()],
        [(n, type(m)) for n, m in transformer.named_modules()],
        adapter_names(transformer),
    )


def _sha(folder):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def _metadata(file):
    with safe_open(file, framework="pt") as opened:
        return dict(opened.metadata())


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
    before = _state(pipeline.transformer)
    with pytest.raises(AdapterError, match=r"context_embedder\.token_refiner"):
        inject_lora(pipeline.transformer, RANK, regex=r".*attn\.(to_q|to_k|to_v)")
    assert _state(pipeline.transformer) == before


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
    before = _state(pipeline.transformer)
    with pytest.raises(AdapterError, match=message):
        inject_lora(pipeline.transformer, **options)
    assert _state(pipeline.transformer) == before


def test_a_new_adapter_changes_nothing_and_its_seed_decides_its_start(pipeline):
    base, state = _output(pipeline), torch.get_rng_state()
    first = [p.clone() for p in inject_lora(pipeline.transformer, RANK, seed=5)]
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(_output(pipeline), base)
    other = inject_lora(tiny_transformer(), RANK, seed=5)
    assert all(torch.equal(a, b) for a, b in zip(first, other, strict=True))
    with pytest.raises(AdapterError, match="already has an adapter named 'default'"):
        inject_lora(pipeline.transformer, RANK)


def test_gradient_checkpointing_gives_equal_gradients(pipeline):
    family = get_family("hunyuan_video")
    text = family.encode_text(pipeline, ["a ball"], GENERATION)
    parameters = inject_lora(pipeline.transformer, RANK, ALPHA, seed=0)
    _fill(parameters)
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
    base = _output(pipeline)
    info = load_adapter(pipeline, saved)
    assert torch.equal(_output(pipeline), _output(trained))
    assert (_output(pipeline) - base).abs().max() > 1e-3
    assert (info.name, info.rank, info.alpha, info.tensors) == ("physics", RANK, ALPHA, 22)
    assert info.provenance["base_model"] == "hunyuanvideo-community/HunyuanVideo" and info.provenance["steps"] == 3
    layer = pipeline.transformer.transformer_blocks[0].attn.to_q
    assert layer.r["physics"] == RANK and layer.lora_alpha["physics"] == ALPHA and layer.scaling["physics"] == ALPHA / RANK


def test_plain_diffusers_reads_it_the_same(trained, saved, pipeline):
    pipeline.load_lora_weights(str(saved), adapter_name="other")
    assert torch.equal(_output(pipeline), _output(trained))


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
    base = _output(pipeline)
    before = _state(pipeline.transformer)
    load_adapter(pipeline, saved, weight=0.0)
    assert torch.equal(_output(pipeline), base)
    unload_adapter(pipeline, "physics")
    load_adapter(pipeline, saved, weight=0.5)
    half = _output(pipeline)
    unload_adapter(pipeline, "physics")
    assert not torch.equal(half, base) and torch.equal(_output(pipeline), base)
    after = _state(pipeline.transformer)
    assert [n for n, *_ in after[0]] == [n for n, *_ in before[0]] and after[1:] == before[1:]
    unload_adapter(pipeline, "never there")


def test_ranks_and_alphas_of_single_layers_survive(pipeline, tmp_path):
    from peft import LoraConfig

    config = LoraConfig(
        r=4, lora_alpha=6, target_modules=["transformer_blocks.0.attn.to_q", "transformer_blocks.0.attn.to_k"],
        rank_pattern={"transformer_blocks.0.attn.to_k": 2}, alpha_pattern={"transformer_blocks.0.attn.to_k": 7},
    )  # fmt: skip
    pipeline.transformer.add_adapter(config)
    _fill([p for n, p in pipeline.transformer.named_parameters() if "lora" in n])
    fresh = tiny_pipeline()
    load_adapter(fresh, _save(pipeline, tmp_path / "a"))
    assert torch.equal(_output(fresh), _output(pipeline))
    attention = fresh.transformer.transformer_blocks[0].attn
    assert attention.to_k.scaling["physics"] == 7 / 2 and attention.to_q.scaling["physics"] == 6 / 4


def test_equal_adapters_are_equal_files(trained, saved, tmp_path):
    assert len({tuple(_sha(_save(trained, tmp_path / f"copy{i}")).items()) for i in range(4)}) == 1
    assert _sha(tmp_path / "copy0") == _sha(saved)
    again = tiny_pipeline()
    _fill(inject_lora(again.transformer, RANK, ALPHA, seed=0))
    assert _sha(_save(again, tmp_path / "again")) == _sha(saved)


def test_metadata_is_minimal_and_provenance_is_beside(saved):
    metadata = _metadata(saved / WEIGHTS_FILE)
    assert set(metadata) == {"format", "lora_adapter_metadata", "phys_pipeline"}
    fields = json.loads(metadata["lora_adapter_metadata"])
    assert set(fields) == {"transformer.r", "transformer.lora_alpha", "transformer.target_modules"}
    provenance = json.loads((saved / "provenance.json").read_text())
    assert provenance == json.loads(metadata["phys_pipeline"])
    assert provenance["family"] == "hunyuan_video" and provenance["preset"] == "paper"
    assert sorted(p.name for p in saved.iterdir()) == ["provenance.json", WEIGHTS_FILE]


def test_loaded_models_revision_is_kept_and_local_paths_are_not(trained, tmp_path):
    folder = save_tiny(tmp_path / "private" / "my_model")
    model = load_model(str(folder))
    provenance = json.loads((_save(trained, tmp_path / "a", base_model=model) / "provenance.json").read_text())
    assert provenance["base_model"] == "my_model" and provenance["revision"] == model.revision != ""
    assert "private" not in json.dumps(provenance)
    load_adapter(model, tmp_path / "a")  # a LoadedModel is a pipeline too
    assert adapter_names(model.pipeline.transformer) == ["physics"]


def test_saving_replaces_a_folder_whole_and_failing_keeps_it(trained, saved, tmp_path, pipeline):
    folder = _save(trained, tmp_path / "a")
    (folder / "old.txt").write_text("old")
    before = _sha(folder)
    with pytest.raises(AdapterError, match="JSON"):
        _save(trained, folder, extra_metadata={"loss": float("nan")})
    bad = tiny_pipeline()
    inject_lora(bad.transformer, RANK)[0].data[0, 0] = float("nan")
    with pytest.raises(AdapterError, match="NaN or infinity"):
        _save(bad, folder)
    with pytest.raises(AdapterError, match="has no adapter"):
        _save(pipeline, folder)
    assert _sha(folder) == before
    assert _sha(_save(trained, folder)) == _sha(saved)
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_a_writer_that_changes_a_tensor_is_caught(trained, tmp_path, monkeypatch):
    from diffusers import HunyuanVideoPipeline

    write = HunyuanVideoPipeline.save_lora_weights

    def careless(folder, transformer_lora_layers, transformer_lora_adapter_metadata):
        rounded = {k: v.bfloat16().float() for k, v in transformer_lora_layers.items()}
        write(folder, rounded, transformer_lora_adapter_metadata=transformer_lora_adapter_metadata)

    monkeypatch.setattr(HunyuanVideoPipeline, "save_lora_weights", careless)
    with pytest.raises(AdapterError, match="changed"):
        _save(trained, tmp_path / "a")

    def forgetful(folder, transformer_lora_layers, transformer_lora_adapter_metadata):
        write(folder, transformer_lora_layers)

    monkeypatch.setattr(HunyuanVideoPipeline, "save_lora_weights", forgetful)
    with pytest.raises(AdapterError, match="lost its rank or alpha"):
        _save(trained, tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_an_untrained_adapter_saves_and_loads_with_a_warning(pipeline, tmp_path, caplog):
    inject_lora(pipeline.transformer, RANK)
    with caplog.at_level(logging.WARNING, "phys_pipeline"):
        info = load_adapter(tiny_pipeline(), _save(pipeline, tmp_path / "a"))
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


def _rename(tensors, function):
    return {function(k): v for k, v in tensors.items()}


def _core(key):
    return key.removeprefix("transformer.")


WRONG = {
    "comfyui": (lambda t: _rename(t, lambda k: "diffusion_model." + _core(k)), "ComfyUI"),
    "kohya": (lambda t: _rename(t, lambda k: "lora_unet_" + _core(k).replace(".", "_")), "kohya"),
    "peft": (lambda t: _rename(t, lambda k: "base_model.model." + _core(k)), "PEFT"),
    "sd": (lambda t: _rename(t, lambda k: "unet." + _core(k)), "Stable Diffusion"),
    "tencent": (lambda t: _rename(t, lambda k: k.replace("transformer_blocks", "double_blocks")), "Tencent"),
    "weights": (lambda t: _rename(t, lambda k: k.replace(".lora_A", "").replace(".lora_B", "_2")), "not an adapter"),
    "lokr": (lambda t: _rename(t, lambda k: k.replace("lora_A.weight", "lokr_w1").replace("lora_B.weight", "lokr_w2")), "LoKr"),
    "dora": (lambda t: {**t, "transformer.transformer_blocks.0.attn.to_q.lora_magnitude_vector": torch.ones(20)}, "DoRA"),
    "no prefix": (lambda t: _rename(t, _core), "unknown"),
    "half": (lambda t: {k: v for k, v in t.items() if not k.endswith("to_q.lora_B.weight")}, "lacks lora_B"),
    "alpha keys": (lambda t: {**t, "transformer.transformer_blocks.0.attn.to_q.alpha": torch.ones(())}, "1 of 23 tensors"),
    "nan": (lambda t: {k: v * float("nan") for k, v in t.items()}, "NaN or infinity"),
    "deeper": (
        lambda t: {**t, **_rename(t, lambda k: k.replace(".0.attn", ".7.attn"))},
        r"11 of its 22 layers.*single_transformer_blocks\.7\.attn\.to_k; it was trained for hunyuanvideo-community",
    ),
    "wider": (
        lambda t: {k: v.repeat((1, 2) if "lora_A" in k else (2, 1)) for k, v in t.items()},
        r"is 20x20 here but .* \(40, 4\) and \(4, 40\).*trained for hunyuanvideo-community",
    ),
}


@pytest.mark.parametrize(("change", "message"), WRONG.values(), ids=WRONG.keys())
def test_wrong_files_name_the_reason_and_leave_the_pipeline(saved, tmp_path, pipeline, change, message):
    good = saved / WEIGHTS_FILE
    tensors = {k: v.clone() for k, v in change(load_file(good)).items()}
    save_file(tensors, tmp_path / "wrong.safetensors", metadata=_metadata(good))
    before, base = _state(pipeline.transformer), _output(pipeline)
    with pytest.raises(AdapterError, match=message) as caught:
        load_adapter(pipeline, tmp_path / "wrong.safetensors")
    assert "\n" not in str(caught.value)
    assert _state(pipeline.transformer) == before and torch.equal(_output(pipeline), base)


def test_unreadable_and_missing_files(tmp_path, pipeline, saved, monkeypatch):
    empty, text = tmp_path / "empty.safetensors", tmp_path / "text.safetensors"
    save_file({}, empty)
    text.write_text("not tensors")
    for path, message in (
        (empty, "no tensors"),
        (text, "not a readable safetensors"),
        (tmp_path / "none.safetensors", "there is no adapter"),
        (tmp_path / "none", "there is no adapter"),
    ):
        with pytest.raises(AdapterError, match=message):
            load_adapter(pipeline, path)
    with pytest.raises(AdapterError, match=f"has no {WEIGHTS_FILE}"):
        load_adapter(pipeline, tmp_path)
    assert find_adapter(saved / WEIGHTS_FILE) == find_adapter(saved) == saved / WEIGHTS_FILE
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(AdapterError, match="can't get adapter nobody/nothing from the Hub") as caught:
        load_adapter(pipeline, "nobody/nothing")
    assert "\n" not in str(caught.value)


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
        folder = _save(trained, tmp_path / revision, extra_metadata={"revision": revision})
        with caplog.at_level(logging.WARNING, "phys_pipeline"):
            load_adapter(model, folder, name=f"r{revision}")
        assert ("was trained for revision" in caplog.text) is warned


def test_a_config_no_reader_knows_fails_cleanly(saved, tmp_path, pipeline):
    metadata = _metadata(saved / WEIGHTS_FILE)
    fields = {**json.loads(metadata["lora_adapter_metadata"]), "transformer.field_of_the_future": 1}
    metadata["lora_adapter_metadata"] = json.dumps(fields)
    save_file(load_file(saved / WEIGHTS_FILE), tmp_path / "new.safetensors", metadata=metadata)
    before = _state(pipeline.transformer)
    with pytest.raises(AdapterError, match="can't apply"):
        load_adapter(pipeline, tmp_path / "new.safetensors")
    assert _state(pipeline.transformer) == before


def test_failing_beside_another_adapter_keeps_it_active(saved, tmp_path, pipeline):
    load_adapter(pipeline, saved, name="first", weight=0.5)
    expected = _output(pipeline)
    metadata = _metadata(saved / WEIGHTS_FILE)
    metadata["lora_adapter_metadata"] = json.dumps({"transformer.r": 4, "transformer.nonsense": 1})
    save_file(load_file(saved / WEIGHTS_FILE), tmp_path / "bad.safetensors", metadata=metadata)
    for path in (tmp_path / "bad.safetensors", tmp_path / "none"):
        with pytest.raises(AdapterError):
            load_adapter(pipeline, path)
    assert adapter_names(pipeline.transformer) == ["first"] and torch.equal(_output(pipeline), expected)
    with pytest.raises(AdapterError, match="already has an adapter named 'first'"):
        load_adapter(pipeline, saved, name="first")
    with pytest.raises(AdapterError, match="not a number"):
        load_adapter(pipeline, saved, weight=float("nan"))


# state


def test_switching_restores_activity_strength_and_trainability(pipeline, saved):
    base = _output(pipeline)
    _fill(inject_lora(pipeline.transformer, RANK, ALPHA, seed=0))
    load_adapter(pipeline, saved, name="second", weight=0.25)
    pipeline.transformer.set_adapters(["default", "second"], [0.5, 0.25])
    pipeline.transformer.transformer_blocks[0].attn.to_q.lora_A["default"].weight.requires_grad_(False)
    expected, before = _output(pipeline), _state(pipeline.transformer)
    with pytest.raises(KeyboardInterrupt), adapter_at(pipeline.transformer, "second", 2.0):
        assert not torch.equal(_output(pipeline), expected)
        raise KeyboardInterrupt
    assert torch.equal(_output(pipeline), expected) and _state(pipeline.transformer) == before
    with adapter_at(pipeline.transformer, None):
        assert torch.equal(_output(pipeline), base)
    assert torch.equal(_output(pipeline), expected) and _state(pipeline.transformer) == before
    with adapters_kept(pipeline.transformer):
        pipeline.transformer.disable_adapters()
    assert torch.equal(_output(pipeline), expected) and _state(pipeline.transformer) == before
    with pytest.raises(AdapterError, match="no adapter named 'third'"), adapter_at(pipeline.transformer, "third"):
        pass


def test_linear_layers_look_the_same_with_and_without_adapter(pipeline):
    plain = {n: tuple(m.weight.shape) for n, m in linear_layers(pipeline.transformer).items()}
    inject_lora(pipeline.transformer, RANK)
    assert {n: tuple(m.weight.shape) for n, m in linear_layers(pipeline.transformer).items()} == plain
    assert linear_layers(nn.Linear(2, 3)).keys() == {""}


# formats


def test_formats_are_told_by_their_keys():
    assert detect_format(["transformer.transformer_blocks.0.attn.to_q.lora_A.weight"]) == "diffusers"
    assert detect_format(["transformer.single_blocks.3.linear1.lora_A.weight"]) == "tencent"
    assert detect_format(["transformer.single_transformer_blocks.3.attn.to_q.lora_A.weight"]) == "diffusers"
    assert detect_format([]) == "unknown" and detect_format(["x.lora_A.weight"]) == "unknown"
    assert "ComfyUI" in describe_format(detect_format(["diffusion_model.double_blocks.0.img_attn_qkv.lora_A.weight"]))


def test_rewritten_header_keeps_tensors_and_sorts_metadata(tmp_path):
    path = tmp_path / "x.safetensors"
    tensors = {"b": torch.arange(3.0), "a": torch.ones(2, 5, dtype=torch.bfloat16)}
    contents = set()
    for _ in range(5):
        save_file(tensors, path, metadata={"z": "1", "format": "pt", "m": "ü"})
        rewrite_header(path, {"a": "0"})
        contents.add(path.read_bytes())
    assert len(contents) == 1
    assert _metadata(path) == {"a": "0", "format": "pt", "m": "ü", "z": "1"}
    assert contents.pop()[8:].startswith('{"__metadata__":{"a":"0","format":"pt","m":"ü","z":"1"},'.encode())
    loaded = load_file(path)
    assert all(torch.equal(loaded[k], v) for k, v in tensors.items())
    assert as_loaded(tiny_pipeline()).source == "memory"
