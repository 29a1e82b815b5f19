"""Reading: real clips, and files that are unusual, damaged or no videos at all."""

import logging
import struct
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from encoded import encode, gradient
from PIL import Image

from phys_pipeline.errors import ConfigError, MediaError
from phys_pipeline.media import Video, probe, read_video, write_video
from phys_pipeline.media.buffer import increasing
from phys_pipeline.media.reading import VideoStream

CLIPS = Path(__file__).parents[2] / "samples" / "clips"


def test_real_webm():
    video = read_video(CLIPS / "mdn_rabbit.webm", max_frames=40)
    assert video.frames.shape == (40, 480, 720, 3) and video.fps == 30
    np.testing.assert_allclose(video.timestamps, np.arange(40) / 30, atol=6e-4)
    assert 20 < video.frames.mean() < 235 and video.frames.std() > 10
    info = probe(CLIPS / "mdn_rabbit.webm")
    assert (info.frames, info.fps, info.height, info.width, info.codec) == (234, 30, 480, 720, "vp8")
    assert info.duration == pytest.approx(7.8)


def test_real_gif_has_whole_frames_and_true_durations():
    video = read_video(CLIPS / "intel_car_turning.gif")
    assert video.frames.shape == (41, 270, 480, 3)
    np.testing.assert_allclose(video.timestamps[:5], [0, 0.08, 0.17, 0.25, 0.33], atol=1e-9)
    assert video.fps == pytest.approx(41 / 3.41, rel=1e-3)
    with av.open(str(CLIPS / "intel_car_turning.gif")) as container:  # an independent decoder with its own disposal code
        other = np.stack([frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)])
    np.testing.assert_array_equal(video.frames, other)
    info = probe(CLIPS / "intel_car_turning.gif")
    assert (info.frames, info.height, info.width, info.codec) == (41, 270, 480, "gif")
    assert info.duration == pytest.approx(3.41)


@pytest.mark.parametrize(
    ("name", "count", "fps", "options"),
    [
        ("film.mp4", 101, 24, {}), ("film.mkv", 101, 24, {}), ("film.avi", 48, 30, {}),
        ("part.mp4", 50, 25, {"movflags": "frag_keyframe"}), ("each.mp4", 6, 6, {"movflags": "frag_every_frame"}),
        ("film.gif", 13, 10, {}), ("film.webp", 13, 8, {}),
    ],
)  # fmt: skip
def test_the_count_before_decoding_is_that_of_the_frames(tmp_path, name, count, fps, options):
    frames = gradient(count, 16, 32)
    if name.endswith((".gif", ".webp")):
        path = write_video(tmp_path / name, Video.from_frames(frames, fps))
    else:
        path = encode(tmp_path / name, [(frames, fps)], options=options)
    info, video = probe(path), read_video(path)
    assert info.frames == len(video) == count
    assert info.fps == pytest.approx(video.fps, rel=1e-2) and info.duration == pytest.approx(video.duration, rel=1e-2)


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs /proc")
def test_opening_many_clips_leaves_no_file_open(tmp_path):
    film = encode(tmp_path / "film.mp4", [(gradient(4, 16, 16), 8)])
    moving = write_video(tmp_path / "moving.gif", Video.from_frames(gradient(3, 8, 8), 8.0))
    sound = encode(tmp_path / "sound.m4a", [], audio=True, options={"strict": "experimental"})
    broken = tmp_path / "broken.mp4"
    broken.write_bytes(film.read_bytes()[:300])

    def open_everything():
        for path in (film, moving):
            probe(path), read_video(path), read_video(path, max_frames=1)
            next(VideoStream(path).pictures(np.arange(3), (8, 8)))  # left in the middle
        for path, arguments in ((broken, {}), (sound, {}), (film, {"stream": 5}), (film, {"start": 9.0})):
            with pytest.raises(MediaError):
                read_video(path, **arguments)

    open_everything()
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(20):  # 240 files
        open_everything()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_start_and_duration_agree_with_the_whole_clip():
    whole = read_video(CLIPS / "mdn_frog.webm", size=(48, 72))
    for start in (0.5, 4.0):  # decoded from the beginning; reached by seeking
        part = read_video(CLIPS / "mdn_frog.webm", size=(48, 72), start=start, duration=1.0)
        first = int(np.argmax(whole.timestamps >= start - 1e-6))
        assert len(part) == 30 and part.timestamps[0] == 0
        np.testing.assert_array_equal(part.frames, whole.frames[first : first + 30])
    part = read_video(CLIPS / "animatediff_pan_left.gif", start=0.25, duration=0.4)
    np.testing.assert_array_equal(part.frames, read_video(CLIPS / "animatediff_pan_left.gif").frames[2:5])


def test_seeking_in_mp4_is_exact(tmp_path):
    frames = np.concatenate([gradient(25)[:: 1 if k % 2 else -1] for k in range(5)])
    path = encode(tmp_path / "long.mp4", [(frames, 25)])
    whole = read_video(path)
    for start in (2.04, 3.6):
        part = read_video(path, start=start, max_frames=7)
        first = round(start * 25)
        np.testing.assert_array_equal(part.frames, whole.frames[first : first + 7])


@pytest.mark.parametrize(
    ("name", "options"), [("live.mkv", {"live": "1"}), ("raw.h264", {}), ("part.mp4", {"movflags": "frag_keyframe"})]
)
def test_start_works_without_an_index(tmp_path, name, options):
    frames = np.concatenate([gradient(25)[:: 1 if k % 2 else -1] for k in range(5)])
    path = encode(tmp_path / name, [(frames, 25)], options=options)
    whole, part = read_video(path), read_video(path, start=3.0)
    assert len(whole) == 125 and len(part) == 50
    np.testing.assert_array_equal(part.frames, whole.frames[75:])


def test_clocks_that_do_not_advance_are_repaired():
    fixed = increasing(np.array([0.5, 0.6, 0.6, *np.arange(7, 30) / 10]), 10.0)
    assert fixed[0] == 0 and (np.diff(fixed) > 0).all() and np.abs(fixed[1:3] - 0.1).max() < 0.002
    np.testing.assert_allclose(increasing(np.zeros(5), 10.0), np.arange(5) / 10)


def test_size_resizes_while_decoding():
    full = read_video(CLIPS / "mdn_rabbit.webm", max_frames=2)
    small = read_video(CLIPS / "mdn_rabbit.webm", max_frames=2, size=(120, 180))
    assert small.frames.shape == (2, 120, 180, 3)
    pooled = full.frames.reshape(2, 120, 4, 180, 4, 3).mean((2, 4))
    assert np.abs(pooled - small.frames).mean() < 3
    assert read_video(CLIPS / "animatediff_pan_left.gif", max_frames=1, size=(31, 17)).frames.shape == (1, 31, 17, 3)


def test_variable_frame_rate_keeps_true_times(tmp_path):
    times = [0, 40, 200, 240, 280, 700, 740, 1000]
    path = encode(tmp_path / "vfr.mp4", [(gradient(8), 25)], times=times)
    video = read_video(path)
    np.testing.assert_allclose(video.timestamps, np.array(times) / 1000, atol=1e-3)
    assert video.fps == pytest.approx(7.5, rel=0.15)
    np.testing.assert_allclose(video.frames.mean((1, 2, 3)), gradient(8).mean((1, 2, 3)), atol=3)


def test_clock_starts_at_zero(tmp_path):
    path = encode(tmp_path / "late.mkv", [(gradient(5), 25)], times=[5000, 5040, 5080, 5120, 5160])
    np.testing.assert_allclose(read_video(path).timestamps, np.arange(5) * 0.04, atol=1e-3)
    np.testing.assert_allclose(read_video(path, start=0.08).timestamps, np.arange(3) * 0.04, atol=1e-3)


def test_two_streams_take_the_first_unless_told(tmp_path):
    path = encode(tmp_path / "two.mp4", [(gradient(6, 48, 64), 10), (gradient(12, 96, 128), 20)])
    first, second = read_video(path), read_video(path, stream=1)
    assert first.frames.shape == (6, 48, 64, 3) and first.fps == 10
    assert second.frames.shape == (12, 96, 128, 3) and second.fps == 20
    with pytest.raises(MediaError, match="use 0 to 1"):
        read_video(path, stream=2)


@pytest.mark.skipif(not hasattr(av.VideoStream, "set_display_rotation"), reason="this PyAV can't write a rotation")
@pytest.mark.parametrize("rotation", [90, 180, -90])
def test_display_rotation_is_applied(tmp_path, rotation):
    picture = np.full((48, 64, 3), 128, np.uint8)
    picture[:24, :32] = (255, 0, 0)  # red at the stored picture's top left
    path = encode(tmp_path / "turned.mp4", [(np.stack([picture] * 3), 10)], rotation=rotation)
    data = path.read_bytes()
    # What the file itself states: x' = a x + c y, y' = b x + d y.
    matrix = struct.unpack(">9i", data[data.find(b"tkhd") + 44 :][:36])
    a, b, c, d = (matrix[i] // 65536 for i in (0, 1, 3, 4))
    corner = (a * -1 + c * -1, b * -1 + d * -1)  # where the corner (-1, -1), top left, is shown
    video = read_video(path)
    assert video.frames.shape[1:3] == ((48, 64) if rotation == 180 else (64, 48))
    shown = video.frames[0, 4 if corner[1] < 0 else -4, 4 if corner[0] < 0 else -4].astype(int)
    assert shown[0] > 200 and shown[1] < 60
    assert (probe(path).height, probe(path).width) == video.frames.shape[1:3]
    assert read_video(path, size=(30, 20)).frames.shape[1:3] == (30, 20)


def test_pixels_are_made_square(tmp_path):
    path = encode(tmp_path / "wide.mp4", [(gradient(3, 48, 64), 10)], aspect=Fraction(3, 2))
    assert read_video(path).frames.shape[1:3] == (48, 96)
    assert probe(path).width == 96


def test_webp_durations_and_pixels(tmp_path):
    frames, durations = gradient(5), [40, 100, 20, 250, 90]
    pictures = [Image.fromarray(frame) for frame in frames]
    path = tmp_path / "a.webp"
    pictures[0].save(path, save_all=True, append_images=pictures[1:], duration=durations, lossless=True)
    video = read_video(path)
    np.testing.assert_array_equal(video.frames, frames)
    np.testing.assert_allclose(video.timestamps, [0, 0.04, 0.14, 0.16, 0.41])
    assert video.duration == pytest.approx(0.5, rel=0.25)
    assert probe(path).frames == 5 and probe(path).duration == pytest.approx(0.5)


def test_gif_without_a_delay_plays_at_ten_frames_a_second(tmp_path):
    pictures = [Image.fromarray(frame) for frame in gradient(4)]
    pictures[0].save(tmp_path / "a.gif", save_all=True, append_images=pictures[1:], duration=0)
    assert read_video(tmp_path / "a.gif").fps == pytest.approx(10)


def test_still_pictures(tmp_path):
    Image.fromarray(gradient(1)[0]).save(tmp_path / "a.png")
    still = read_video(tmp_path / "a.png")
    np.testing.assert_array_equal(still.frames, gradient(1))
    assert (len(still), still.fps) == (1, 1.0)
    Image.new("RGBA", (4, 4), (0, 0, 0, 0)).save(tmp_path / "clear.png")
    assert read_video(tmp_path / "clear.png").frames.min() == 255
    Image.fromarray(np.full((4, 4), 32768, np.uint16)).save(tmp_path / "deep.png")
    assert read_video(tmp_path / "deep.png").frames.max() == 128
    turned = Image.new("RGB", (6, 4))
    exif = turned.getexif()
    exif[0x0112] = 6
    turned.save(tmp_path / "phone.jpg", exif=exif)
    assert read_video(tmp_path / "phone.jpg").frames.shape == (1, 6, 4, 3)
    assert (probe(tmp_path / "phone.jpg").height, probe(tmp_path / "phone.jpg").width) == (6, 4)


def test_one_frame_tiny_and_odd(tmp_path):
    assert len(read_video(encode(tmp_path / "one.mp4", [(gradient(1), 10)]))) == 1
    assert read_video(encode(tmp_path / "tiny.mp4", [(gradient(4, 2, 2), 10)])).frames.shape == (4, 2, 2, 3)
    with av.open(str(tmp_path / "odd.mkv"), "w") as container:
        stream = container.add_stream("ffv1", rate=10)
        stream.width, stream.height, stream.pix_fmt = 31, 17, "bgr0"
        for picture in gradient(3, 17, 31):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode(None))
    np.testing.assert_array_equal(read_video(tmp_path / "odd.mkv").frames, gradient(3, 17, 31))


def test_name_does_not_matter(tmp_path):
    path = tmp_path / "really_a_gif.mp4"
    path.write_bytes((CLIPS / "animatediff_pan_left.gif").read_bytes())
    assert len(read_video(path)) == 16


def test_files_that_are_no_videos(tmp_path):
    text = tmp_path / "text.mp4"
    text.write_text("Dear reader, this is not a video.\n" * 50)
    (tmp_path / "empty.mp4").touch()
    (tmp_path / "list.m3u8").write_text("#EXTM3U\n#EXTINF:1,\nx.mp4\n#EXT-X-ENDLIST\n")
    encode(tmp_path / "sound.mp4", [], audio=True)
    for path, words in [
        (tmp_path / "missing.mp4", "doesn't exist"),
        (tmp_path, "folder"),
        (text, "isn't a video"),
        (CLIPS / "mdn_frog.txt", "isn't a video|not a video"),
        (tmp_path / "empty.mp4", "empty"),
        (tmp_path / "list.m3u8", "isn't a video|not a video"),
        (tmp_path / "sound.mp4", "no video stream"),
        ("https://example.org/a.mp4", "download it first"),
        ("a\0b.mp4", "check the path"),
    ]:
        for function in (read_video, probe):
            with pytest.raises(MediaError, match=words) as caught:
                function(path)
            assert "\n" not in str(caught.value)


def test_truncated_file_keeps_what_decodes_and_warns(tmp_path, caplog):
    noise = np.random.default_rng(0).integers(0, 256, (40, 48, 64, 3), dtype=np.uint8)
    path = encode(tmp_path / "whole.mp4", [(noise, 20)], options={"movflags": "+faststart"})
    with caplog.at_level(logging.WARNING):
        assert len(read_video(path)) == 40
    assert not caplog.records
    broken = tmp_path / "broken.mp4"
    broken.write_bytes(path.read_bytes()[: path.stat().st_size * 6 // 10])
    with caplog.at_level(logging.WARNING):
        kept = read_video(broken)
    assert 5 < len(kept) < 40 and "truncated" in caplog.text
    gif = tmp_path / "broken.gif"
    gif.write_bytes((CLIPS / "animatediff_pan_left.gif").read_bytes()[:300_000])
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        assert 1 <= len(read_video(gif)) < 16
    headless = tmp_path / "headless.mp4"
    headless.write_bytes(path.read_bytes()[:200])
    with pytest.raises(MediaError):
        read_video(headless)


def test_bytes_in_the_middle_destroyed(tmp_path):
    data = bytearray((CLIPS / "mdn_monster.webm").read_bytes())
    data[100_000:130_000] = bytes(30_000)
    path = tmp_path / "scratched.webm"
    path.write_bytes(data)
    assert len(read_video(path, size=(48, 72))) > 50


@pytest.mark.parametrize("suffix", [".mp4", ".gif", ".webp", ".png"])
def test_damaged_bytes_never_end_in_another_error(tmp_path, suffix):
    rng = np.random.default_rng(3)
    frames = rng.integers(0, 256, (1 if suffix == ".png" else 6, 32, 32, 3), dtype=np.uint8)
    whole = write_video(tmp_path / f"whole{suffix}", frames, 10).read_bytes()
    outcomes = set()
    for kind in range(24):
        data = bytearray(whole)
        if kind % 3 == 0:
            data = data[: rng.integers(1, len(data))]
        else:  # anywhere, or in the header only
            for place in rng.integers(0, len(data) if kind % 3 == 1 else min(400, len(data)), 10):
                data[place] = rng.integers(256)
        path = tmp_path / f"damaged{suffix}"
        path.write_bytes(data)
        for function in (read_video, probe):
            try:
                function(path)
                outcomes.add("read")
            except MediaError:
                outcomes.add("refused")
    assert "refused" in outcomes


def test_memory_limit(monkeypatch):
    monkeypatch.setenv("PHYS_PIPELINE_MAX_BYTES", str(20_000_000))
    with pytest.raises(MediaError, match="max_frames"):
        read_video(CLIPS / "mdn_rabbit.webm")
    with pytest.raises(MediaError, match="over the limit"):
        read_video(CLIPS / "intel_car_turning.gif", size=(480, 960))
    assert len(read_video(CLIPS / "mdn_rabbit.webm", max_frames=10)) == 10
    assert len(read_video(CLIPS / "mdn_rabbit.webm", duration=0.5)) == 15
    assert len(read_video(CLIPS / "mdn_rabbit.webm", size=(60, 90))) == 234
    monkeypatch.setenv("PHYS_PIPELINE_MAX_BYTES", "lots")
    with pytest.raises(ConfigError, match="PHYS_PIPELINE_MAX_BYTES"):
        read_video(CLIPS / "mdn_rabbit.webm")


def test_memory_limit_holds_when_the_file_declares_nothing(tmp_path, monkeypatch):
    raw = encode(tmp_path / "stream.h264", [(gradient(200), 25)])
    assert len(read_video(raw)) == 200
    monkeypatch.setenv("PHYS_PIPELINE_MAX_BYTES", str(100 * 48 * 64 * 3))
    with pytest.raises(MediaError, match="over the limit"):
        read_video(raw)


@pytest.mark.parametrize(
    "arguments",
    [{"max_frames": 0}, {"start": -1}, {"start": float("nan")}, {"duration": 0}, {"size": (0, 4)}, {"stream": -1}, {"start": 99}],
)
@pytest.mark.parametrize("name", ["mdn_rabbit.webm", "animatediff_pan_left.gif"])
def test_bad_arguments(name, arguments):
    with pytest.raises(MediaError):
        read_video(CLIPS / name, **arguments)
