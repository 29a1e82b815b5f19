import math

import pytest
import torch

from phys_pipeline.errors import ConfigError
from phys_pipeline.spectral import SpectralConfig
from training.objectives.coherence_weighted import CoherenceWeights

CONFIG = SpectralConfig.calibrated()


def clip(jitter=0.0, frames=16, size=32, seed=0):
    """A blob that travels to the right (3, T, H, W), with `jitter` pixels of random displacement per frame."""
    generator = torch.Generator().manual_seed(seed)
    grid = torch.arange(size).float()
    x = 6 + torch.arange(frames).float() + jitter * torch.randn(frames, generator=generator)
    rows = torch.exp(-((grid - size / 2) ** 2) / 8)
    return (rows[None, :, None] * torch.exp(-((grid - x[:, None]) ** 2) / 8)[:, None, :]).expand(3, frames, size, size)


def test_coherent_clips_weigh_more_and_calibration_makes_the_mean_one():
    weights = CoherenceWeights(CONFIG)
    clips = [clip(), clip(jitter=2.0), clip(jitter=4.0)]
    weights.calibrate(enumerate(clips))
    maps = weights(torch.stack(clips), [0, 1, 2])
    assert maps.shape == (3, 1, 16, 32, 32) and (maps >= 0).all()
    means = maps.mean(dim=(1, 2, 3, 4))
    assert means[0] > 1 > means[2]
    values = torch.cat([weights._weight(weights._blocks(i, c).loss).flatten() for i, c in enumerate(clips)])
    assert math.isclose(float(values[torch.isfinite(values)].mean() / weights.mean), 1.0, rel_tol=1e-5)


def test_good_parts_of_a_clip_still_teach():
    half = torch.cat([clip(frames=24), clip(jitter=4.0, frames=24)], dim=1)
    weight = CoherenceWeights(CONFIG)(half[None], [0])[0, 0].mean(dim=(1, 2))
    assert weight[:16].mean() > 1.2 * weight[32:].mean()


def test_the_map_is_a_mean_of_block_weights():
    weights = CoherenceWeights(CONFIG)
    still = torch.rand(3, 1, 32, 32).expand(3, 16, 32, 32)
    assert torch.allclose(weights(still[None], [0]), torch.ones(1, 1, 16, 32, 32), atol=1e-5)  # still blocks weigh 1
    weights = CoherenceWeights(CONFIG)
    weights.mean = 0.5
    blocks = weights._blocks(1, clip())
    filled = torch.nan_to_num(weights._weight(blocks.loss) / 0.5, nan=1.0)
    weight = weights(clip()[None], [1])
    assert filled.min() - 1e-5 <= weight.min() and weight.max() <= filled.max() + 1e-5


def test_a_clip_is_scored_once_and_strength_zero_changes_nothing():
    calls = []

    def decode(latents):
        calls.append(latents.shape)
        return latents

    weights = CoherenceWeights(CONFIG, decode=decode)
    both = torch.stack([clip(), clip(jitter=2.0)])
    first = weights(both, [3, 4])
    assert torch.equal(weights(both.flip(0), [4, 3]), first.flip(0)) and len(calls) == 2  # cached, and no clip sees another
    assert torch.equal(CoherenceWeights(CONFIG, strength=0.0)(both, [3, 4]), torch.ones(2, 1, 16, 32, 32))


def test_behind_the_gate_the_most_coherent_weigh_alike_and_the_broken_as_little_as_before():
    """Without a gate one very coherent clip takes the weight of all others; with it the coherent half shares it."""
    clips = torch.stack(
        [clip(jitter=jitter, seed=place) for place, jitter in enumerate((0.0, 0.2, 0.3, 0.4, 3.0, 4.0, 5.0, 6.0))]
    )

    def means(gate):
        weights = CoherenceWeights(CONFIG, tau=0.02, gate=gate)
        weights.calibrate(enumerate(clips))
        return weights(clips, range(8)).mean(dim=(1, 2, 3, 4))

    free, gated = means(0.0), means(0.5)
    assert free[0] > 3 * free[3] and gated[:4].max() < 1.5 * gated[:4].min()
    assert gated[4:].max() < 0.1 * gated[:4].min()


def test_weights_that_a_few_blocks_carry_are_pointed_out(caplog):
    clips = [clip(jitter=0.5 * place, seed=place) for place in range(40)]
    CoherenceWeights(CONFIG, tau=0.5).calibrate(enumerate(clips))
    assert not caplog.records
    CoherenceWeights(CONFIG, tau=0.01).calibrate(enumerate(clips))
    assert "set coherence_gate=0.5" in caplog.text
    caplog.clear()
    broken = CoherenceWeights(CONFIG, tau=0.01)
    broken.calibrate(enumerate(clip(jitter=4.0 + place, seed=place) for place in range(8)))  # all losses are high
    assert "set coherence_gate=0.5" in caplog.text and "nan" not in caplog.text
    with pytest.raises(ConfigError, match="every weight is 0"):  # all blocks would have counted for nothing, unsaid
        CoherenceWeights(CONFIG, tau=1e-4).calibrate(enumerate(clips))
    CoherenceWeights(CONFIG, tau=1e-4, gate=0.5).calibrate(enumerate(clips))


def test_pixel_blocks_are_mapped_to_the_latent_grid():
    def decode(latents):  # 5 latent frames of 4 x 4 -> 17 pictures of 32 x 32
        assert latents.shape[2:] == (5, 4, 4)
        return clip(jitter=2.0, frames=17)[None]

    weights = CoherenceWeights(CONFIG, decode=decode, drop_first=True)
    weight = weights(torch.zeros(1, 8, 5, 4, 4), [0])
    assert weight.shape == (1, 1, 5, 4, 4) and torch.isfinite(weight).all()
    latent = CoherenceWeights(CONFIG, drop_first=True)(clip(frames=9)[None], [0])
    assert latent.shape == (1, 1, 9, 32, 32) and torch.equal(latent[:, :, 0], latent[:, :, 1])


def test_a_clip_that_is_not_finite_counts_in_full():
    bad = CoherenceWeights(CONFIG, decode=lambda latents: latents * math.nan)
    bad.calibrate([(0, clip())])
    assert torch.allclose(bad(clip()[None], [0]), torch.ones(1, 1, 16, 32, 32), atol=1e-5)
