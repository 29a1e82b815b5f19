"""Object flow: none under a camera's motion alone, all of it before a still ground."""

from __future__ import annotations

import numpy as np
import pytest
from evaluation_clips import PLACES, measure, scene, texture

from phys_pipeline.evaluation.metrics.camera import ObjectFlow
from phys_pipeline.evaluation.metrics.warping import Warping


@pytest.mark.parametrize("motion", [{"velocity": (1.5, 0.5)}, {"rotation": 0.03}, {"zoom": 0.02}])
def test_a_still_picture_that_a_camera_moves_over_has_almost_none(motion):
    found = measure(texture(96, **motion), ObjectFlow, Warping)
    assert found["object_flow"].value < 0.2 * found["flow_score"].value
    assert len(found["object_flow"].per_frame) == 7 and found["object_flow"].backend.startswith("dis")


def test_before_a_still_ground_it_is_the_flow():
    found = measure(scene(PLACES["moving"])[:5], ObjectFlow, Warping)
    assert found["object_flow"].value == pytest.approx(found["flow_score"].value, rel=0.1)


def test_a_frozen_clip_has_none_and_pixels_are_the_clips():
    assert measure(np.repeat(texture()[:1], 3, axis=0), ObjectFlow)["object_flow"].value < 1e-3
    frames = scene(PLACES["moving"])[:3]
    large = frames.repeat(2, axis=1).repeat(2, axis=2)
    small, doubled = (measure(clip, ObjectFlow)["object_flow"].value for clip in (frames, large))
    assert doubled == pytest.approx(2 * small, rel=0.15)
