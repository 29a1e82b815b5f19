"""Direction: the clips of the embedded world are judged right, cameras move pictures the other way."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from evaluation_clips import measure, texture

from phys_pipeline.evaluation.metrics.direction import CAMERA, OBJECT, DirectionAccuracy, picture_direction
from phys_pipeline.media import read_video
from phys_pipeline.media.synthetic import MOTIONS, make_clip, object_clip

SAMPLES = Path(__file__).parents[3] / "samples" / "clips"
OF_MOTION = dict(zip(MOTIONS, OBJECT, strict=True))


def pixels(video: torch.Tensor) -> np.ndarray:
    return (video.permute(1, 2, 3, 0).numpy() * 255).round().astype(np.uint8)


def judged(frames, **sample):
    return measure(frames, DirectionAccuracy, **sample)["direction_accuracy"]


def test_a_camera_and_its_picture_go_opposite_ways():
    assert picture_direction("pan_left") == "right" and picture_direction("left") == "left"
    assert picture_direction("roll_clockwise") == "counterclockwise" and picture_direction("dolly_in") == "zoom_in"
    assert picture_direction("sideways") is None and set(CAMERA.values()) == set(OBJECT)


@pytest.mark.parametrize("motion", MOTIONS)
def test_clips_of_the_embedded_world_are_judged_right(motion):
    clip = make_clip(100 + MOTIONS.index(motion), motion=motion, shape="square")
    result = judged(pixels(clip.video), prompt=clip.caption)
    assert result.value == 1 and result.details["from"] == "prompt" and result.details["found"] == OF_MOTION[motion]
    wrong = "left" if OF_MOTION[motion] != "left" else "right"
    assert judged(pixels(clip.video), prompt=clip.caption, labels={"direction": wrong}).value == 0


def test_a_camera_is_judged_by_the_whole_frame():
    whole = texture(side=96, velocity=(3.0, 0.0))
    assert judged(whole, labels={"direction": "pan_left"}).value == 1
    assert judged(whole, labels={"direction": "pan_right"}).value == 0
    assert judged(texture(side=96, rotation=0.05), labels={"direction": "roll_counterclockwise"}).value == 1
    assert judged(texture(side=96, zoom=0.03), labels={"direction": "dolly_in"}).value == 1
    small = pixels(object_clip(frames=8, height=96, width=96, velocity=(3.0, 0.0), centre=(30, 48), texture=0.1).video)
    assert judged(small, labels={"direction": "right"}).value == 1
    assert judged(small, labels={"direction": "pan_left"}).details["found"] == "static"


def test_a_generated_pan_is_seen():
    video = read_video(SAMPLES / "animatediff_pan_left.gif")
    assert judged(video.frames, fps=video.fps, labels={"direction": "pan_left"}).value == 1


def test_without_direction_or_rate_or_with_an_unknown_label_it_is_skipped():
    clip = texture(velocity=(2.0, 0.0))
    assert "neither" in judged(clip, prompt="a texture").reason
    assert "unknown direction 'sideways'" in judged(clip, labels={"direction": "sideways"}).reason
    assert "frame rate" in judged(clip, fps=None, labels={"direction": "right"}).reason
