"""Safetensors headers: read with checks, and the same bytes for the same content."""

import torch
from safetensors.torch import load_file, save_file
from tiny_adapter import stored_metadata

from phys_pipeline.adapters.files import json_object, read_header, read_tensors, rewrite_header, shown, write_tensors


def test_rewritten_header_keeps_tensors_and_sorts_metadata(tmp_path):
    path = tmp_path / "x.safetensors"
    tensors = {"b": torch.arange(3.0), "a": torch.ones(2, 5, dtype=torch.bfloat16)}
    contents = set()
    for _ in range(5):
        save_file(tensors, path, metadata={"z": "1", "format": "pt", "m": "ü"})
        rewrite_header(path, {"a": "0"})
        contents.add(path.read_bytes())
    assert len(contents) == 1
    assert stored_metadata(path) == {"a": "0", "format": "pt", "m": "ü", "z": "1"}
    assert contents.pop()[8:].startswith('{"__metadata__":{"a":"0","format":"pt","m":"ü","z":"1"},'.encode())
    loaded = load_file(path)
    assert all(torch.equal(loaded[k], v) for k, v in tensors.items())


def test_header_says_what_the_tensors_are(tmp_path):
    path = tmp_path / "x.safetensors"
    write_tensors(path, {"b": torch.ones(2, 3), "a": torch.ones(4, dtype=torch.float16), "c": torch.ones(())}, {"k": "v"})
    header = read_header(path)
    assert {name: (entry.dtype, entry.shape) for name, entry in header.tensors.items()} == {
        "a": ("F16", (4,)), "b": ("F32", (2, 3)), "c": ("F32", ()),
    }  # fmt: skip
    assert header.metadata == {"format": "pt", "k": "v"}
    assert header.size + sum(entry.end - entry.start for entry in header.tensors.values()) == path.stat().st_size
    assert list(read_tensors(path, {"b": None})) == ["b"] and set(read_tensors(path)) == {"a", "b", "c"}


def test_texts_from_files_are_safe_to_use():
    assert shown("a\n\x1b[31mb") == r"a\n\x1b[31mb" and len(shown("x" * 1000)) == 100
    assert json_object('{"a": 1}') == {"a": 1} and json_object("[1]") == json_object("{") == json_object("[" * 100_000) == {}


def test_header_lengths_that_look_like_a_pickle_are_no_pickle(tmp_path):
    """A header of 640 bytes begins with 80 02, as pickles do."""
    save_file({"x": torch.zeros(2)}, tmp_path / "a.safetensors")
    content = (tmp_path / "a.safetensors").read_bytes()
    length = int.from_bytes(content[:8], "little")
    for prefix in (0x0280, 0x0380, 0x0480, 0x0580, 0x8B1F):
        padded = prefix.to_bytes(8, "little") + content[8 : 8 + length].ljust(prefix) + content[8 + length :]
        (tmp_path / "b.safetensors").write_bytes(padded)
        assert list(read_header(tmp_path / "b.safetensors").tensors) == ["x"]
