"""Streams that read a file again and again: the frames and times of the whole, also where it is damaged."""

from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from encoded import encode, gradient

from phys_pipeline.media import containers, read_video, reading
from phys_pipeline.media.frames import Outline
from phys_pipeline.media.reading import UnexpectedTimes, VideoStream
from phys_pipeline.media.scaling import scaled_while_reading

CLIPS = Path(__file__).parents[2] / "samples" / "clips"


def assert_streams_as_read(path, **choice):
    video, stream = read_video(path, size=(24, 32), **choice), VideoStream(path, **choice)
    np.testing.assert_array_equal(stream.timestamps, video.timestamps)
    assert (stream.fps, len(stream), stream.source) == (video.fps, len(video), video.source)
    np.testing.assert_array_equal(np.stack(list(stream.pictures(np.arange(len(stream)), (24, 32)))), video.frames)
    return stream


@pytest.mark.parametrize("choice", [{}, {"start": 0.3}, {"start": 3.01}, {"start": 2.2, "duration": 1}, {"max_frames": 20}])
@pytest.mark.parametrize("kind", ["b_frames.mp4", "b_frames.mkv", "raw.h264", "part.mp4", "sample.gif", "vp8.webm"])
def test_a_stream_has_the_frames_and_times_of_the_whole(tmp_path, kind, choice):
    path = {"sample.gif": CLIPS / "intel_car_turning.gif", "vp8.webm": CLIPS / "mdn_rabbit.webm"}.get(kind, tmp_path / kind)
    if not path.exists():
        encode(path, [(np.roll(gradient(100), 3, 2), 25)], options={"movflags": "frag_keyframe"} if kind == "part.mp4" else {})
    assert_streams_as_read(path, **choice)


def test_a_stream_of_uneven_turned_and_stretched_pictures(tmp_path):
    times = [0, 40, 200, 240, 280, 700, 740, 1000]
    assert_streams_as_read(encode(tmp_path / "uneven.mp4", [(gradient(8), 25)], times=times))
    stream = assert_streams_as_read(encode(tmp_path / "wide.mp4", [(gradient(3), 10)], aspect=Fraction(3, 2)))
    assert (stream.height, stream.width) == (48, 96)
    if hasattr(av.VideoStream, "set_display_rotation"):
        stream = assert_streams_as_read(encode(tmp_path / "turned.mp4", [(gradient(3), 10)], rotation=90))
        assert (stream.height, stream.width) == (64, 48)


def test_times_of_a_container_come_from_its_packets(tmp_path, monkeypatch):
    path = encode(tmp_path / "a.mp4", [(gradient(60), 25)])
    decoded = []
    inner = containers._decoded
    monkeypatch.setattr(containers, "_decoded", lambda *args: (decoded.append(1), inner(*args))[1])
    stream = VideoStream(path, max_frames=50)
    assert len(stream) == 50 and not decoded
    list(stream.pictures(np.array([0]), (4, 4)))
    assert decoded


def test_a_stream_gives_the_asked_frames_as_often_as_asked(tmp_path):
    path = encode(tmp_path / "a.mp4", [(gradient(12), 25)])
    video, wanted = read_video(path, size=(6, 8)), np.array([0, 3, 3, 3, 10])
    np.testing.assert_array_equal(np.stack(list(VideoStream(path).pictures(wanted, (6, 8)))), video.frames[wanted])


def test_a_stream_notices_frames_that_are_not_those_of_its_packets(tmp_path, monkeypatch):
    path = encode(tmp_path / "a.mp4", [(gradient(12), 25)])
    truth = VideoStream(path).timestamps
    for false in (truth[:-1], np.append(truth, 1.0), truth + 0.01 * (np.arange(12) == 5)):
        monkeypatch.setattr(reading, "outline_container", lambda *_, seconds=false: Outline(48, 64, seconds, 25.0, 0.0))
        stream = VideoStream(path)
        assert len(stream) == len(false)
        with pytest.raises(UnexpectedTimes):
            list(stream.pictures(np.array([0, 1]), (6, 8)))
        stream.read_exact_times()
        np.testing.assert_array_equal(stream.timestamps, truth)
        assert len(list(stream.pictures(np.array([0, 1]), (6, 8)))) == 2


def test_pictures_that_no_longer_decode_are_replaced_by_the_last_that_does(tmp_path):
    path = encode(tmp_path / "a.mp4", [(gradient(12), 25)])
    stream = VideoStream(path)
    stream.read_exact_times()
    encode(path, [(gradient(9), 25)])
    pictures = np.stack(list(stream.pictures(np.arange(12), (6, 8))))
    np.testing.assert_array_equal(pictures, read_video(path, size=(6, 8)).frames[[0, 1, 2, 3, 4, 5, 6, 7, 8, 8, 8, 8]])


def test_reduction_while_decoding_is_that_in_memory_but_for_rounding():
    full = read_video(CLIPS / "mdn_frog.webm", max_frames=3)
    small = read_video(CLIPS / "mdn_frog.webm", max_frames=3, size=(107, 160))
    other = np.stack([scaled_while_reading(frame, 107, 160) for frame in full.frames]).astype(int)
    assert np.abs(other - small.frames).mean() < 2
    blurred = other[:, :-1, :-1] + other[:, 1:, :-1] + other[:, :-1, 1:] + other[:, 1:, 1:]
    assert np.abs(blurred / 4 - small.frames[:, :-1, :-1]).mean() > 2  # another filter would be noticed


def test_damage_is_told_once(tmp_path, caplog):
    noise = np.random.default_rng(0).integers(0, 256, (40, 48, 64, 3), np.uint8)
    path = encode(tmp_path / "a.mp4", [(noise, 20)], options={"movflags": "+faststart"})
    data = path.read_bytes()
    middle = len(data) // 2
    for damaged in (data[: len(data) * 6 // 10], data[:middle] + bytes(3000) + data[middle + 3000 :]):
        path.write_bytes(damaged)
        stream = VideoStream(path)
        caplog.clear()
        try:
            list(stream.pictures(np.array([0]), (6, 8)))
        except UnexpectedTimes:
            stream.read_exact_times()
            list(stream.pictures(np.array([0]), (6, 8)))
        assert len(caplog.records) == 1
        assert len(stream) == len(read_video(path)) < 40
