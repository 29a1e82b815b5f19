"""Sums over blocks: their value, their gradient, and how little they hold."""

import torch

from phys_pipeline.spectral import SpectralConfig
from phys_pipeline.spectral.blocks import block_power, faded_blocks, half_plane, sum_over_blocks


def blocks_of(video):
    return list(faded_blocks(video.shape, SpectralConfig.calibrated(), video.device, video.dtype))


def test_the_power_of_all_blocks_is_that_of_the_video():
    """Squared fades sum to one at every sample, and the transform keeps energy (Parseval)."""
    video = torch.rand(2, 3, 20, 17, 33, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    blocks = blocks_of(video)
    assert len(blocks) == 2 * 9
    twice = half_plane(*blocks[0][1].shape[1:], video.device, video.dtype)[2]
    total = sum((block_power(video[place] * fade) * twice).sum(dim=(1, 2, 3)) for place, fade in blocks)
    torch.testing.assert_close(total, video.square().sum(dim=(1, 2, 3, 4)))


def test_a_sum_over_blocks_has_the_gradient_of_the_plain_sum():
    generator = torch.Generator().manual_seed(1)
    video = torch.rand(2, 1, 18, 16, 16, generator=generator, dtype=torch.float64, requires_grad=True)
    blocks = blocks_of(video)

    def of_block(index, block):
        return (index + 1) * (block * blocks[index][1]).pow(3).sum(dim=(1, 2, 3, 4))

    outer = torch.tensor([2.0, -1.0], dtype=torch.float64)
    found = sum_over_blocks(video, [place for place, _ in blocks], of_block)
    plain = sum(of_block(index, video[place]) for index, (place, _) in enumerate(blocks))
    torch.testing.assert_close(found, plain)
    torch.testing.assert_close(*(torch.autograd.grad(value @ outer, video)[0] for value in (found, plain)))
    assert not sum_over_blocks(video.detach(), [place for place, _ in blocks], of_block).requires_grad
