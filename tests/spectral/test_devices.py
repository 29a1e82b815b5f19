"""The loss on an accelerator equals the loss on the processor; skipped where there is none (benchmarks/gpu_check.sh runs it)."""

import pytest
import torch

from phys_pipeline.media.synthetic import textured_clip
from phys_pipeline.spectral import SpectralConfig, SpectralMotionLoss, analyze

DEVICES = [
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")),
    pytest.param("mps", marks=pytest.mark.skipif(not torch.backends.mps.is_available(), reason="no MPS device")),
]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("preset", ["calibrated", "paper"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_loss_and_gradient_equal_those_of_the_processor(device, preset, dtype):
    loss = SpectralMotionLoss(getattr(SpectralConfig, preset)())
    clip = textured_clip(velocity=(1.2, -0.4), rotation=0.03, frames=20, height=48, width=64, seed=1).video[None].to(dtype)
    found = []
    for place in ("cpu", device):
        video = clip.to(place).requires_grad_(True)
        output = loss(video, reference=clip.to(place).flip(-1))
        (output.loss + output.translation).backward()
        assert output.loss.device.type == place and all(value.device.type == place for value in output.diagnostics.values())
        found.append((output.loss.detach().cpu(), video.grad.float().cpu()))
    torch.testing.assert_close(found[0][0], found[1][0], atol=1e-4, rtol=1e-3)
    difference = (found[0][1] - found[1][1]).norm() / found[0][1].norm().clamp_min(1e-12)
    assert float(difference) < 2e-2


@pytest.mark.parametrize("device", DEVICES)
def test_report_equals_that_of_the_processor(device):
    clip = textured_clip(velocity=(1.2, -0.4), frames=24, height=48, width=64, seed=1).video
    ours, theirs = analyze(clip, fps=12.0), analyze(clip.to(device), fps=12.0)
    assert theirs.loss == pytest.approx(ours.loss, abs=1e-3)
    assert theirs.velocity_px_per_s == pytest.approx(ours.velocity_px_per_s, rel=1e-2)
    assert theirs.dominant == ours.dominant
