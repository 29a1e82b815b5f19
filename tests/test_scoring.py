import logging
import os
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest

from phys_pipeline.errors import ConfigError, MediaError
from phys_pipeline.media import Video, probe, read_video, reading, write_video
from phys_pipeline.media.synthetic import textured_clip
from phys_pipeline.scoring import describe, score_file, score_table, score_video, scored_comparison
from phys_pipeline.spectral.report import analysis_size

SAMPLES = Path(__file__).resolve().parent.parent / "samples" / "clips"


def clip(frames: int = 16, height: int = 64, width: int = 64, **motion: object) -> Video:
    return Video.from_tensor(textured_clip(frames, height, width, **motion).video, fps=8, source="clip")  # type: ignore[arg-type]


def near(report: dict, other: dict, tolerance: float) -> None:
    """Every number agrees within ``tolerance`` of its size or of 1, everything else is equal."""
    assert report.keys() == other.keys()
    for name, value in report.items():
        if isinstance(value, dict):
            near(value, other[name], tolerance)
        elif isinstance(value, list):
            assert len(value) == len(other[name])
            for mine, yours in zip(value, other[name], strict=True):
                near(mine, yours, tolerance)
        else:
            wanted = pytest.approx(other[name], rel=tolerance, abs=tolerance) if isinstance(value, float) else other[name]
            assert value == wanted, name


def whole(path: Path, **choice: object) -> dict:
    """The report of the frames read at once, at the size at which they are scored."""
    info = probe(path)
    video = read_video(path, size=analysis_size(info.height, info.width), **choice)  # type: ignore[arg-type]
    return score_video(video, original_size=(info.height, info.width)).to_dict()


@pytest.fixture(scope="module")
def moving(tmp_path_factory) -> Path:
    """Three seconds at 20 fps, 96x64."""
    path = tmp_path_factory.mktemp("clips") / "clip.mp4"
    video = textured_clip(60, 64, 96, velocity=(1.0, 0.3), rotation=0.01).video
    return write_video(path, Video.from_tensor(video, fps=20))  # type: ignore[arg-type]


def test_a_file_scores_as_the_same_video_in_memory(tmp_path):
    path = tmp_path / "clip.mp4"
    write_video(path, clip(20, 240, 320, velocity=(4.0, 1.0)))
    from_file = score_file(path).to_dict()
    near(from_file, score_video(read_video(path)).to_dict(), 3e-3)  # reduced by another library
    assert from_file == whole(path)
    assert (from_file["height"], from_file["width"]) == (240, 320)
    assert from_file["velocity"]["x_px_per_s"] == pytest.approx(32, rel=0.05)


@pytest.mark.parametrize("choice", [{}, {"start": 0.5}, {"start": 2.1, "duration": 0.75}, {"max_frames": 33}, {"duration": 1.4}])
def test_scoring_while_decoding_gives_the_report_of_the_whole_clip(moving, choice):
    assert score_file(moving, **choice).to_dict() == whole(moving, **choice)


@pytest.mark.parametrize("name", ["mdn_rabbit.webm", "intel_car_turning.gif"])
def test_real_clips_score_as_a_whole(name):
    assert score_file(SAMPLES / name, max_frames=40).to_dict() == whole(SAMPLES / name, max_frames=40)


def test_a_variable_frame_rate_is_scored_while_decoding_too(tmp_path):
    frames = clip(40, velocity=(1.0, 0.0)).frames
    times = np.cumsum([0, *np.random.default_rng(1).choice([40, 80, 300], 39)])
    with av.open(str(tmp_path / "uneven.mkv"), "w") as container:
        stream = container.add_stream("libx264", rate=25, options={"crf": "10", "bf": "3"})
        stream.height, stream.width, stream.pix_fmt = 64, 64, "yuv420p"
        stream.codec_context.time_base = Fraction(1, 1000)
        for picture, time in zip(frames, times, strict=True):
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
            frame.pts, frame.time_base = int(time), Fraction(1, 1000)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    report = score_file(tmp_path / "uneven.mkv").to_dict()
    assert report == whole(tmp_path / "uneven.mkv")
    assert report["fps"] == pytest.approx(39 / (times[-1] / 1000), rel=0.05)


def test_a_damaged_file_scores_as_the_frames_that_decode(tmp_path, caplog):
    raw = write_video(
        tmp_path / "clip.mp4", Video.from_frames(np.random.default_rng(0).integers(0, 256, (40, 48, 64, 3), np.uint8), 20)
    )
    broken = tmp_path / "broken.mp4"
    data = bytearray(raw.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 3000] = bytes(3000)
    broken.write_bytes(data)
    with caplog.at_level(logging.WARNING):
        report = score_file(broken).to_dict()
    assert len(caplog.records) <= 1
    assert report == whole(broken)


def test_packets_that_promise_other_frames_are_not_believed(moving, monkeypatch):
    honest = reading.outline_container

    def boasting(path: Path, choice: object) -> object:
        outline = honest(path, choice)  # type: ignore[arg-type]
        return replace(outline, seconds=np.append(outline.seconds, outline.seconds[-1] + 1))

    monkeypatch.setattr(reading, "outline_container", boasting)
    assert score_file(moving).to_dict() == whole(moving)
    monkeypatch.setattr(reading, "outline_container", lambda path, choice: None)
    assert score_file(moving).to_dict() == whole(moving)


LONG = """
import resource, sys
from phys_pipeline.scoring import score_file
for name in sys.argv[1:]:
    windows = len(score_file(name).timeline)
    print(windows, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def test_memory_does_not_grow_with_the_length_of_the_clip(tmp_path):
    frames = np.random.default_rng(0).integers(0, 256, (12, 48, 64, 3), np.uint8)
    for seconds in (20, 120):
        write_video(tmp_path / f"{seconds}.mp4", Video.from_frames(np.tile(frames, (seconds, 1, 1, 1)), 12))
    command = [sys.executable, "-c", LONG, *(str(tmp_path / f"{seconds}.mp4") for seconds in (20, 120))]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    (few, short), (many, long) = (map(int, line.split()) for line in done.stdout.splitlines())
    assert many > 5 * few
    assert long - short < 20_000  # KiB; the 1200 further frames alone are 44 MB as float32


def test_uneven_timestamps_are_scored_at_their_average_rate():
    even = clip(32, velocity=(1.0, 0.0))
    shift = np.random.default_rng(0).uniform(-0.04, 0.04, 32)
    shift[0] = 0.0
    uneven = Video(even.frames, even.timestamps + shift, even.fps, "uneven")
    assert score_video(uneven).velocity_px_per_s[0] == pytest.approx(score_video(even).velocity_px_per_s[0], rel=0.02)


@pytest.mark.parametrize(
    ("frames", "height", "width", "words"), [(1, 64, 64, "1 frame:"), (2, 64, 64, "2 frames"), (16, 2, 2, "2x2 pixels")]
)
def test_clips_that_show_no_motion_are_refused(frames, height, width, words):
    with pytest.raises(MediaError, match=words):
        score_video(clip(frames, height, width))


def test_unknown_preset_is_refused():
    with pytest.raises(ConfigError, match="calibrated, paper"):
        score_video(clip(), preset="printed")  # type: ignore[arg-type]


def test_table_and_description_name_every_number():
    report = score_video(clip(rotation=0.08)).to_dict()
    table = score_table({"baseline": report, "physics": report})
    assert [line.split()[0] for line in table.splitlines()[2:]] == ["baseline", "physics"]
    assert f"{report['loss']['composite']:.3f}" in table and "rotation" in table
    text = describe(report)
    for word in ("composite", "translation", "rotation", "scaling", "velocity", "zoom", "dynamic degree", "weight"):
        assert word in text


@pytest.mark.parametrize("mode", ["horizontal", "vertical", "wipe", "difference"])
def test_comparison_in_every_mode(mode):
    a, b = clip(velocity=(1.0, 0.0)), clip(velocity=(0.0, 1.0), seed=1)
    reports = [score_video(v).to_dict() for v in (a, b)]
    both = scored_comparison([a, b], reports, ["left", "right"], mode=mode)
    plain = scored_comparison([a, b], reports, ["left", "right"], mode=mode, show_scores=False)
    assert len(both) == 16
    assert (both.frames.shape > plain.frames.shape) == (mode in ("horizontal", "vertical"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "dominant", "number", "sign"),
    [
        ("animatediff_pan_left.gif", "translation", "x_percent_per_s", 1),
        ("animatediff_roll_ccw.gif", "rotation", "rotation_deg_per_s", -1),
        ("mdn_frog.webm", "scaling", "zoom_percent_per_s", 1),
        ("mdn_monster.webm", "scaling", "zoom_percent_per_s", -1),
        ("mdn_rabbit.webm", "rotation", "rotation_deg_per_s", 1),
        ("intel_car_turning.gif", "translation", "y_percent_per_s", -1),
    ],
)
def test_dominant_motion_of_the_sample_clips_is_that_of_their_labels(file, dominant, number, sign):
    report = score_file(SAMPLES / file).to_dict()
    assert report["dominant"] == dominant
    assert (report | report["velocity"])[number] * sign > 0
