import torch

from training.objectives.ltd import DifferenceWeights


def half_moving(batch=2):
    """Latents whose left half is still."""
    x0 = torch.randn(batch, 4, 5, 6, 8)
    x0[..., :4] = x0[:, :, :1, :, :4]
    return x0


def test_weights_have_mean_one_and_grow_with_the_change():
    x0 = half_moving()
    weight = DifferenceWeights()(x0)
    assert weight.shape == (2, 1, 5, 6, 8) and torch.allclose(weight.mean(dim=(1, 2, 3, 4)), torch.ones(2), atol=1e-5)
    assert (weight[..., :4] == 0).all() and (weight[..., 4:] > 0).all()
    half = DifferenceWeights(0.5)(x0)
    assert torch.allclose(half, 1 + 0.5 * (weight - 1)) and torch.equal(DifferenceWeights(0.0)(x0), torch.ones_like(weight))


def test_known_weights():
    x0 = torch.tensor([0.0, 1.0, 1.0, 4.0]).view(1, 1, 4, 1, 1)
    change = torch.tensor([1.0, 1.0, 0.0, 3.0])  # the first frame takes the second's
    expected = torch.log1p(change / 1.25)
    assert torch.allclose(DifferenceWeights()(x0).flatten(), expected / expected.mean())
    later = DifferenceWeights(drop_first=True)(x0).flatten()  # the step from the odd first frame is not counted
    assert later[0] == later[1] == later[2] == 0 and later[3] > 0


def test_still_and_single_frames_weigh_one_and_clips_do_not_mix():
    assert torch.equal(DifferenceWeights()(torch.ones(1, 2, 4, 3, 3)), torch.ones(1, 1, 4, 3, 3))
    assert torch.equal(DifferenceWeights()(torch.randn(1, 2, 1, 3, 3)), torch.ones(1, 1, 1, 3, 3))
    x0 = half_moving(3)
    alone = torch.cat([DifferenceWeights()(clip[None]) for clip in x0])
    assert torch.allclose(DifferenceWeights()(x0), alone)
