"""Pace: even motion has none at any speed, interruptions do, and its gradient doesn't pay for added energy."""

import pytest
import torch

from phys_pipeline.media.corruptions import corrupt
from phys_pipeline.media.synthetic import object_clip, textured_clip
from phys_pipeline.spectral import SpectralConfig, SpectralMotionLoss
from phys_pipeline.spectral.pace import pace_loss

CONFIG = SpectralConfig.calibrated()


def spectrum_of(amplitudes):
    """Energies (1, T) and neighbours' inner products (1, T - 1) of one bin whose value moves along a line by the given steps."""
    path = torch.cumsum(torch.tensor([0.0, *amplitudes], dtype=torch.float64), 0)[None]
    return path.square(), path[:, 1:] * path[:, :-1]


def pace(amplitudes, floor=0.0):
    return float(pace_loss(*spectrum_of(amplitudes), torch.full((1,), floor, dtype=torch.float64), CONFIG))


def test_known_values():
    assert pace([3.0] * 8) == 0.0
    assert pace([2.0, 0.0] * 4 + [2.0]) == pytest.approx(8 * 4 / (5 * 4), rel=0.02)  # every other frame a repeat
    assert pace([1.0, 1.0, 1.0, 5.0, 1.0, 1.0]) == pytest.approx(2 * 16 / 30, rel=0.02)  # one jump
    assert pace([1.0, 2.0]) == pytest.approx(1 / 5, rel=1e-3) and pace([1.0]) == 0.0
    assert pace([0.0] * 5) == 0.0
    assert pace([1.0, 2.0], floor=2.5) == pytest.approx(1 / 10, rel=1e-3)


def test_speed_and_direction_of_time_do_not_matter():
    steps = [1.0, 3.0, 2.0, 2.5]
    assert pace(steps) == pytest.approx(pace([7 * step for step in steps]), rel=1e-9)
    assert pace(steps) == pytest.approx(pace(steps[::-1]), rel=1e-9)


@pytest.mark.parametrize("motion", [{"velocity": (1.3, 0.4)}, {"rotation": 0.1}, {"zoom": 0.03}])
def test_even_motion_is_near_zero_and_interruptions_are_not(motion):
    loss = SpectralMotionLoss()
    clips = [textured_clip(**motion, seed=3).video[None], object_clip("star", "white", centre=(30.0, 30.0), **motion).video[None]]
    for clip in clips:
        values = loss(clip, "none").diagnostics["pace"]
        assert float(values) < 0.06
        for kind in ("stutter", "teleport", "cut"):
            assert float(loss(corrupt(clip, kind, 1.0, seed=0), "none").diagnostics["pace"]) > 4 * float(values) + 0.02, kind


def test_half_speed_is_not_rewarded():
    loss = SpectralMotionLoss()
    fast, slow = (textured_clip(velocity=(v, 0.0), seed=5).video[None] for v in (2.0, 1.0))
    assert abs(float(loss(fast).diagnostics["pace"]) - float(loss(slow).diagnostics["pace"])) < 0.02


def test_gradient_is_finite_at_repeated_frames_and_zero_where_nothing_moves():
    clip = corrupt(textured_clip(velocity=(1.0, 0.0), seed=1).video[None], "stutter", 1.0, seed=0)
    for video in (clip, torch.full((1, 3, 16, 32, 32), 0.5)):
        leaf = video.clone().requires_grad_(True)
        SpectralMotionLoss(SpectralConfig.calibrated(pace_weight=1.0))(leaf).loss.backward()
        assert torch.isfinite(leaf.grad).all()


def test_the_weight_adds_the_term_and_the_paper_has_none():
    clip = corrupt(textured_clip(velocity=(1.0, 0.5), seed=2).video[None], "teleport", 1.0, seed=0)
    without, with_it = (
        SpectralMotionLoss(SpectralConfig.calibrated(pace_weight=w, coherence_weight=0.0))(clip, "none") for w in (0.0, 0.2)
    )
    assert float(with_it.loss - without.loss) == pytest.approx(0.2 * float(with_it.diagnostics["pace"]), abs=1e-6)
    assert float(without.diagnostics["pace"]) == 0.0 and SpectralConfig.paper().pace_weight == 0.0
