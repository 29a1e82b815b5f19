import golden_data
import pytest
import torch
from tiny_open_sora import tiny_vae
from torch import nn

from phys_pipeline.errors import ModelError
from phys_pipeline.models.open_sora_vae import AutoencoderKLOpenSora, latent_frames
from phys_pipeline.models.picture_vae import SCALING_FACTOR

NAME = "opensora_vae_temporal_tiny"


@pytest.fixture(scope="module")
def vae():
    return tiny_vae()


@pytest.fixture
def identity(vae, monkeypatch):
    """The autoencoder with nothing done to pictures, as the golden numbers were made."""
    monkeypatch.setattr(vae, "encode_pictures", lambda video, generator=None: video)
    monkeypatch.setattr(vae, "decode_pictures", lambda latents: latents)
    monkeypatch.setitem(vae.spatial_vae.config, "in_channels", 4)
    return vae


@pytest.mark.parametrize("frames", [1, 5, 8, 17])
def test_the_half_along_time_gives_the_reference_s_numbers(vae, frames):
    given = golden_data.group(NAME, f"inputs.frames{frames}.")["x"]
    expected = golden_data.group(NAME, f"outputs.frames{frames}.")
    with torch.no_grad():
        moments = vae.temporal_vae.encode(given)
        decoded = vae.temporal_vae.decode(moments.chunk(2, dim=1)[0], frames)
    torch.testing.assert_close(moments, expected["moments"], atol=2e-5, rtol=1e-4)
    torch.testing.assert_close(decoded, expected["decoded_from_mean"], atol=2e-5, rtol=1e-4)


def test_chunks_and_normalisation_of_a_long_clip(identity):
    """40 frames: chunks of 17, 17 and 6 give 5, 5 and 2 latents, then shift and scale per channel."""
    given = golden_data.group(NAME, "inputs.pipeline.")["x"]
    expected = golden_data.group(NAME, "outputs.pipeline.")
    with torch.no_grad():
        z = identity.normalise(identity.encode(given).latent_dist.mode())
        decoded = identity.decode(identity.denormalise(z), num_frames=40).sample
    torch.testing.assert_close(z, expected["z"], atol=2e-5, rtol=1e-4)
    torch.testing.assert_close(decoded, expected["decoded"], atol=2e-5, rtol=1e-4)
    assert not torch.allclose(identity.encode(given).latent_dist.mode(), expected["z"], atol=0.1)


def test_latent_frames():
    known = {1: 1, 5: 2, 8: 2, 17: 5, 40: 12, 51: 15, 102: 30, 204: 60}
    assert {frames: latent_frames(frames) for frames in known} == known


def test_pictures_are_scaled_by_the_factor_of_the_older_autoencoder(vae):
    video = torch.rand(1, 3, 5, 16, 16, generator=torch.Generator().manual_seed(0)) * 2 - 1
    with torch.no_grad():
        latents = vae.encode_pictures(video)
        alone = vae.spatial_vae.encode(video[:, :, 4]).latent_dist.mode()
        again = vae.spatial_vae.decode(latents[:, :, 4] / SCALING_FACTOR).sample
        torch.testing.assert_close(latents[:, :, 4], 0.18215 * alone)
        torch.testing.assert_close(vae.decode_pictures(latents)[:, :, 4], again, atol=1e-5, rtol=1e-4)


def test_whole_video_shapes_slicing_and_tiling(vae):
    video = torch.rand(2, 3, 22, 16, 24, generator=torch.Generator().manual_seed(0)) * 2 - 1
    with torch.no_grad():
        latents = vae.encode(video).latent_dist.mode()
        decoded = vae.decode(latents, num_frames=22).sample
        vae.enable_slicing()
        sliced = vae.decode(vae.encode(video).latent_dist.mode(), num_frames=22).sample
        vae.disable_slicing()
        vae.enable_tiling()
        assert vae.spatial_vae.use_tiling
        tiled = vae(video[:1, :, :5].repeat(1, 1, 1, 4, 4)).sample
        vae.disable_tiling()
    assert latents.shape == (2, 4, 7, 2, 3) and decoded.shape == video.shape and tiled.shape == (1, 3, 5, 64, 96)
    torch.testing.assert_close(sliced, decoded, atol=1e-5, rtol=1e-4)


def test_frames_that_do_not_fit_the_latents_are_refused(vae):
    with pytest.raises(ModelError, match="18 frames have 6 latents, not 5"):
        vae.decode(torch.zeros(1, 4, 5, 2, 2), num_frames=18)
    with pytest.raises(ModelError, match="shape"):
        vae.encode(torch.zeros(1, 4, 16, 16))


def test_saved_and_loaded_it_is_the_same(vae, tmp_path):
    vae.save_pretrained(tmp_path)
    again = AutoencoderKLOpenSora.from_pretrained(tmp_path)
    assert again.config["spatial"]["block_out_channels"] == [8, 8, 8, 8] and again.config["widths"] == [8, 16, 16, 32]
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in vae.state_dict().items())
    low = AutoencoderKLOpenSora.from_pretrained(tmp_path, torch_dtype=torch.bfloat16)
    assert low.dtype == torch.bfloat16 and torch.equal(low.latents_scale, vae.latents_scale)


def test_the_released_size_is_exact():
    with torch.device("meta"):
        vae = AutoencoderKLOpenSora()

    def millions(module: nn.Module) -> float:
        return round(sum(p.numel() for p in module.parameters()) / 1e6, 2)

    assert (millions(vae.spatial_vae), millions(vae.temporal_vae)) == (83.65, 309.69)
    assert sum(b.numel() for b in vae.buffers()) == 8
