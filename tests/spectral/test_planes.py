"""Planes of clips with known motion: the fitted line is that motion, and the energy lies on it."""

from __future__ import annotations

import math

import pytest
import torch

from phys_pipeline.media.synthetic import textured_clip
from phys_pipeline.spectral import SpectralConfig
from phys_pipeline.spectral.energies import make_lattice
from phys_pipeline.spectral.planes import centroid_over_time, motion_planes
from phys_pipeline.spectral.polar import log_radii

FRAMES, SIDE = 16, 64


def clip(**motion):
    return textured_clip(FRAMES, SIDE, SIDE, seed=1, **motion).video


def share_near_line(plane, bins=1.5):
    """Share of the energy within so many temporal bins of the line."""
    distance = plane.omega_t[:, None] - plane.slope * plane.columns
    distance = (distance + math.pi) % (2 * math.pi) - math.pi
    near = distance.abs() <= bins * 2 * math.pi / FRAMES
    return float((plane.energy * near).sum() / plane.energy.sum())


@pytest.mark.parametrize("velocity", [(1.5, 0.0), (-1.2, 0.0), (0.0, 2.0), (0.8, -0.6), (6.0, 0.0)])
def test_translation_line_is_the_velocity(velocity):
    found = motion_planes(clip(velocity=velocity))
    speed = math.hypot(*velocity)
    assert found.translation.slope == pytest.approx(-speed, rel=0.08)
    assert found.direction == pytest.approx((velocity[0] / speed, velocity[1] / speed), abs=0.08)
    assert share_near_line(found.translation) > 0.75


def test_noise_is_not_near_any_line():
    noise = torch.rand(3, FRAMES, SIDE, SIDE, generator=torch.Generator().manual_seed(0))
    assert share_near_line(motion_planes(noise).translation) < 0.4


@pytest.mark.parametrize("rotation", [0.1, -0.1])
def test_rotation_line_is_minus_the_turn(rotation):
    found = motion_planes(clip(rotation=rotation))
    assert found.rotation.slope == pytest.approx(-rotation, rel=0.15)
    assert found.rotation.columns.tolist()[:2] == [2, 4]


@pytest.mark.parametrize("zoom", [0.05, -0.05])
def test_scaling_line_is_the_growth(zoom):
    config = SpectralConfig.calibrated(patches=1)
    geometry = make_lattice(SIDE, SIDE, FRAMES, config, torch.device("cpu"), torch.float32).geometry
    found = motion_planes(clip(zoom=zoom))
    growth = found.scaling.slope * log_radii(geometry, config)[1] / (2 * math.pi)
    assert 0.7 < growth / zoom < 2.5  # the slope of the moving part is biased high for slow zooms


def test_energy_of_the_mirrored_clip_is_mirrored():
    right, left = motion_planes(clip(velocity=(1.5, 0.0))), motion_planes(clip(velocity=(1.5, 0.0)).flip(3))
    assert left.direction == pytest.approx((-right.direction[0], right.direction[1]), abs=1e-3)
    most = float(right.translation.energy.max())
    assert torch.allclose(left.translation.energy, right.translation.energy, rtol=1e-2, atol=1e-3 * most)


def test_plane_holds_the_whole_spectrum():
    """The half that is not computed is put back: point symmetric, and no bin is lost."""
    plane = motion_planes(clip(velocity=(1.0, 0.5))).translation
    assert torch.allclose(plane.energy, plane.energy.flip(0, 1), rtol=1e-3, atol=1e-4 * float(plane.energy.max()))


def test_centroid_falls_while_things_grow():
    growing, shrinking = centroid_over_time(clip(zoom=0.04)), centroid_over_time(clip(zoom=-0.04))
    assert growing.shape == (FRAMES,)
    assert growing[-4:].mean() < growing[:4].mean() - 0.02
    assert shrinking[-4:].mean() > shrinking[:4].mean() + 0.02


def test_still_and_long_clips():
    still = motion_planes(torch.full((3, 5, 32, 48), 0.5))
    assert still.direction == (1.0, 0.0) and math.isfinite(still.translation.slope)
    assert torch.isfinite(centroid_over_time(textured_clip(40, 32, 48).video)).all()


@pytest.mark.parametrize("shape", [(3, 2, 32, 32), (3, 5, 4, 32), (5, 32, 32)])
def test_what_has_no_motion_is_refused(shape):
    with pytest.raises(ValueError, match="expected"):
        motion_planes(torch.zeros(shape))


def test_the_paper_preset_has_no_such_planes():
    with pytest.raises(ValueError, match="calibrated"):
        motion_planes(torch.zeros(3, 8, 32, 32), SpectralConfig.paper())
