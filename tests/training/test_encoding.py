import json

import pytest
import torch
from training_run import make_base

from phys_pipeline.errors import ConfigError, ModelError
from phys_pipeline.media import Video, write_video
from training.cache import TensorCache, latents_key
from training.config import TrainConfig
from training.encoding import Outcome, do_in_worker, encode_caption, encode_clip, make_encoder
from training.sources import Clip, find_clips


@pytest.fixture
def clip(tmp_path):
    write_video(tmp_path / "one.mp4", Video.from_tensor(torch.full((3, 6, 16, 16), 0.25), 8.0))
    return Clip(tmp_path / "one.mp4", "one.mp4", "a grey square", "digest")


SETTINGS = {"frames": 4, "height": 16, "width": 16, "fps": 8.0}


def brightness(pixels):
    return pixels.mean(dim=(1, 3, 4))[:, None, :, None, None]


def test_a_clip_is_encoded_once_and_its_windows_are_counted(clip, tmp_path):
    config = TrainConfig(**SETTINGS, frame_extraction="sliding", window_stride=1)
    cache = TensorCache(tmp_path / "cache")
    assert encode_clip(clip, cache, config, "v", brightness) == Outcome("encoded", 3)
    assert encode_clip(clip, cache, config, "v", None) == Outcome("reused", 3)
    long = TrainConfig(**{**SETTINGS, "frames": 9})
    assert encode_clip(clip, cache, long, "v", None) == Outcome("skipped", 0, "too short: 6 frames at 8 fps, needs 9")


def test_latents_must_be_finite(clip, tmp_path):
    config, cache = TrainConfig(**SETTINGS), TensorCache(tmp_path / "cache")
    with pytest.raises(ModelError, match=r"one\.mp4.*not finite"):
        encode_clip(clip, cache, config, "v", lambda pixels: brightness(pixels) / 0)
    assert not cache.has(latents_key(clip, config, "v"))


def test_a_caption_without_tokens_is_refused(tmp_path):
    with pytest.raises(ModelError, match="no token"):
        encode_caption("x", TensorCache(tmp_path), TrainConfig(), "t", lambda captions: {"mask": torch.zeros(len(captions), 2)})


def test_the_encoder_of_a_process_is_loaded_once_and_its_errors_are_results(tmp_path):
    base = make_base(tmp_path, clips=2, frames=5)
    config = TrainConfig(
        **SETTINGS | {"frames": 5}, model=str(base / "model"), data=str(base / "clips"), cache_dir=str(base / "c")
    )
    settings = json.dumps(config.to_dict())
    encoder = make_encoder(settings)
    assert make_encoder(settings) is encoder
    clips, _ = find_clips(config)
    assert encoder.cached("clip", clips[0]) is None and encoder.cached("caption", "a ball") is None
    assert do_in_worker(settings, "clip", clips[0]) == Outcome("encoded", 1) and encoder.cached("clip", clips[0]).windows == 1
    assert do_in_worker(settings, "caption", "a ball") == Outcome("encoded") == do_in_worker(settings, "caption", "a bar")
    assert encoder.cached("caption", "a ball") == Outcome("reused") == do_in_worker(settings, "caption", "a ball")
    assert encoder.cached("digest", clips[0].path) == clips[0].digest == do_in_worker(settings, "digest", clips[0].path)
    error = do_in_worker(json.dumps({**config.to_dict(), "frames": 6}), "clip", clips[0])
    assert isinstance(error, ConfigError) and "6 frames do not fit hunyuan_video, which takes 4k+1: use 5 or 9" in str(error)
