"""The literal implementation that the cost is compared with computes the same numbers and gradients as the paper preset."""

import pytest
import torch

from benchmarks.reference_loss import reference_loss
from phys_pipeline.media.synthetic import textured_clip
from phys_pipeline.spectral import SpectralConfig, SpectralMotionLoss


@pytest.mark.parametrize(("frames", "height", "width"), [(16, 24, 24), (20, 17, 30), (2, 16, 16)])
def test_it_equals_the_paper_preset(frames, height, width):
    clip = textured_clip(velocity=(1.2, -0.4), rotation=0.03, frames=frames, height=height, width=width, seed=1)
    video = clip.video.double()[None].requires_grad_(True)
    literal, ours = reference_loss(video), SpectralMotionLoss(SpectralConfig.paper())(video).loss
    torch.testing.assert_close(literal, ours, rtol=1e-9, atol=1e-12)
    gradients = [torch.autograd.grad(loss, video)[0] for loss in (literal, ours)]
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-6, atol=1e-12)
