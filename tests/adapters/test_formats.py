"""What an adapter file is told to be, and what is said about those that can't be used."""

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_adapter import output, state, stored_metadata

from phys_pipeline.adapters import find_adapter, load_adapter
from phys_pipeline.adapters.formats import WEIGHTS_FILE, describe_format, detect_format
from phys_pipeline.errors import AdapterError


def test_formats_are_told_by_their_keys():
    assert detect_format(["transformer.transformer_blocks.0.attn.to_q.lora_A.weight"]) == "diffusers"
    assert detect_format(["transformer.single_blocks.3.linear1.lora_A.weight"]) == "tencent"
    assert detect_format(["transformer.single_transformer_blocks.3.attn.to_q.lora_A.weight"]) == "diffusers"
    assert detect_format([]) == "unknown" and detect_format(["x.lora_A.weight"]) == "unknown"
    assert "ComfyUI" in describe_format(detect_format(["diffusion_model.double_blocks.0.img_attn_qkv.lora_A.weight"]))


def _rename(tensors, function):
    return {function(k): v for k, v in tensors.items()}


WRONG = {
    "sd": (lambda t: _rename(t, lambda k: "unet." + k.removeprefix("transformer.")), "Stable Diffusion"),
    "tencent": (lambda t: _rename(t, lambda k: k.replace("transformer_blocks", "double_blocks")), "Tencent"),
    "weights": (lambda t: _rename(t, lambda k: k.replace(".lora_A", "").replace(".lora_B", "_2")), "not an adapter"),
    "lokr": (lambda t: _rename(t, lambda k: k.replace("lora_A.weight", "lokr_w1").replace("lora_B.weight", "lokr_w2")), "LoKr"),
    "dora": (lambda t: {**t, "transformer.transformer_blocks.0.attn.to_q.lora_magnitude_vector": torch.ones(20)}, "DoRA"),
    "half": (lambda t: {k: v for k, v in t.items() if not k.endswith("to_q.lora_B.weight")}, "lacks lora_B"),
    "alpha keys": (lambda t: {**t, "transformer.transformer_blocks.0.attn.to_q.alpha": torch.ones(())}, "alpha 1 .* and 10 in"),
    "stray": (lambda t: {**t, "transformer.transformer_blocks.0.attn.to_q.bias": torch.ones(2)}, "1 of 23 tensors"),
    "nan": (lambda t: {k: v * float("nan") for k, v in t.items()}, "NaN or infinity"),
    "deeper": (
        lambda t: {**t, **_rename(t, lambda k: k.replace(".0.attn", ".7.attn"))},
        r"11 of its 22 layers.*single_transformer_blocks\.7\.attn\.to_k; it was trained for hunyuanvideo-community",
    ),
    "wider": (
        lambda t: {k: v.repeat((1, 2) if "lora_A" in k else (2, 1)) for k, v in t.items()},
        r"is 20x20 here and 40x40 in the file.*trained for hunyuanvideo-community",
    ),
}


@pytest.mark.parametrize(("change", "message"), WRONG.values(), ids=WRONG.keys())
def test_wrong_files_name_the_reason_and_leave_the_pipeline(saved, tmp_path, pipeline, change, message):
    good = saved / WEIGHTS_FILE
    tensors = {k: v.clone() for k, v in change(load_file(good)).items()}
    save_file(tensors, tmp_path / "wrong.safetensors", metadata=stored_metadata(good))
    before, base = state(pipeline.transformer), output(pipeline)
    with pytest.raises(AdapterError, match=message) as caught:
        load_adapter(pipeline, tmp_path / "wrong.safetensors")
    assert "\n" not in str(caught.value)
    assert state(pipeline.transformer) == before and torch.equal(output(pipeline), base)


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
