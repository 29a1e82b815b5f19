"""Flashes, cuts and stand-stills that were put into a moving clip are found where they are, and nowhere else."""

from __future__ import annotations

import numpy as np
import pytest

from phys_pipeline.media import Video
from phys_pipeline.media.events import find_events
from phys_pipeline.media.synthetic import textured_clip

FPS = 10.0


def moving(seed=0, **motion):
    motion = motion or {"velocity": (1.5, 0.5)}
    return Video.from_tensor(textured_clip(20, 64, 64, seed=seed, **motion).video, FPS)


def changed(video, frames):
    return Video.from_frames(frames, video.fps)


@pytest.mark.parametrize("motion", [{"velocity": (2.0, 0.0)}, {"rotation": 0.1}, {"zoom": 0.03}])
def test_nothing_happens_in_coherent_motion(motion):
    assert find_events(moving(**motion)) == []


@pytest.mark.parametrize("gain", [0.7, 1.3])
def test_a_flash(gain):
    video = moving()
    frames = video.frames.copy()
    frames[8] = np.clip(frames[8] * gain, 0, 255)
    (event,) = find_events(changed(video, frames))
    assert (event.kind, event.seconds, event.length) == ("flash", pytest.approx(0.8), 0.0)


def test_a_cut():
    video = changed(moving(), np.concatenate([moving(0).frames[:9], 255 - moving(7).frames[:11] // 2]))
    events = find_events(video)
    assert [(event.kind, round(event.seconds, 3)) for event in events] == [("cut", 0.9)]


def test_a_standstill():
    video = moving()
    frames = video.frames.copy()
    frames[6:11] = frames[6]
    (event,) = find_events(changed(video, frames))
    assert (event.kind, event.seconds) == ("standstill", pytest.approx(0.6)) and event.length == pytest.approx(0.4)


def test_a_still_clip_and_a_short_one_have_no_events():
    video = moving()
    assert find_events(changed(video, np.repeat(video.frames[:1], 12, axis=0))) == []
    assert find_events(changed(video, video.frames[:3])) == []
