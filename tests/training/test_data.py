import math
import re
from fractions import Fraction

import numpy as np
import pytest
import torch
from PIL import Image

from phys_pipeline.media import Video, write_video
from training.config import TrainConfig
from training.data import SkipClip, crop_and_resize, plan_windows, read_windows, resample_indices, unevenness, window_starts
from training.sources import find_clips


def flicker(frames, fps, hertz, size=32):
    """A clip whose brightness swings `hertz` times a second."""
    level = 128 + 100 * np.sin(2 * np.pi * hertz * np.arange(frames) / fps)
    return Video.from_frames(np.broadcast_to(level[:, None, None, None], (frames, size, size, 3)).astype(np.uint8), fps)


def write_clip(folder, name, frames=16, fps=8, hertz=1.0, caption="a grey square flickers"):
    folder.mkdir(parents=True, exist_ok=True)
    write_video(folder / name, flicker(frames, fps, hertz))
    if caption is not None:
        (folder / name).with_suffix(".txt").write_text(caption, encoding="utf-8")
    return folder / name


def config(folder, **settings):
    return TrainConfig(**{"data": str(folder), "frames": 8, "height": 16, "width": 16, "fps": 8.0, **settings})


@pytest.mark.parametrize(
    ("frames", "fps", "target", "count"), [(101, 24, 8, 33), (16, 8, 8, 16), (48, 24, 8, 16), (47, 24, 8, 15)]
)
def test_frame_count_after_resampling(frames, fps, target, count):
    assert len(resample_indices(flicker(frames, fps, 1, size=4), target)) == count


@pytest.mark.parametrize("source_fps", [24, 30, 12, 15.3])
def test_motion_keeps_its_speed(source_fps):
    """2 Hz in the file is 2 Hz after resampling."""
    video = flicker(math.ceil(4 * source_fps), source_fps, 2.0, size=4)
    indices = resample_indices(video, 8.0)[:32]
    signal = video.frames[indices, 0, 0, 0].astype(float)
    spectrum = np.abs(np.fft.rfft(signal - signal.mean()))
    assert np.argmax(spectrum) == 8  # cycles in 32 frames = 4 s
    assert np.abs(video.timestamps[indices] - np.arange(32) / 8).max() <= 0.5 / source_fps + 1e-9


@pytest.mark.parametrize("source_fps", [30, 24, 12])
def test_a_bar_that_swings_twice_a_second_does_so_in_the_window(tmp_path, source_fps):
    """From the file through decoding, resampling and resizing: 2 Hz at 8 fps."""
    frames = np.zeros((5 * source_fps, 48, 64, 3), np.uint8)
    for t, frame in enumerate(frames):
        middle = 32 + 16 * np.sin(2 * np.pi * 2.0 * (t + 0.25) / source_fps)
        frame[:, round(middle) - 4 : round(middle) + 4] = 255
    write_video(tmp_path / "bar.mp4", Video.from_frames(frames, source_fps))
    (tmp_path / "bar.txt").write_text("a bar swings")
    (window,) = windows(tmp_path / "bar.mp4", frames=32, height=48, width=64, frame_extraction="head")
    columns = window.mean(dim=(0, 2))  # (T, W)
    position = (columns * torch.arange(64)).sum(1) / columns.sum(1)
    spectrum = torch.fft.rfft(position - position.mean()).abs()
    assert spectrum.argmax() == 8  # cycles in 32 frames = 4 s
    assert spectrum[8] > 3 * spectrum[torch.arange(17) != 8].max()


def test_variable_rate_uses_timestamps():
    times = np.array([0.0, 0.1, 0.2, 0.9, 1.0, 1.1])
    video = Video(np.zeros((6, 2, 2, 3), np.uint8), times, 6 / 1.2)
    assert resample_indices(video, 10.0)[:12].tolist() == [0, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 5]


def test_nearly_equal_rate_is_taken_frame_by_frame():
    video = flicker(50, 25, 1, size=4)
    assert resample_indices(video, 24.0).tolist() == list(range(50))
    assert len(resample_indices(video, 20.0)) == 40


def test_unevenness_tells_judder_from_even_steps():
    twelve, thirty = flicker(36, 12, 1, size=2), flicker(90, 30, 1, size=2)
    assert unevenness(twelve, resample_indices(twelve, 8.0), 8.0) > 0.25
    assert unevenness(thirty, resample_indices(thirty, 7.5), 7.5) < 0.01


def test_window_starts():
    assert window_starts(20, 8, "head", 4, 4) == [0]
    assert window_starts(20, 8, "middle", 4, 4) == [6]
    assert window_starts(20, 8, "uniform", 4, 4) == [0, 4, 8, 12]
    assert window_starts(20, 8, "uniform", 1, 4) == [6]
    assert window_starts(9, 8, "uniform", 4, 4) == [0, 1]
    assert window_starts(20, 8, "sliding", 4, 5) == [0, 5, 10]
    assert window_starts(7, 8, "sliding", 4, 5) == []


def test_centre_is_kept_and_fine_detail_does_not_alias():
    frames = np.zeros((2, 40, 80, 3), np.uint8)
    frames[:, :, 20:60] = 200  # the central square
    assert torch.allclose(crop_and_resize(frames, 20, 20), torch.full((3, 2, 20, 20), 200 / 255), atol=1e-6)
    stripes = np.zeros((1, 64, 64, 3), np.uint8)
    stripes[:, :, ::3] = 255
    assert crop_and_resize(stripes, 16, 16)[..., 2:-2].std() < 0.05  # 0.2 without antialiasing
    assert crop_and_resize(np.zeros((3, 10, 31, 3), np.uint8), 16, 24).shape == (3, 3, 16, 24)


def windows(path, **settings):
    clips, _ = find_clips(config(path.parent, **settings))
    return read_windows(next(c for c in clips if c.path == path), config(path.parent, **settings))


def test_windows_of_a_clip(tmp_path):
    path = write_clip(tmp_path, "a.mp4", frames=72, fps=24, hertz=1.0)
    for how, count in (("head", 1), ("middle", 1), ("uniform", 4), ("sliding", 5)):
        found = windows(path, frame_extraction=how)
        assert [tuple(w.shape) for w in found] == [(3, 8, 16, 16)] * count
        assert all(w.dtype == torch.float32 and w.min() >= 0 and w.max() <= 1 for w in found)
    head = windows(path, frame_extraction="head")[0][0, :, 8, 8]
    expected = (128 + 100 * torch.sin(2 * torch.pi * torch.arange(8) / 8)) / 255
    assert (head - expected).abs().max() < 0.05  # a full cycle in one second


def test_large_frames_are_reduced_while_decoding_to_the_same_picture(tmp_path):
    ramp = np.linspace(0, 255, 256).astype(np.uint8)
    frames = np.broadcast_to(ramp[None, None, :, None], (8, 192, 256, 3)).copy()
    write_video(tmp_path / "a.mp4", Video.from_frames(frames, 8.0))
    (tmp_path / "a.txt").write_text("a ramp")
    small = windows(tmp_path / "a.mp4")[0]
    assert (small - crop_and_resize(frames, 16, 16)).abs().max() < 0.03


@pytest.mark.parametrize(
    ("make", "settings", "reason"),
    [
        (lambda d: write_clip(d, "a.mp4", frames=7), {}, "too short: 7 frames at 8 fps, needs 8"),
        (lambda d: write_clip(d, "a.mp4", frames=16, fps=4), {}, "frames would repeat"),
        (lambda d: write_clip(d, "a.mp4").write_bytes(b"nonsense"), {}, "unreadable"),
        (lambda d: Image.new("RGB", (32, 32)).save(d / "a.webp") or (d / "a.txt").write_text("x"), {}, "still picture"),
    ],
)
def test_reasons_for_skipping(tmp_path, make, settings, reason):
    make(tmp_path)
    with pytest.raises(SkipClip, match=reason):
        windows(next(p for p in tmp_path.iterdir() if p.suffix != ".txt"), **settings)


def test_long_windows_are_read_whole_whatever_the_reading_limit(tmp_path):
    path = write_clip(tmp_path, "a.mp4", frames=24, fps=8)
    assert len(windows(path, frames=20, max_clip_seconds=1.0)) == 1
    assert len(windows(path, frames=4, frame_extraction="sliding", window_stride=1, max_clip_seconds=1.0)) == 5


def test_repeated_frames_can_be_allowed(tmp_path):
    path = write_clip(tmp_path, "a.mp4", frames=16, fps=4)
    assert len(windows(path, repeated_frames="allow")) == 1


def test_pictures_train_with_one_frame(tmp_path):
    Image.new("RGB", (48, 32), (255, 0, 0)).save(tmp_path / "a.png")
    (tmp_path / "a.txt").write_text("red")
    found = windows(tmp_path / "a.png", frames=1, motion_weight=0)
    assert len(found) == 1 and found[0].shape == (3, 1, 16, 16)
    assert torch.allclose(found[0][:, 0, 8, 8], torch.tensor([1.0, 0.0, 0.0]))


def test_windows_take_the_shape_of_their_bucket(tmp_path):
    buckets = [[8, 16, 16], [8, 16, 32], [4, 32, 16]]
    for name, frames, height, width in (("wide", 8, 32, 64), ("square", 8, 32, 32), ("tall", 6, 64, 32), ("short", 3, 32, 32)):
        write_video(tmp_path / f"{name}.mp4", Video.from_frames(np.full((frames, height, width, 3), 128, np.uint8), 8.0))
        (tmp_path / f"{name}.txt").write_text(name)
    shapes = {}
    for name in ("wide", "square", "tall"):
        shapes[name] = tuple(windows(tmp_path / f"{name}.mp4", buckets=buckets)[0].shape)
    assert shapes == {"wide": (3, 8, 16, 32), "square": (3, 8, 16, 16), "tall": (3, 4, 32, 16)}
    with pytest.raises(SkipClip, match="too short: 3 frames at 8 fps, needs 4"):
        windows(tmp_path / "short.mp4", buckets=buckets)


def test_pictures_and_clips_train_together_in_their_buckets(tmp_path):
    Image.new("RGB", (48, 32), (255, 0, 0)).save(tmp_path / "a.png")
    (tmp_path / "a.txt").write_text("red")
    clip = write_clip(tmp_path, "b.mp4")
    both = {"buckets": [[8, 16, 16], [1, 32, 48]], "motion_weight": 0}
    assert windows(tmp_path / "a.png", **both)[0].shape == (3, 1, 32, 48)
    assert windows(clip, **both)[0].shape == (3, 8, 16, 16)


def write_uneven(path, times):
    """A container whose frames are shown at these times, in seconds, under a header that claims 30 frames a second."""
    import av

    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=30)
        stream.width = stream.height = 32
        stream.pix_fmt, stream.time_base, stream.codec_context.time_base = "yuv420p", Fraction(1, 1000), Fraction(1, 1000)
        for number, seconds in enumerate(times):
            frame = av.VideoFrame.from_ndarray(np.full((32, 32, 3), 40 + number % 200, np.uint8), format="rgb24")
            frame.pts, frame.time_base = round(seconds * 1000), Fraction(1, 1000)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())


FILES = {
    "24fps.mp4": lambda path: write_video(path, flicker(101, 24, 1)),
    "30fps.mp4": lambda path: write_video(path, flicker(90, 30, 1)),
    "25fps.mov": lambda path: write_video(path, flicker(52, 25, 1)),
    "near.mp4": lambda path: write_video(path, flicker(31, 8.3, 1)),
    "slow.mp4": lambda path: write_video(path, flicker(16, 4, 1)),
    "short.mp4": lambda path: write_video(path, flicker(7, 8, 1)),
    "a.gif": lambda path: write_video(path, flicker(33, 10, 1)),
    "uneven.mkv": lambda path: write_uneven(path, np.cumsum(np.random.default_rng(0).uniform(0.02, 0.15, 60))),
    "gap.mkv": lambda path: write_uneven(path, [*np.arange(20) / 10, *(4 + np.arange(20) / 10)]),
    "wrong.mkv": lambda path: write_uneven(path, np.arange(40) / 12),
}


@pytest.mark.parametrize("name", FILES)
def test_windows_are_foretold_from_the_times_in_the_file(tmp_path, name):
    """Number and source frames, without decoding, for ordinary files: what a dry run counts is what is cut."""
    FILES[name](tmp_path / name)
    (tmp_path / name).with_suffix(".txt").write_text("a square")
    for how in ("head", "uniform", "sliding"):
        for more in ({}, {"repeated_frames": "allow"}, {"max_clip_seconds": 1.5}, {"buckets": [[8, 16, 16], [12, 16, 32]]}):
            wanted = config(tmp_path, frame_extraction=how, **more)
            (clip,), _ = find_clips(wanted)
            try:
                cut = read_windows(clip, wanted)
            except SkipClip as skipped:
                with pytest.raises(SkipClip, match=re.escape(str(skipped))):
                    plan_windows(clip, wanted)
                continue
            plan = plan_windows(clip, wanted)
            assert [(3, *plan.bucket)] * len(plan.windows) == [tuple(window.shape) for window in cut]
