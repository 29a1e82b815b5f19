"""About two hundred files that someone might hand us, each refused in one line before anything of it is used."""

import json
import pickle
import random
import resource
import struct
import zipfile
from pathlib import Path

import pytest
import torch
from tiny_adapter import output, state

from phys_pipeline.adapters import load_adapter
from phys_pipeline.adapters.command import main
from phys_pipeline.adapters.formats import WEIGHTS_FILE
from phys_pipeline.errors import AdapterError

MEMORY = 400  # MB that all of them together may add to the process's peak


class Marker:
    """Unpickling it writes a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.write_text, (self.path, "executed")


class Writer:
    """Damaged copies of one good file; each is written over the last one."""

    def __init__(self, good, folder, marker):
        raw = good.read_bytes()
        (length,) = struct.unpack("<Q", raw[:8])
        self.raw, self.header, self.data = raw, raw[8 : 8 + length], raw[8 + length :]
        self.folder, self.marker, self.random = folder, marker, random.Random(0)

    def bytes(self, content, name="x.safetensors"):
        (self.folder / name).write_bytes(content)
        return self.folder / name

    def text(self, header, data=None):
        return self.bytes(struct.pack("<Q", len(header)) + header + (self.data if data is None else data))

    def changed(self, change, data=None):
        """The file with ``change`` applied to its parsed header; ``change`` is given the header and one tensor's name."""
        content = json.loads(self.header)
        name = self.random.choice([key for key in content if key != "__metadata__"])
        change(content, name)
        return self.text(json.dumps(content).encode(), data)

    def field(self, key, value):
        return self.changed(lambda content, name: content[name].__setitem__(key, value))

    def setting(self, **values):
        def change(content, _):
            stored = json.loads(content["__metadata__"]["lora_adapter_metadata"])
            stored |= {f"transformer.{name}": value for name, value in values.items()}
            content["__metadata__"]["lora_adapter_metadata"] = json.dumps(stored)

        return self.changed(change)

    def renamed(self, new):
        return self.changed(lambda content, name: content.__setitem__(new, content.pop(name)))

    def tensor(self, change):
        """One tensor replaced; shapes and places of the others are kept."""
        from safetensors.torch import load, save

        tensors = load(self.raw)
        name = self.random.choice(sorted(tensors))
        tensors[name] = change(tensors[name].clone())
        metadata = json.loads(self.header)["__metadata__"]
        return self.bytes(save({key: value.contiguous() for key, value in tensors.items()}, metadata=metadata))

    def sparse(self, size, header):
        """A file that pretends to be large; it takes no room on the disk."""
        path = self.text(header, b"")
        with path.open("r+b") as file:
            file.truncate(8 + len(header) + size)
        return path


def filled(value, position):
    return lambda tensor: tensor.view(-1).index_fill(0, torch.tensor([position % tensor.numel()]), value).view(tensor.shape)


def zip_bomb(path):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", bytes(64 << 20))
    return path


NAMES = [
    "../../../../tmp/x.lora_A.weight", "/etc/passwd", "transformer.../../x.lora_A.weight", "C:\\x.lora_A.weight",
    "\\\\host\\share", "transformer.a\x00b.lora_A.weight", "transformer.\x1b[31m.lora_A.weight", "transformer.\n.lora_A.weight",
    "__class__", "transformer.__init__.lora_A.weight", "transformer.transformer_blocks.0.attn.__dict__.lora_A.weight", "",
    "transformer.transformer_blocks.99999999999999999999.attn.to_q.lora_A.weight", "transformer." + "x" * 100_000,
    "transformer.transformer_blocks.0.attn.to_q.lora_magnitude_vector", "transformer.transformer_blocks.0.attn.to_q.lokr_w1",
    "transformer.transformer_blocks.0.attn.to_q.lora_A.bias", "..", "~/x", "%2e%2e%2fx", "lora_unet_..", "diffusion_model.../x",
]  # fmt: skip
NUMBERS = [-1, 1 << 40, 1 << 63, 1 << 200, 1.5, "8", None, True, [1], float("nan"), float("inf")]
LAYOUTS = [[0, 1 << 40], [-8, 8], [8, 0], [1 << 62, 1 << 63], [0, 0], [0], [], None, "0", [0.0, 80.0], [0, 80, 160], {"0": 1}]


def hostile(w):
    """Pairs of a label and a function that writes the file."""
    for i in range(40):
        at = w.random.randrange(len(w.raw)) if i > 9 else i
        yield f"cut at {at}", lambda at=at: w.bytes(w.raw[:at])
    for extra in (1, 8, 4096):
        yield f"{extra} bytes more", lambda extra=extra: w.bytes(w.raw + bytes(extra))
    for length in (0, 1, len(w.header) - 1, len(w.header) + 8, len(w.raw), 1 << 24, 1 << 32, (1 << 64) - 1):
        yield f"header of {length}", lambda length=length: w.bytes(struct.pack("<Q", length) + w.raw[8:])
    for dtype in ("I32", "I64", "I8", "U8", "BOOL", "F8_E4M3", "F8_E5M2", "F33", "", "F64", "F16", "C64", 7, None, ["F32"]):
        yield f"type {dtype!r}", lambda dtype=dtype: w.field("dtype", dtype)
    for dtype in (torch.int32, torch.int64, torch.uint8, torch.bool, torch.float8_e4m3fn):
        yield f"all {dtype}", lambda dtype=dtype: w.tensor(lambda tensor: tensor.to(dtype))
    for value in (float("nan"), float("inf"), -float("inf")):
        for position in range(5):
            yield f"{value} at {position}", lambda v=value, p=position: w.tensor(filled(v, w.random.randrange(1000) + p))
    for name in NAMES:
        yield f"name {name[:30]!r}", lambda name=name: w.renamed(name)
    for shape in (
        [],
        [1],
        [1 << 40, 1 << 40],
        [0, 1 << 62],
        [4, -20],
        [1] * 9,
        [1] * 100_000,
        "4x20",
        None,
        [4.0, 20.0],
        [[4], [20]],
    ):
        yield f"shape {str(shape)[:30]}", lambda shape=shape: w.field("shape", shape)
    for index, change in enumerate((
        lambda t: t.T, lambda t: t[None], lambda t: t.flatten(), lambda t: torch.cat([t, t]), lambda t: torch.cat([t, t], 1),
        lambda t: t[:1], lambda t: t[:, :1], lambda t: t[:0], lambda t: t[:, :0], lambda t: t.repeat(3, 3),
    )):  # fmt: skip
        for _ in range(2):
            yield f"wrong shape {index}", lambda change=change: w.tensor(change)
    for layout in LAYOUTS:
        yield f"place {layout}", lambda layout=layout: w.field("data_offsets", layout)
    yield "overlap", lambda: w.changed(overlap)
    yield "gap", lambda: w.changed(lambda content, name: content.pop(name))
    for number in (*NUMBERS, 0, 3, 10**9):
        yield f"rank {number}", lambda number=number: w.setting(r=number)
        yield f"rank of one {number}", lambda number=number: w.setting(rank_pattern={"to_q": number})
    for number in (1 << 2000, "8", None, True, float("nan"), float("inf")):
        yield f"alpha {str(number)[:9]}", lambda number=number: w.setting(lora_alpha=number)
    for config in (
        {"use_dora": True}, {"lora_bias": True}, {"alpha_pattern": {"(a+)+$": 1}}, {"rank_pattern": {"[": 1}},
        {"no_such_field": 1}, {"rank_pattern": "x"}, {"alpha_pattern": [[1]]},
    ):  # fmt: skip
        yield f"settings {config}", lambda config=config: w.setting(**config)
    for text in (b"", b"{", b"[]", b"1", b"null", b"\xff\xfe", b'"x"', b"[" * 200_000, b'{"a":' * 100_000, b'{"a":1}', b"{}",
                 w.header.replace(b"lora_A", b"lora_B"), w.header.replace(b'"format":"pt"', b'"format":7'),
                 b'{"__metadata__":[]}',
                 json.dumps({f"t{i}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for i in range(30_000)}).encode(),
                 b'{"x":"' + b"a" * (17 << 20) + b'"}'):  # fmt: skip
        yield f"header {text[:20]}", lambda text=text: w.text(text)
    entry = {"dtype": "F32", "shape": [1 << 28, 2], "data_offsets": [0, 1 << 31]}
    large = json.dumps({"transformer.transformer_blocks.0.attn.to_q.lora_A.weight": entry}).encode()
    yield "two pretended gigabytes", lambda: w.sparse(1 << 31, large)
    yield "nine pretended gigabytes", lambda: w.sparse(9 << 30, large)
    for protocol in range(6):
        evil = pickle.dumps({"lora_A": Marker(w.marker)}, protocol=protocol)
        for ending in (".pt", ".bin", ".ckpt", ".safetensors"):
            yield f"pickle {protocol}{ending}", lambda e=evil, n=f"p{ending}": w.bytes(e, n)
    yield "torch file", lambda: torch.save({"lora_A": Marker(w.marker)}, w.folder / "t.pt") or w.folder / "t.pt"
    yield "zip bomb", lambda: zip_bomb(w.folder / "bomb.safetensors")
    yield "folder", lambda: (w.folder / "d.safetensors").mkdir(exist_ok=True) or w.folder / "d.safetensors"


def overlap(content, name):
    other = next(key for key in content if key not in ("__metadata__", name))
    content[other]["data_offsets"] = [n + 8 for n in content[name]["data_offsets"]]


@pytest.mark.slow
def test_every_hostile_file_is_refused_in_one_line(saved, pipeline, tmp_path, capsys):
    marker = tmp_path / "executed"
    before, base = state(pipeline.transformer), output(pipeline)
    count, wrong = 0, []
    for label, write in hostile(Writer(saved / WEIGHTS_FILE, tmp_path, marker)):
        if count == 0:
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        count += 1
        path = write()
        try:
            load_adapter(pipeline, path)
            wrong.append(f"{label}: applied")
        except AdapterError as error:
            text = str(error)
            if "\n" in text or not text.isprintable() or len(text) > 600:
                wrong.append(f"{label}: {text[:700]!r}")
        except BaseException as error:
            wrong.append(f"{label}: {type(error).__name__}: {str(error)[:200]}")
        try:  # the command says so too, unless only the model shows it
            if main(["inspect", str(path)]) == 0 and "shape" not in label:
                wrong.append(f"{label}: inspected without a problem")
        except AdapterError:
            pass
        except BaseException as error:
            wrong.append(f"{label}: inspect: {type(error).__name__}: {str(error)[:200]}")
    capsys.readouterr()
    assert not wrong, "\n".join(wrong)
    assert count >= 200 and not marker.exists()
    assert state(pipeline.transformer) == before and torch.equal(output(pipeline), base)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak < MEMORY * 1024
