import torch

from training.objectives.crop import Crop


def places(shape, crop, seeds):
    """Where each seed's piece begins, read off latents that hold their own coordinates."""
    axes = torch.meshgrid(*(torch.arange(n).float() for n in shape), indexing="ij")
    latents = torch.stack(axes).expand(len(seeds), 3, *shape)
    pieces = crop(latents, seeds)
    starts = pieces[:, :, 0, 0, 0]
    steps = torch.stack(torch.meshgrid(*(torch.arange(n).float() for n in pieces.shape[2:]), indexing="ij"))
    assert torch.equal(pieces, starts[:, :, None, None, None] + steps)  # contiguous, nothing resampled
    return [tuple(int(x) for x in row) for row in starts]


def test_pieces_are_contiguous_and_every_place_is_as_likely():
    found = places((7, 4, 5), Crop(5, 3), list(range(3000)))
    assert set(found) == {(t, y, x) for t in range(3) for y in range(2) for x in range(3)}
    counts = torch.tensor([found.count(place) for place in sorted(set(found))]).float()
    assert (counts - 3000 / 18).abs().max() < 5 * (3000 / 18) ** 0.5


def test_a_piece_depends_on_its_seed_alone():
    latents = torch.randn(3, 2, 6, 5, 5)
    crop = Crop(3, 2)
    together = crop(latents, [5, 6, 7])
    assert torch.equal(together, torch.cat([crop(latents[i : i + 1], [5 + i]) for i in range(3)]))


def test_none_and_too_large_keep_the_axis():
    latents = torch.randn(1, 2, 4, 5, 6)
    assert torch.equal(Crop()(latents, [0]), latents) and torch.equal(Crop(9, 9)(latents, [0]), latents)
    assert Crop(3)(latents, [0]).shape == (1, 2, 3, 5, 6) and Crop(None, 2)(latents, [0]).shape == (1, 2, 4, 2, 2)
