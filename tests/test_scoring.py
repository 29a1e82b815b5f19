from pathlib import Path

import numpy as np
import pytest

from phys_pipeline.errors import ConfigError, MediaError
from phys_pipeline.media import Video, read_video, write_video
from phys_pipeline.media.synthetic import textured_clip
from phys_pipeline.scoring import describe, score_file, score_table, score_video, scored_comparison

SAMPLES = Path(__file__).resolve().parent.parent / "samples" / "clips"


def clip(frames: int = 16, height: int = 64, width: int = 64, **motion: object) -> Video:
    return Video.from_tensor(textured_clip(frames, height, width, **motion).video, fps=8, source="clip")  # type: ignore[arg-type]


def test_a_file_scores_as_the_same_video_in_memory(tmp_path):
    path = tmp_path / "clip.mp4"
    write_video(path, clip(20, 240, 320, velocity=(4.0, 1.0)))
    from_file = score_file(path).to_dict()
    from_memory = score_video(read_video(path)).to_dict()
    assert from_file == from_memory
    assert (from_file["height"], from_file["width"]) == (240, 320)
    assert from_file["velocity"]["x_px_per_s"] == pytest.approx(32, rel=0.05)


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
