import json
import logging

import pytest
import torch
from safetensors import safe_open
from tiny import save_tiny

from phys_pipeline.errors import DataError
from phys_pipeline.media import Video, write_video
from training.cache import (
    TensorCache,
    collect,
    content_key,
    latents_key,
    text_key,
    weights_identity,
)
from training.config import TrainConfig
from training.encoding import encode_caption, encode_clip
from training.filling import prepare_dataset
from training.sources import Skipped, find_clips


@pytest.fixture
def settings(tmp_path):
    data = tmp_path / "clips"
    data.mkdir()
    for i, name in enumerate(["one", "two"]):
        frames = torch.full((3, 6, 16, 16), 0.25 * (i + 1))
        write_video(data / f"{name}.mp4", Video.from_tensor(frames, 8.0))
        (data / f"{name}.txt").write_text(f"clip {name}")
    return {"data": str(data), "cache_dir": str(tmp_path / "cache"), "frames": 4, "height": 16, "width": 16, "fps": 8.0}


class Encoders:
    """Stand-ins that count: latents are the mean brightness, text is the caption's length."""

    def __init__(self):
        self.windows, self.captions = 0, []

    def video(self, pixels):
        self.windows += len(pixels)
        return pixels.mean(dim=(1, 3, 4))[:, None, :, None, None]

    def text(self, captions):
        self.captions += captions
        return {"embeds": torch.tensor([[float(len(c))] for c in captions]), "mask": torch.ones(len(captions), 2)}


def fill(settings, encoders, vae="vae0", text="text0", **changes):
    config = TrainConfig(**{**settings, **changes})
    clips, skipped = find_clips(config)
    folder = TensorCache(f"{config.cache_dir}/latents"), TensorCache(f"{config.cache_dir}/text")
    outcomes = [encode_clip(clip, folder[0], config, vae, encoders.video) for clip in clips]
    more = [Skipped(clip.name, o.reason) for clip, o in zip(clips, outcomes, strict=True) if o.status == "skipped"]
    spoken = [encode_caption(c, folder[1], config, text, encoders.text) for c in [*(c.caption for c in clips), ""]]
    encoded, said = (sum(o.status == "encoded" for o in found) for found in (outcomes, spoken))
    return encoded, said, collect(clips, skipped + more, config, vae, text)


def test_second_run_encodes_nothing_and_reads_the_same(settings):
    encoders = Encoders()
    assert fill(settings, encoders)[:2] == (2, 3)
    encoded, spoken, dataset = fill(settings, encoders)
    assert (encoded, spoken) == (0, 0) and encoders.windows == 2
    assert [s.name for s in dataset.samples] == ["one.mp4", "two.mp4"]
    assert dataset.clean(0).shape == (1, 4, 1, 1) and dataset.clean(0).dtype == torch.float32
    assert dataset.clean(1).mean() == pytest.approx(0.5, abs=0.02)
    assert dataset.conditioning(0)["embeds"].item() == len("clip one")
    assert dataset.conditioning(0, drop=True)["embeds"].item() == 0


@pytest.mark.parametrize("room", [0, 1 << 20])
def test_samples_stay_in_memory_while_there_is_room(settings, monkeypatch, room):
    monkeypatch.setattr("training.cache._KEPT_BYTES", room)
    dataset = fill(settings, Encoders())[2]
    first = [(dataset.clean(i), dataset.conditioning(i)["embeds"]) for i in (0, 1)]
    for cache in (dataset.latents, dataset.text):
        for file in cache.folder.rglob("*.safetensors"):
            file.unlink()
    if not room:
        with pytest.raises(FileNotFoundError):
            dataset.clean(0)
        return
    for index, (latents, embeds) in enumerate(first):
        assert torch.equal(dataset.clean(index), latents) and torch.equal(dataset.conditioning(index)["embeds"], embeds)
    assert not torch.equal(first[0][0], first[1][0])


def test_only_what_changed_is_encoded_again(settings, tmp_path):
    encoders = Encoders()
    fill(settings, encoders)
    (tmp_path / "clips" / "one.txt").write_text("new words")
    assert fill(settings, encoders)[:2] == (0, 1) and encoders.captions[-1] == "new words"
    write_video(tmp_path / "clips" / "two.mp4", Video.from_tensor(torch.zeros(3, 6, 16, 16), 8.0))
    assert fill(settings, encoders)[:2] == (1, 0)
    (tmp_path / "clips" / "two.mp4").touch()
    assert fill(settings, encoders)[:2] == (0, 0)  # bytes count, not dates
    changes = ({"height": 32}, {"fps": 7.9}, {"frames": 5}, {"frame_extraction": "head"}, {"vae_precision": "bf16"})
    for change in changes:
        assert fill(settings, encoders, **change)[:2] == (2, 0), change
    assert fill(settings, encoders, vae="vae1")[:2] == (2, 0)
    assert fill(settings, encoders, text="text1")[:2] == (0, 3)
    assert fill(settings, encoders, precision="fp32")[:2] == (0, 3)
    assert fill(settings, encoders)[:2] == (0, 0)  # and the first entries are still there


def test_settings_that_do_not_touch_the_data_keep_the_key(settings):
    clips, _ = find_clips(TrainConfig(**settings))
    changes = ({}, {"rank": 4}, {"motion_weight": 0.5}, {"window_stride": 3}, {"cache_dir": "elsewhere"}, {"precision": "fp32"})
    assert len({latents_key(clips[0], TrainConfig(**{**settings, **change}), "v") for change in changes}) == 1
    assert text_key("a", TrainConfig(**settings), "t") == text_key("a", TrainConfig(**{**settings, "fps": 4}), "t")


def test_several_windows_become_samples(settings):
    dataset = fill(settings, Encoders(), frame_extraction="sliding", window_stride=1)[2]
    assert [s.name for s in dataset.samples] == [f"{n}.mp4#{w}" for n in ("one", "two") for w in range(3)]
    assert len(dataset) == 6 and dataset.clean(5).shape == (1, 4, 1, 1)


def test_samples_know_their_bucket(settings, tmp_path):
    write_video(tmp_path / "clips" / "three.mp4", Video.from_tensor(torch.zeros(3, 6, 16, 32), 8.0))
    (tmp_path / "clips" / "three.txt").write_text("a wide one")

    def encode(pixels):
        return pixels[:, :1, :, ::8, ::8]

    config = TrainConfig(**{**settings, "buckets": [[4, 16, 16], [3, 16, 32]]})
    clips, skipped = find_clips(config)
    for clip in clips:
        encode_clip(clip, TensorCache(f"{config.cache_dir}/latents"), config, "v", encode)
    dataset = collect(clips, skipped, config, "v", "t")
    assert [(s.name, s.bucket, s.frames) for s in dataset.samples] == [("one.mp4", 0, 4), ("three.mp4", 1, 3), ("two.mp4", 0, 4)]
    assert dataset.clean(1).shape == (1, 3, 2, 4) and dataset.bucket_of == (0, 1, 0)
    keys = {
        latents_key(clips[0], c, "v") for c in (config, TrainConfig(**settings), TrainConfig(**{**settings, "buckets": "auto"}))
    }
    assert len(keys) == 3


def test_large_frames_are_encoded_in_tiles_one_window_at_a_time_by_default(tmp_path, monkeypatch):
    """Tiles and whole frames differ at the seams, so they have entries of their own."""
    from phys_pipeline.families import get_family

    save_tiny(tmp_path / "model")
    (tmp_path / "clips").mkdir()
    noise = torch.rand(3, 10, 48, 48, generator=torch.Generator().manual_seed(0))
    write_video(tmp_path / "clips" / "large.mp4", Video.from_tensor(noise, 8.0))
    (tmp_path / "clips" / "large.txt").write_text("noise")
    common = {"model": str(tmp_path / "model"), "data": str(tmp_path / "clips"), "cache_dir": str(tmp_path / "cache")}
    common |= {"frames": 5, "height": 48, "width": 48, "frame_extraction": "sliding", "window_stride": 5}
    family, keys = get_family("hunyuan_video"), []
    load = family.load

    def load_watched(part, *arguments, **options):
        model = load(part, *arguments, **options)
        if part == "vae":
            model.tile_sample_min_height = model.tile_sample_min_width = 32  # 256 in earnest
            model.tile_sample_stride_height = model.tile_sample_stride_width = 24
            model.encoder.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].shape))
        return model

    monkeypatch.setattr(family, "load", load_watched)
    for changes, largest in (({}, 32), ({"vae_tiling": False}, 48)):
        seen: list[torch.Size] = []
        dataset, _ = prepare_dataset(TrainConfig(**common, **changes), family, device=torch.device("cpu"))
        assert len(dataset) == 2 and {shape[0] for shape in seen} == {1}
        assert max(max(shape[-2:]) for shape in seen) == largest
        keys.append(dataset.samples[0].latents)
    assert len(set(keys)) == 2


def test_damaged_entry_is_encoded_again(settings, caplog):
    encoders = Encoders()
    _, _, dataset = fill(settings, encoders)
    file = dataset.latents.path(dataset.samples[0].latents)
    file.write_bytes(file.read_bytes()[:20])
    with caplog.at_level(logging.WARNING):
        assert fill(settings, encoders)[0] == 1
    assert "damaged" in caplog.text
    assert not [p for p in file.parent.iterdir() if "partial" in p.name]


def test_entry_says_what_it_is(settings):
    _, _, dataset = fill(settings, Encoders())
    with safe_open(dataset.latents.path(dataset.samples[0].latents), "pt") as reader:
        assert json.loads(reader.metadata()["about"])["clip"] == "one.mp4"


def test_no_usable_clip_lists_every_reason(settings):
    with pytest.raises(DataError) as caught:
        fill(settings, Encoders(), frames=9)
    message = str(caught.value)
    assert "one.mp4: too short" in message and "two.mp4: too short" in message and "\n" not in message
    with pytest.raises(DataError, match="holds no clip"):
        collect([], [], TrainConfig(**settings), "v", "t")


def test_an_entry_that_another_machine_keeps_to_itself_is_an_error(settings):
    _, _, dataset = fill(settings, Encoders())
    dataset.latents.path(dataset.samples[1].latents).unlink()
    with pytest.raises(DataError, match=r"two\.mp4 was encoded but is not in .*share one cache_dir"):
        collect(dataset.clips, [], TrainConfig(**settings), "vae0", "text0")


def test_weights_identity_sees_every_kind_of_change(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    big = tmp_path / "weights.safetensors"
    big.write_bytes(bytes(5 << 20))
    first = weights_identity(tmp_path)
    assert weights_identity(tmp_path) == first
    with big.open("r+b") as stream:  # a retrained model differs everywhere, also in the last sampled chunk
        stream.seek(-1, 2)
        stream.write(b"\x01")
    second = weights_identity(tmp_path)
    (tmp_path / "config.json").write_text("{ }")
    assert len({first, second, weights_identity(tmp_path)}) == 3


def test_content_key_does_not_depend_on_order():
    assert content_key(a=1, b=[2]) == content_key(b=[2], a=1) != content_key(a=1, b=[3])
