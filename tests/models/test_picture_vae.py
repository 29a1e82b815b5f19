"""A picture autoencoder over a video's frames."""

import torch
from tiny_mvdit import tiny_vae

from phys_pipeline.models.picture_vae import FRAMES_AT_ONCE, decode_frames, encode_frames


def test_every_frame_is_encoded_and_decoded_alone_a_few_at_a_time(monkeypatch):
    vae = tiny_vae()
    video = torch.rand(2, 3, 5, 16, 24, generator=torch.Generator().manual_seed(0)) * 2 - 1
    sizes = []
    encode = vae.encode
    monkeypatch.setattr(vae, "encode", lambda x: sizes.append(len(x)) or encode(x))
    with torch.no_grad():
        latents = encode_frames(vae, video)
        decoded = decode_frames(vae, latents)
        alone = encode(video[1, :, 3][None]).latent_dist.mode()
    assert sizes == [FRAMES_AT_ONCE, FRAMES_AT_ONCE, 2]
    assert latents.shape == (2, 4, 5, 2, 3) and decoded.shape == video.shape
    assert torch.allclose(latents[1, :, 3], alone[0], atol=1e-5)
    with torch.no_grad():
        assert torch.allclose(decoded[1, :, 3], vae.decode(alone).sample[0], atol=1e-5)


def test_a_generator_draws_from_the_posterior_and_repeats():
    vae, video = tiny_vae(), torch.zeros(1, 3, 5, 16, 16)

    def sample(seed):
        with torch.no_grad():
            return encode_frames(vae, video, torch.Generator().manual_seed(seed))

    assert torch.equal(sample(1), sample(1)) and not torch.equal(sample(1), sample(2))
    assert not torch.equal(sample(1)[:, :, 0], sample(1)[:, :, 4])


def test_gradients_reach_the_latents():
    vae = tiny_vae()
    latents = torch.randn(1, 4, 6, 2, 2, requires_grad=True)
    decode_frames(vae, latents)[:, :, 5].square().sum().backward()
    assert latents.grad[:, :, 5].any() and not latents.grad[:, :, :5].any()
