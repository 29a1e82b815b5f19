import json
import weakref

import pytest
import torch
from safetensors.torch import load_file, save_file

from phys_pipeline.errors import ConfigError, ModelError
from phys_pipeline.models.conversion import Checkpoint, Conversion, convert, plan
from phys_pipeline.models.frame_autoencoder import FrameAutoencoder
from phys_pipeline.models.key_map import KeyMap, Rule

WIDTHS = (4, 6, 8)
KEYS = KeyMap(rules=(Rule("net.enc.{rest}", "encoder.{rest}"), Rule("net.dec.{rest}", "decoder.{rest}")), ignored=("step",))
CONVERSION = Conversion(
    part="vae",
    model_class="phys_pipeline.models.frame_autoencoder:FrameAutoencoder",
    marker="net.enc.0.weight",
    key_map=KEYS,
    config=lambda shapes, config: {
        "latent_channels": shapes["net.enc.7.weight"][0],
        "widths": list(config.get("widths", WIDTHS)),
    },
)


@pytest.fixture
def original():
    torch.manual_seed(0)
    state = FrameAutoencoder(latent_channels=5, widths=WIDTHS).state_dict()
    named = {f"net.{k.replace('encoder', 'enc').replace('decoder', 'dec')}": v.clone() for k, v in state.items()}
    return {**named, "step": torch.tensor([7])}


def same(folder, original):
    model = FrameAutoencoder.from_pretrained(folder)
    return all(torch.equal(KEYS.forward(original)[name], value) for name, value in model.state_dict().items())


def test_a_safetensors_file(original, tmp_path):
    save_file(original, tmp_path / "model.safetensors")
    folder = convert(tmp_path / "model.safetensors", tmp_path / "out", (CONVERSION,))
    assert folder == tmp_path / "out" / "vae" and same(folder, original)
    assert {p.name for p in folder.iterdir()} == {"config.json", "diffusion_pytorch_model.safetensors"}


@pytest.mark.parametrize("outer", [None, "state_dict"])
def test_a_pickle_of_plain_tensors(original, tmp_path, outer):
    torch.save(original if outer is None else {outer: original, "epoch": 3}, tmp_path / "model.pt")
    assert same(convert(tmp_path, tmp_path / "out", (CONVERSION,)), original)


def test_shards_in_and_out_and_never_more_than_one_in_memory(original, tmp_path, monkeypatch):
    names = list(original)
    save_file({n: original[n] for n in names[:9]}, tmp_path / "a-00001.safetensors")
    save_file({n: original[n] for n in names[9:]}, tmp_path / "a-00002.safetensors")
    alive, most = [0], [0]
    from phys_pipeline.models import conversion

    saved = conversion.save_file

    def watched(tensors, *arguments, **keywords):
        for value in tensors.values():
            alive[0] += value.nbytes
            weakref.finalize(value, lambda size: alive.__setitem__(0, alive[0] - size), value.nbytes)
        most[0] = max(most[0], alive[0])
        return saved(tensors, *arguments, **keywords)

    monkeypatch.setattr(conversion, "save_file", watched)
    folder = convert(tmp_path, tmp_path / "out", (CONVERSION,), shard_bytes=4000)
    index = json.loads((folder / "diffusion_pytorch_model.safetensors.index.json").read_text())
    shards = sorted(folder.glob("*.safetensors"))
    assert len(shards) > 2 and same(folder, original) and alive[0] == 0
    largest = max(value.nbytes for value in original.values())
    assert most[0] <= max(4000, largest) < index["metadata"]["total_size"] / 2
    assert all(set(load_file(s)) == {k for k, v in index["weight_map"].items() if v == s.name} for s in shards)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"net.other.weight": (3,)}, r"doesn't know: net\.other\.weight"),
        ({"net.enc.3.first.weight": None}, r"lacks encoder\.3\.first\.weight"),
        ({"net.enc.99.weight": (3,)}, r"gives encoder\.99\.weight, for which"),
        ({"net.dec.0.weight": (8, 5, 3, 3)}, r"decoder\.0\.weight \(8, 5, 3, 3\) instead of \(8, 5, 1, 1\)"),
        ({"net.enc.0.weight": None}, r"not of this family: it holds .* and none of net\.enc\.0\.weight \(vae\)"),
    ],
)
def test_what_is_not_exactly_the_model_is_named_and_nothing_is_written(original, tmp_path, change, message):
    tensors = original | {name: torch.zeros(shape) for name, shape in change.items() if shape is not None}
    save_file({n: v for n, v in tensors.items() if change.get(n, ()) is not None}, tmp_path / "model.safetensors")
    with pytest.raises(ConfigError, match=message):
        convert(tmp_path, tmp_path / "out", (CONVERSION,))
    assert not (tmp_path / "out").exists()


def test_planning_allocates_nothing(original):
    shapes = {name: tuple(value.shape) for name, value in original.items()}
    steps, made, settings = plan(shapes, {}, CONVERSION)
    assert len(steps) == len(made) == len(original) - 1 and settings["latent_channels"] == 5


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("model.safetensors", b"not weights", "can't read .*model.safetensors"),
        ("model.pt", b"not weights", "as plain tensors"),
        ("model.gguf", b"x", "unknown ending"),
        (None, b"", "no checkpoint at"),
    ],
)
def test_unreadable_sources(tmp_path, file, content, message):
    if file is not None:
        (tmp_path / file).write_bytes(content)
    with pytest.raises(ModelError, match=message), Checkpoint.open(tmp_path / (file or "nothing")):
        pass


def test_a_pickle_that_would_run_code_is_refused(tmp_path):
    class Evil:
        def __reduce__(self):
            return (print, ("code ran",))

    torch.save({"a": Evil()}, tmp_path / "model.pt")
    with pytest.raises(ModelError, match="as plain tensors"), Checkpoint.open(tmp_path / "model.pt"):
        pass
    torch.save({"a": 3}, tmp_path / "model.pt")
    with pytest.raises(ModelError, match="not a state dict"), Checkpoint.open(tmp_path / "model.pt"):
        pass


def test_the_same_tensor_in_two_files_is_refused(original, tmp_path):
    for name in ("a", "b"):
        save_file(original, tmp_path / f"{name}.safetensors")
    with pytest.raises(ModelError, match="twice"), Checkpoint.open(tmp_path):
        pass
