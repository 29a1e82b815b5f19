"""Plain words for reports of clips with known motion."""

from __future__ import annotations

import numpy as np
import pytest

from phys_pipeline.media import Video
from phys_pipeline.media.events import Event
from phys_pipeline.media.summary import describe_motion
from phys_pipeline.media.synthetic import textured_clip
from phys_pipeline.scoring import score_video


def report_of(**motion):
    return score_video(Video.from_tensor(textured_clip(16, 64, 64, seed=2, **motion).video, fps=8)).to_dict()


@pytest.mark.parametrize(
    ("motion", "words"),
    [
        ({"velocity": (1.0, 0.0)}, ("Mostly translation", "to the right", "steady.")),
        ({"velocity": (0.0, -1.0)}, ("Mostly translation", "per second up", "steady.")),
        ({"velocity": (-0.8, 0.8)}, ("Mostly translation", "down to the left")),
        ({"rotation": 0.05}, ("Mostly rotation, 23 degrees/s clockwise", "steady.")),
        ({"rotation": -0.05}, ("23 degrees/s counterclockwise",)),
        ({"zoom": 0.04}, ("Mostly zoom, growing 32 %/s",)),
        ({"zoom": -0.04}, ("shrinking 32 %/s",)),
        ({}, ("Nothing moves.",)),
    ],
)
def test_known_motion(motion, words):
    text = describe_motion(report_of(**motion))
    for word in words:
        assert word in text


def test_events_and_the_worst_window_are_named():
    report = report_of(rotation=0.05)
    events = [Event("flash", 0.8), Event("standstill", 1.0, 0.5), *(Event("cut", float(n)) for n in range(1, 6))]
    text = describe_motion(report, events)
    assert "; flash at 0.8 s, cut at 1.0 s, 2.0 s, 3.0 s and 2 more, stands still from 1.0 to 1.5 s." in text
    worse = {**report["timeline"][0], "composite": report["loss"]["composite"] + 0.5, "start_s": 2.0, "end_s": 4.0}
    assert "least steady around 3.0 s" in describe_motion({**report, "timeline": [*report["timeline"], worse]})


def test_noise_is_not_called_a_motion():
    noise = np.random.default_rng(0).integers(0, 256, (16, 64, 64, 3), dtype=np.uint8)
    text = describe_motion(score_video(Video.from_frames(noise, 8)).to_dict())
    assert "no single shift" in text and "unsteady" in text
