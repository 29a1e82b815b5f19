"""The paper preset computes the paper's formulas: against a slow float64 loop written from the equations (reference.py)."""

import math

import numpy as np
import pytest
import torch

from phys_pipeline.media.synthetic import object_clip, textured_clip
from phys_pipeline.spectral import SpectralConfig, SpectralMotionLoss
from tests.spectral.reference import paper_loss

CLIPS = {
    "translation": lambda: textured_clip(velocity=(1.3, -0.7), frames=8, height=20, width=20, seed=1).video,
    "rotation, not square": lambda: textured_clip(rotation=0.1, frames=7, height=17, width=26, seed=2).video,
    "object": lambda: object_clip("bar", "red", velocity=(0.6, 0.3), rotation=0.1, frames=9, height=24, width=24, radius=6).video,
    "noise": lambda: torch.rand(3, 6, 15, 18, generator=torch.Generator().manual_seed(0)),
    "two frames": lambda: torch.rand(2, 2, 16, 16, generator=torch.Generator().manual_seed(1)),
}


@pytest.mark.parametrize("name", CLIPS)
def test_paper_preset_equals_the_slow_reference(name):
    video = CLIPS[name]().double()
    output = SpectralMotionLoss(SpectralConfig.paper())(video[None], "none")
    ours = [float(value) for value in (output.loss, output.translation, output.rotation, output.scaling)]
    assert ours == pytest.approx(paper_loss(video.numpy()), rel=1e-8, abs=1e-10)


def test_float32_stays_close_to_the_reference():
    video = CLIPS["object"]()
    assert float(SpectralMotionLoss(SpectralConfig.paper())(video[None]).loss) == pytest.approx(
        paper_loss(video.double().numpy())[0], rel=1e-4
    )


def test_windows_of_a_long_clip_are_averaged():
    video = textured_clip(velocity=(1.0, 0.4), frames=20, height=16, width=16, seed=3).video.double()
    windows = [paper_loss(video[:, start : start + 16].numpy())[0] for start in (0, 4)]
    assert float(SpectralMotionLoss(SpectralConfig.paper())(video[None]).loss) == pytest.approx(np.mean(windows), rel=1e-8)


def test_the_reference_itself_knows_a_still_picture_and_a_flat_spectrum():
    """A still clip has energy at omega_t = 0 only: residuals are the gate's constant on empty bins, C_ring that of a frame."""
    picture = textured_clip(frames=1, height=16, width=16, seed=4).video.double().expand(-1, 8, -1, -1)
    composite, plane, turn, growth = paper_loss(picture.numpy())
    assert growth == pytest.approx(1.0, abs=1e-6)  # no ring changes, so both proxies are 0
    assert 0 < plane < 0.2 and 0 < turn < 0.5 and math.isfinite(composite)
