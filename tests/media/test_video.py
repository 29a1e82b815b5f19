"""The Video type: validation, tensors, resampling."""

import subprocess
import sys

import numpy as np
import pytest
import torch

from phys_pipeline.errors import MediaError
from phys_pipeline.media import Video, resample


def numbered(count, fps, times=None):
    """Frame k is filled with the value k."""
    frames = np.zeros((count, 2, 3, 3), np.uint8) + np.arange(count, dtype=np.uint8)[:, None, None, None]
    if times is None:
        return Video.from_frames(frames, fps)
    return Video(frames, np.asarray(times, np.float64), fps)


def test_importing_media_loads_no_torch():
    code = "import sys, phys_pipeline.media as m; assert 'torch' not in sys.modules; assert callable(m.overlay); m.CORRUPTIONS"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_properties():
    video = numbered(8, 4.0)
    assert (len(video), video.height, video.width, video.fps) == (8, 2, 3, 4.0)
    assert video.duration == pytest.approx(2.0)
    np.testing.assert_allclose(video.timestamps, np.arange(8) / 4)


def test_tensor_round_trip_is_exact():
    frames = np.random.default_rng(0).integers(0, 256, (5, 4, 6, 3), dtype=np.uint8)
    video = Video.from_frames(frames, 7.5, "here")
    tensor = video.to_tensor()
    assert tensor.shape == (1, 3, 5, 4, 6) and tensor.dtype == torch.float32 and tensor.is_contiguous()
    assert tensor[0, 2, 3, 1, 5].item() == pytest.approx(frames[3, 1, 5, 2] / 255)
    for batch in (tensor, tensor[0], tensor.double()):
        back = Video.from_tensor(batch, 7.5, "here")
        np.testing.assert_array_equal(back.frames, frames)
        assert (back.fps, back.source) == (7.5, "here")


def test_from_tensor_rounds_and_clips():
    video = Video.from_tensor(torch.tensor([-1.0, 0.5, 2.0]).reshape(3, 1, 1, 1), 1.0)
    assert video.frames.ravel().tolist() == [0, 128, 255]


@pytest.mark.parametrize(
    "tensor",
    [torch.zeros(2, 3, 4, 8, 8), torch.zeros(4, 4, 8, 8), torch.zeros(3, 8, 8), torch.zeros(3, 4, 8, 8, dtype=torch.uint8)],
)
def test_from_tensor_rejects_other_shapes(tensor):
    with pytest.raises(MediaError, match="expected a float tensor"):
        Video.from_tensor(tensor, 8)


def test_from_tensor_rejects_nan():
    with pytest.raises(MediaError, match="NaN"):
        Video.from_tensor(torch.full((3, 1, 2, 2), float("nan")), 8)


def test_construction_rejects_bad_input():
    frames = np.zeros((2, 4, 4, 3), np.uint8)
    with pytest.raises(MediaError, match="uint8"):
        Video(frames.astype(np.float32), np.array([0.0, 1.0]), 1.0)
    with pytest.raises(MediaError, match="at least one frame"):
        Video.from_frames(frames[:0], 1.0)
    with pytest.raises(MediaError, match="increase strictly"):
        Video(frames, np.array([0.0, 0.0]), 1.0)
    with pytest.raises(MediaError, match="start at 0"):
        Video(frames, np.array([1.0, 2.0]), 1.0)
    with pytest.raises(MediaError, match="one entry"):
        Video(frames, np.array([0.0]), 1.0)
    for fps in (0, -1, float("nan"), float("inf"), None):
        with pytest.raises(MediaError, match="fps"):
            Video.from_frames(frames, fps)
    with pytest.raises(MediaError, match="one size"):
        Video.from_frames([np.zeros((2, 2, 3), np.uint8), np.zeros((2, 3, 3), np.uint8)], 1)


def test_from_frames_takes_pillow_images():
    image = pytest.importorskip("PIL.Image").new("RGB", (6, 4), (1, 2, 3))
    video = Video.from_frames([image, image], np.float32(2))
    assert video.frames.shape == (2, 4, 6, 3) and video.frames[1, 0, 0].tolist() == [1, 2, 3]


def test_resample_to_its_own_rate_is_identity():
    video = numbered(30, 29.97)
    np.testing.assert_array_equal(resample(video, 29.97).frames, video.frames)


def test_resample_keeps_the_speed_of_motion():
    video = numbered(30, 30)
    half = resample(video, 15)
    assert half.frames[:, 0, 0, 0].tolist() == list(range(0, 30, 2))
    assert half.duration == pytest.approx(video.duration)
    double = resample(video, 60)
    assert len(double) == 60
    position = double.frames[:, 0, 0, 0] / 30.0  # seconds in the original that the frame shows
    assert np.abs(position - double.timestamps).max() <= 0.5 / 30 + 1e-9


def test_resample_variable_rate_takes_the_nearest_frame():
    video = numbered(4, 4 / 1.1, times=[0.0, 0.1, 0.5, 1.0])
    steady = resample(video, 10)
    assert steady.frames[:, 0, 0, 0].tolist() == [0, 1, 1, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3]
    with pytest.raises(MediaError, match="fps"):
        resample(video, 0)
