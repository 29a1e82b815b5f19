"""FrameAutoencoder: interface, independence of frames, and a round trip through its folder."""

from __future__ import annotations

import pytest
import torch

from phys_pipeline.errors import ModelError
from phys_pipeline.models import FrameAutoencoder


@pytest.fixture(scope="module")
def model() -> FrameAutoencoder:
    torch.manual_seed(0)
    return FrameAutoencoder().eval()


@pytest.fixture
def video() -> torch.Tensor:
    return torch.rand(2, 3, 5, 32, 48, generator=torch.Generator().manual_seed(1)) * 2 - 1


@torch.no_grad()
def test_sizes_and_return_forms(model: FrameAutoencoder, video: torch.Tensor):
    latents = model.encode(video).latent_dist.mode()
    assert latents.shape == (2, 16, 5, 4, 6)
    assert torch.equal(latents, model.encode(video).latent_dist.sample()) and torch.equal(
        latents, model.encode(video, False)[0].mode()
    )
    pixels = model.decode(latents).sample
    assert pixels.shape == video.shape
    assert torch.equal(pixels, model.decode(latents, return_dict=False)[0]) and torch.equal(pixels, model(video).sample)
    assert (model.temporal_compression_ratio, model.spatial_compression_ratio) == (1, 8)
    assert sum(p.numel() for p in model.parameters()) < 1.5e6


@torch.no_grad()
def test_no_frame_or_clip_sees_another(model: FrameAutoencoder, video: torch.Tensor):
    whole = model.encode(video).latent_dist.mode()
    alone = model.encode(video[1:, :, 3:4]).latent_dist.mode()
    assert torch.allclose(whole[1:, :, 3:4], alone, atol=1e-5)
    decoded = model.decode(whole).sample
    assert torch.allclose(decoded[:1, :, 2:3], model.decode(whole[:1, :, 2:3]).sample, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@torch.no_grad()
def test_half_precision_keeps_its_dtype_and_nearly_its_values(model: FrameAutoencoder, video: torch.Tensor, dtype: torch.dtype):
    half = FrameAutoencoder.from_config(model.config).to(dtype)
    half.load_state_dict(model.state_dict())
    pixels = half(video.to(dtype)).sample
    assert pixels.dtype == dtype
    assert (pixels.float() - model(video).sample).abs().max() < 0.05


def test_wrong_sizes_are_refused_with_what_to_do(model: FrameAutoencoder):
    with pytest.raises(ModelError, match="multiples of 8"):
        model.encode(torch.zeros(1, 3, 2, 60, 64))
    with pytest.raises(ModelError, match="multiples of 8"):
        model.encode(torch.zeros(1, 3, 2, 64, 12))
    with pytest.raises(ModelError, match="batch, 3, frames"):
        model.encode(torch.zeros(3, 2, 64, 64))
    with pytest.raises(ModelError, match="16, frames"):
        model.decode(torch.zeros(1, 4, 2, 8, 8))


def test_memory_switches_are_accepted_and_change_nothing(model: FrameAutoencoder, video: torch.Tensor):
    with torch.no_grad():
        before = model(video).sample
        model.enable_tiling()
        model.enable_slicing()
        assert torch.equal(before, model(video).sample)
        model.disable_tiling()
        model.disable_slicing()


def test_folder_round_trip_keeps_weights_and_scaling_factor(tmp_path, model: FrameAutoencoder, video: torch.Tensor):
    model.register_to_config(scaling_factor=0.42)
    model.save_pretrained(tmp_path)
    loaded = FrameAutoencoder.from_pretrained(tmp_path)
    assert loaded.config.scaling_factor == 0.42 and loaded.config.latent_channels == 16
    with torch.no_grad():
        assert torch.equal(loaded(video).sample, model(video).sample)


def test_gradients_reach_every_parameter(model: FrameAutoencoder, video: torch.Tensor):
    fresh = FrameAutoencoder()
    with torch.no_grad():  # residual blocks start as the identity, which stops the gradient of their first half
        for parameter in fresh.parameters():
            parameter.add_(0.01)
    fresh(video).sample.square().mean().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in fresh.parameters())
