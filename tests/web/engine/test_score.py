"""A scored clip: sentence, pictures, files, and what is said about limits."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from PIL import Image

from phys_pipeline.cli import main
from phys_pipeline.errors import MediaError
from phys_pipeline.media import Video, probe, write_video
from phys_pipeline.media.synthetic import textured_clip
from phys_pipeline.web.engine.jobs import Job
from phys_pipeline.web.engine.player import on_one_clock, player_value, read_upload
from phys_pipeline.web.engine.runs import Runs
from phys_pipeline.web.engine.score import PICTURES, downloads, sample_names, score_clip, score_sample, score_upload
from phys_pipeline.web.engine.two import compare_two, names_of


def video(frames=16, fps=8.0, **motion):
    return Video.from_tensor(
        textured_clip(frames, 48, 64, seed=1, **(motion or {"velocity": (1.0, 0.0)})).video,
        fps,
    )


def test_a_clip_of_known_motion(settings):
    name = "broken: clockwise turn with a flash"
    run = score_sample(Runs(settings.root / "runs"), name, settings, Job())
    content = run.read()
    assert content["summary"].startswith("Mostly rotation, 55 degrees/s clockwise") and "flash at 0.8 s" in content["summary"]
    assert {path.name for path in downloads(run)} == {"scored.mp4", "scores.json", *(name for name, _ in PICTURES)}
    for picture, _ in PICTURES:
        with Image.open(run.path(picture)) as image:
            assert min(image.size) > 300
    assert json.loads(run.path("scores.json").read_text())["summary"] == content["summary"]
    value = player_value(
        {"left": run.path("video.mp4"), "right": None}, {"left": content["report"], "right": None}, labels=("x", "")
    )
    assert (
        value["right"] is None
        and value["frames"] == 32
        and len(value["series"][0]["windows"]) == len(content["report"]["timeline"])
    )


@pytest.mark.parametrize("height", [96, 1000])  # the larger one is reduced for the page
def test_the_numbers_are_those_of_the_command_line(settings, tmp_path, capsys, height):
    clip = Video.from_tensor(textured_clip(20, height, 64, seed=2, velocity=(1.0, 0.5)).video, 12.0)
    path = write_video(tmp_path / "clip.mp4", clip)
    content = score_upload(Runs(settings.root / "runs"), path, "mine.mp4", settings, Job()).read()
    capsys.readouterr()
    assert main(["score", "--json", str(path)]) == 0
    (expected,) = json.loads(capsys.readouterr().out)["reports"]
    assert content["report"] == {**expected, "source": "mine.mp4"}
    assert bool(content["notes"]) == (height > settings.largest_side)


def test_limits_are_told(settings, tmp_path):
    path = write_video(tmp_path / "a.mp4", video(40))
    read, size, notes = read_upload(path, "mine.mp4", replace(settings, max_seconds=2.0, largest_side=32))
    assert len(read) == 16 and (read.width, size) == (32, (48, 64)) and read.source == "mine.mp4"
    assert "first 2 of 5 seconds" in notes[0] and "reduced to 32x24" in notes[1]
    (note,) = read_upload(path, "mine.mp4", replace(settings, max_frames=10))[2]
    assert note == "Only the first 10 frames were read."


def test_what_is_no_video_is_named_as_the_visitor_does(settings, tmp_path):
    path = tmp_path / "secret-place.mp4"
    path.write_text("text")
    with pytest.raises(MediaError, match=r"mine\.mp4") as error:
        read_upload(path, "mine.mp4", settings)
    assert str(tmp_path) not in str(error.value)


def test_short_and_still_clips_are_cautioned(settings):
    still = Video.from_frames(video().frames[:1].repeat(16, axis=0), 8, "still")
    notes = score_clip(Runs(settings.root / "runs"), still, (48, 64), [], Job()).read()["notes"]
    assert "no good grade" in notes[0] and "one window" in notes[1]
    with pytest.raises(MediaError, match="at least 3"):
        score_clip(Runs(settings.root / "runs"), Video.from_frames(video().frames[:2], 8, "s"), (48, 64), [], Job())


def test_two_videos_on_one_clock():
    (first, second), notes = on_one_clock((video(16, 8), video(12, 12)))
    assert len(first) == len(second) == 12 and first.fps == second.fps == 12
    assert "frame rates differ" in notes[0] and "first 1.0 seconds" in notes[1]


def test_two_videos(settings):
    slower = Video.from_frames(video(16, velocity=(0.2, 0.0)).frames, 8, "b")
    reads = [(Video.from_frames(video().frames, 8, "a"), (48, 64), []), (slower, (48, 64), [])]
    run = compare_two(Runs(settings.root / "runs"), reads[0], reads[1], Job())
    content = run.read()
    assert any(text.startswith("b: temporal gains") for text in content["measured"]["warnings"])
    assert content["measured"]["metrics"]["flow_score"]["values"][0] > content["measured"]["metrics"]["flow_score"]["values"][1]
    assert probe(run.path("comparison.mp4")).frames == 16
    assert names_of("x.mp4", "x.mp4") == ("A: x.mp4", "B: x.mp4")


def test_samples_are_offered_by_name():
    assert "known motion: zoom in" in sample_names()
