"""A label says what is allowed and nothing else."""

from __future__ import annotations

import pytest

from phys_pipeline.errors import DataError
from phys_pipeline.evaluation import VideoSample
from phys_pipeline.evaluation.metrics.direction import CAMERA, OBJECT
from phys_pipeline.evaluation.prompts.label import DIRECTIONS, MOVERS, Label


def test_the_stratum_follows_from_the_motion():
    assert [Label(motion).stratum for motion in ("translation", "rotation", "scaling")] == ["simple"] * 3
    assert [Label(motion).stratum for motion in ("mixed", "other")] == ["complex"] * 2
    assert Label("other", "static").stratum == "simple"


@pytest.mark.parametrize(
    "fields",
    [
        {"motion": "sideways"},
        {"motion": "translation", "direction": "clockwise"},
        {"motion": "mixed", "direction": "left"},
        {"motion": "rotation", "direction": "round"},
        {"motion": "rotation", "amplitude": "huge"},
        {"motion": "rotation", "confidence": 1.5},
        {"motion": "rotation", "confidence": "high"},
        {"motion": "rotation", "stratum": "complex"},
        {"motion": ["rotation"]},
        {"direction": "left"},
    ],
)
def test_wrong_labels_are_refused(fields):
    with pytest.raises(DataError):
        Label.from_dict(fields)


def test_a_label_survives_json():
    label = Label("rotation", "clockwise", "slow", "rules", 0.9, ("turns clockwise",))
    assert Label.from_dict(label.to_dict()) == label


def test_directions_are_those_that_the_metric_judges():
    assert set(DIRECTIONS) == {*OBJECT, *CAMERA} - {"camera_static"}
    assert all(DIRECTIONS[name][1] == ("camera",) for name in DIRECTIONS if name in CAMERA)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_every_label_fits_a_sample(direction):
    labels = Label(DIRECTIONS[direction][0], direction, "large").sample_labels()
    sample = VideoSample("p", "ours", path=__file__, labels=labels)  # type: ignore[arg-type]
    assert sample.labels["direction"] == direction and set(DIRECTIONS[direction][1]) <= set(MOVERS)
