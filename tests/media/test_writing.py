"""Writing: what is written decodes to the same frames, rate and size, and browsers can play it."""

from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
import torch

from phys_pipeline.errors import MediaError
from phys_pipeline.media import Video, read_video, write_video
from phys_pipeline.media.writing import exact_rate


def smooth(count=12, height=48, width=64):
    """Moving waves in three colours."""
    y, x, t = np.meshgrid(np.arange(height), np.arange(width), np.arange(count), indexing="ij")
    waves = [np.sin(x / 9 + t / 4 + phase) * np.cos(y / 11 - t / 7 + phase) for phase in (0, 1, 2)]
    return (np.stack(waves, -1).transpose(2, 0, 1, 3) * 90 + 128).astype(np.uint8)


def psnr(a, b):
    return 10 * np.log10(255**2 / np.mean((a.astype(float) - b.astype(float)) ** 2))


@pytest.mark.parametrize("fps", [8, 25, 30000 / 1001, 12.5])
def test_mp4_round_trip(tmp_path, fps):
    frames = smooth()
    path = write_video(tmp_path / "a.mp4", frames, fps)
    back = read_video(path)
    assert back.frames.shape == frames.shape
    assert back.fps == pytest.approx(fps, rel=1e-6)
    np.testing.assert_allclose(back.timestamps, np.arange(12) / fps, atol=1e-3)
    assert psnr(frames, back.frames) > 35


def test_mp4_plays_in_browsers(tmp_path):
    path = write_video(tmp_path / "a.mp4", smooth(), 30000 / 1001)
    data = path.read_bytes()
    assert 0 < data.find(b"moov") < data.find(b"mdat")
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        assert stream.codec_context.name == "h264" and stream.codec_context.pix_fmt == "yuv420p"
        assert stream.average_rate == Fraction(30000, 1001)
        frame = next(container.decode(stream))
        assert (frame.color_range, int(frame.colorspace), frame.color_primaries, frame.color_trc) == (1, 6, 6, 6)


@pytest.mark.parametrize(("height", "width", "matrix"), [(720, 1280, 1), (480, 720, 6)])
def test_colours_survive_under_the_tagged_matrix(tmp_path, height, width, matrix):
    flat = np.zeros((2, height, width, 3), np.uint8)
    flat[..., : width // 2, :], flat[..., width // 2 :, :] = (200, 40, 60), (30, 180, 90)
    path = write_video(tmp_path / "a.mp4", flat, 10)
    with av.open(str(path)) as container:
        assert int(next(container.decode(video=0)).colorspace) == matrix
    back = read_video(path).frames
    assert np.abs(back[:, :, [8, -8]].astype(int) - flat[:, :, [8, -8]]).max() <= 4


def test_odd_sizes_get_one_copied_edge(tmp_path):
    frames = smooth(4, 33, 47)
    back = read_video(write_video(tmp_path / "a.mp4", frames, 10)).frames
    assert back.shape == (4, 34, 48, 3)
    assert psnr(frames, back[:, :33, :47]) > 35
    assert np.abs(back[:, 33].astype(int) - back[:, 32]).mean() < 8


@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (3, 70)])
def test_tiny_sizes(tmp_path, shape):
    frames = np.full((3, *shape, 3), 120, np.uint8)
    back = read_video(write_video(tmp_path / "a.mp4", frames, 5)).frames
    assert back.shape == (3, *(side + side % 2 for side in shape), 3)
    assert np.abs(back.astype(int) - 120).max() < 6


def test_one_frame_mp4(tmp_path):
    back = read_video(write_video(tmp_path / "a.mp4", smooth(1), 8))
    assert len(back) == 1 and back.fps == 8


def test_variable_rate_is_written_by_true_times(tmp_path):
    frames = np.zeros((3, 16, 16, 3), np.uint8) + np.array([0, 100, 200], np.uint8)[:, None, None, None]
    video = Video(frames, np.array([0.0, 0.1, 0.8]), 3 / 1.1)
    back = read_video(write_video(tmp_path / "a.mp4", video, fps=10))
    level = np.round(back.frames.mean((1, 2, 3)) / 100).astype(int)
    assert level.tolist() == [0, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2]  # frame 1 until 0.45 s


def test_another_rate_keeps_the_speed(tmp_path):
    back = read_video(write_video(tmp_path / "a.mp4", Video.from_frames(smooth(20), 20), fps=10))
    assert len(back) == 10 and psnr(back.frames, smooth(20)[::2]) > 35


def test_sources_of_frames(tmp_path):
    frames = smooth(3)
    tensor = Video.from_frames(frames, 8).to_tensor()
    for source in (list(frames), tensor, tensor[0], Video.from_frames(frames, 8)):
        assert psnr(read_video(write_video(tmp_path / "a.mp4", source, 8)).frames, frames) > 35
    with pytest.raises(MediaError, match="fps is needed"):
        write_video(tmp_path / "a.mp4", frames)
    with pytest.raises(MediaError):
        write_video(tmp_path / "a.mp4", torch.full((3, 2, 4, 4), float("nan")), 8)


def test_gif_and_webp_keep_times(tmp_path):
    video = Video(smooth(4), np.array([0.0, 0.05, 0.3, 0.4]), 4 / 0.5)
    for suffix, quality in ((".gif", 25), (".webp", 35)):
        back = read_video(write_video(tmp_path / f"a{suffix}", video))
        np.testing.assert_allclose(back.timestamps, video.timestamps, atol=1e-9)
        assert psnr(back.frames, video.frames) > quality


def test_gif_times_do_not_drift(tmp_path):
    back = read_video(write_video(tmp_path / "a.gif", smooth(30, 8, 8), 30))
    assert len(back) == 30
    assert np.abs(back.timestamps - np.arange(30) / 30).max() <= 0.0051
    fast = read_video(write_video(tmp_path / "b.gif", smooth(30, 8, 8), 100))
    assert fast.duration == pytest.approx(0.3, rel=0.01)


def test_png(tmp_path):
    np.testing.assert_array_equal(read_video(write_video(tmp_path / "a.png", smooth(1), 1)).frames, smooth(1))
    with pytest.raises(MediaError, match="one frame"):
        write_video(tmp_path / "b.png", smooth(2), 1)
    assert not (tmp_path / "b.png").exists()


def test_failures_leave_nothing_behind(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "folder.mp4").mkdir()
    for path in ("a.avi", "a", "file/a.mp4", "folder.mp4"):
        with pytest.raises(MediaError) as caught:
            write_video(tmp_path / path, smooth(2), 8)
        assert "\n" not in str(caught.value)
    for fps in (0, float("nan"), -3):
        with pytest.raises(MediaError, match="fps"):
            write_video(tmp_path / "new" / "a.mp4", smooth(2), fps)
    with pytest.raises(MediaError, match="crf"):
        write_video(tmp_path / "new" / "a.mp4", smooth(2), 8, crf=99)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "folder.mp4"]


def test_a_failed_write_keeps_the_old_file(tmp_path, monkeypatch):
    path = write_video(tmp_path / "a.mp4", smooth(2), 8)
    before = path.read_bytes()
    monkeypatch.setattr("phys_pipeline.media.writing._even", lambda picture: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(MediaError, match="disk full"):
        write_video(path, smooth(3), 8)
    assert path.read_bytes() == before
    assert [item.name for item in Path(tmp_path).iterdir()] == ["a.mp4"]


def test_exact_rates():
    assert exact_rate(29.97) == Fraction(30000, 1001) and exact_rate(23.976) == Fraction(24000, 1001)
    assert exact_rate(8) == 8 and exact_rate(12.5) == Fraction(25, 2) and exact_rate(30) == 30
    assert float(exact_rate(41 / 3.41)) == pytest.approx(41 / 3.41, rel=1e-5)
    assert exact_rate(1e-9) > 0


def test_webp_quality_trades_size_for_likeness(tmp_path):
    frames = np.random.default_rng(0).integers(0, 256, (3, 32, 32, 3), dtype=np.uint8)
    video = Video.from_frames(frames, fps=8)
    coarse, fine = (write_video(tmp_path / f"{q}.webp", video, webp_quality=q) for q in (20, 95))
    assert coarse.stat().st_size < fine.stat().st_size
    errors = [np.abs(read_video(file).frames.astype(int) - frames).mean() for file in (coarse, fine)]
    assert errors[1] < errors[0]
    with pytest.raises(MediaError, match="webp_quality=101"):
        write_video(tmp_path / "x.webp", video, webp_quality=101)
