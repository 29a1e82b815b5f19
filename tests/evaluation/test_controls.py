"""What each control does to the frames, exactly; controls cost nothing before they are decoded."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from phys_pipeline.errors import ConfigError
from phys_pipeline.evaluation.controls import CONTROLS, control_samples
from phys_pipeline.evaluation.sample import VideoSample
from phys_pipeline.media import read_video, write_video


def levels(*values: int) -> np.ndarray:
    """A clip (T, 2, 3, 3) with one grey level for each frame."""
    return np.broadcast_to(np.array(values, np.uint8)[:, None, None, None], (len(values), 2, 3, 3)).copy()


def sample(frames: np.ndarray, name: str = "p1", **changes) -> VideoSample:
    return VideoSample(name, "baseline", "a prompt", 3, frames=frames, fps=8.0, labels={"direction": "left"}, **changes)


def made(frames: np.ndarray, kind: str, name: str = "p1", seed: int = 0) -> list[int]:
    """The grey levels of a control's frames."""
    (control,) = control_samples([sample(frames, name)], [kind], seed)
    found = control.decode().frames
    assert found.shape == frames.shape and found.dtype == np.uint8
    assert (found == found[:, :1, :1, :1]).all()
    return found[:, 0, 0, 0].tolist()


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("frozen", [10, 10, 10, 10, 10, 10]),
        ("half_speed", [10, 15, 20, 31, 41, 51]),  # moments 0, 1/2, 1, 3/2, 2, 5/2; halves of a level go up
        ("time_blurred", None),  # computed below
        ("reversed", [99, 80, 60, 41, 20, 10]),
    ],
)
def test_frames_of_a_control(kind, expected):
    if kind == "time_blurred":
        values = [10, 20, 41, 60, 80, 99]
        padded = [values[0]] * 2 + values + [values[-1]] * 2
        expected = [int(sum(padded[i : i + 5]) / 5 + 0.5) for i in range(6)]
    assert made(levels(10, 20, 41, 60, 80, 99), kind) == expected


def test_shuffling_depends_on_seed_and_clip_and_never_keeps_the_order():
    values = list(range(0, 160, 10))
    once = made(levels(*values), "shuffled")
    assert sorted(once) == values and once != values
    assert made(levels(*values), "shuffled") == once
    assert made(levels(*values), "shuffled", seed=1) != once and made(levels(*values), "shuffled", "p2") != once
    for seed in range(20):
        assert made(levels(1, 2), "shuffled", seed=seed) == [2, 1]


@pytest.mark.parametrize("kind", CONTROLS)
def test_a_clip_of_one_frame_stays(kind):
    assert made(levels(7), kind) == [7]


def test_half_speed_shows_half_of_the_motion():
    frames = levels(*range(0, 34, 2))
    slow = made(frames, "half_speed")
    assert np.diff(slow).tolist() == [1] * 16


def test_controls_are_samples_of_their_own_column():
    source = sample(levels(1, 2, 3))
    controls = list(control_samples([source]))
    assert [control.model for control in controls] == [f"control:{kind}" for kind in CONTROLS]
    assert [control.name for control in controls] == [f"control:{kind}/p1#3" for kind in CONTROLS]
    assert {(c.id, c.seed, c.prompt, c.fps, c.labels["direction"]) for c in controls} == {("p1", 3, "a prompt", 8.0, "left")}
    assert len({source.digest, *(control.digest for control in controls)}) == 6
    assert source.control == "" and controls[0].control == "frozen"
    assert list(control_samples([source], ())) == []
    with pytest.raises(ConfigError, match="melted"):
        list(control_samples([source], ["melted"]))


def test_a_file_is_read_when_the_control_is_decoded(tmp_path):
    missing = VideoSample("p", "m", path=tmp_path / "later.mp4")
    controls = list(control_samples([missing]))
    write_video(tmp_path / "later.mp4", np.repeat(levels(0, 60, 120, 180), 16, axis=1).repeat(16, axis=2), 12.0)
    clip = read_video(tmp_path / "later.mp4")
    for control in pickle.loads(pickle.dumps(controls)):
        assert np.allclose(control.decode().timestamps, clip.timestamps) and control.decode().fps == clip.fps
        assert control.decode().frames.shape == clip.frames.shape
    assert (controls[0].decode().frames == clip.frames[0]).all()
    other = list(control_samples([missing], seed=1))
    assert other[3].digest != controls[3].digest
