import math

import pytest
import torch

from phys_pipeline.media.synthetic import object_clip, textured_clip
from phys_pipeline.spectral.estimate import estimate_similarity


@pytest.mark.parametrize(
    ("velocity", "rotation", "zoom"),
    [((2.0, -1.0), 0.0, 0.0), ((0.3, 0.1), 0.0, 0.0), ((0.0, 0.0), 0.08, 0.0), ((0.0, 0.0), -0.02, 0.0), ((0.0, 0.0), 0.0, 0.03),
     ((0.0, 0.0), 0.0, -0.01)],
)  # fmt: skip
def test_texture_motion_is_recovered(velocity, rotation, zoom):
    motion = estimate_similarity(textured_clip(velocity=velocity, rotation=rotation, zoom=zoom, seed=7).video)
    assert motion.velocity.tolist() == pytest.approx(velocity, abs=0.06)
    assert float(motion.rotation) == pytest.approx(rotation, abs=0.002)
    assert float(motion.zoom) == pytest.approx(zoom, abs=0.002)
    assert float(motion.confidence) > 0.8


def test_an_object_before_a_still_background_is_followed_not_the_background():
    clip = object_clip("square", "red", velocity=(1.5, -0.6), centre=(20, 40), texture=0.1, seed=1).video
    motion = estimate_similarity(clip)
    assert motion.velocity.tolist() == pytest.approx((1.5, -0.6), rel=0.1)
    clip = object_clip("bar", "yellow", rotation=-0.1, centre=(22, 40), texture=0.05, seed=2).video
    motion = estimate_similarity(clip)
    assert float(motion.rotation) == pytest.approx(-0.1, rel=0.15)
    assert math.hypot(*motion.velocity.tolist()) < 0.4  # the centre of turning is the object's, not the picture's


def test_a_reversed_clip_has_the_opposite_motion():
    clip = textured_clip(velocity=(1.0, 0.5), rotation=0.03, seed=5).video
    forward, backward = estimate_similarity(clip), estimate_similarity(clip.flip(1))
    assert float(backward.rotation) == pytest.approx(-float(forward.rotation), abs=2e-3)


@pytest.mark.parametrize("frames", [torch.zeros(3, 16, 32, 32), torch.rand(3, 1, 32, 32), torch.full((1, 4, 5, 5), 0.3)])
def test_nothing_moves_gives_zero_with_zero_confidence(frames):
    motion = estimate_similarity(frames)
    assert motion.velocity.tolist() == [0, 0] and float(motion.rotation) == 0 and float(motion.confidence) == 0


def test_noise_has_little_confidence_and_stays_finite():
    noise = torch.rand(3, 16, 48, 48, generator=torch.Generator().manual_seed(0))
    motion = estimate_similarity(noise)
    assert float(motion.confidence) < 0.5
    assert all(math.isfinite(value) for value in [*motion.velocity.tolist(), float(motion.rotation), float(motion.zoom)])


@pytest.mark.parametrize("cut", [3, 8, 13])
@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_a_cut_between_still_pictures_is_no_motion(cut, noise):
    first, second = (textured_clip(frames=16, seed=seed).video for seed in (1, 51))
    clip = torch.cat([first[:, :cut], second[:, cut:]], dim=1)
    motion = estimate_similarity(clip + noise * torch.randn(clip.shape, generator=torch.Generator().manual_seed(0)))
    speeds = [*motion.velocity.tolist(), float(motion.rotation * motion.radius), float(motion.zoom * motion.radius)]
    assert max(map(abs, speeds)) < 0.1  # pixels per frame
    assert float(motion.confidence) < 0.1


@pytest.mark.parametrize("cut", [3, 8, 13])
def test_a_cut_does_not_disturb_the_motion_on_both_sides(cut):
    first, second = (textured_clip(frames=16, velocity=(1.0, 0.5), seed=seed).video for seed in (2, 52))
    motion = estimate_similarity(torch.cat([first[:, :cut], second[:, cut:]], dim=1))
    assert motion.velocity.tolist() == pytest.approx((1.0, 0.5), abs=0.06)
    assert float(motion.rotation) == pytest.approx(0, abs=0.002)
    assert float(motion.zoom) == pytest.approx(0, abs=0.002)


def test_motion_in_every_third_frame_only_is_motion():
    clip = textured_clip(frames=6, velocity=(1.5, 0.0), seed=3).video.repeat_interleave(3, dim=1)[:, :16]
    motion = estimate_similarity(clip)
    assert motion.velocity.tolist() == pytest.approx((1.5, 0.0), abs=0.06)  # of the pairs that change
    assert float(motion.confidence) > 0.8
