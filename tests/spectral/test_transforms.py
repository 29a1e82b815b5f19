"""Spectra of all patches at once equal FFTs of the cut patches; energies equal the direct sums."""

import math

import pytest
import torch

from phys_pipeline.spectral import lattice, transforms

CPU = torch.device("cpu")


def video(*shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def cut(clip: torch.Tensor, patches: int) -> list[torch.Tensor]:
    """The patches, row by row."""
    height, tops = lattice.patch_starts(clip.shape[-2], patches)
    width, lefts = lattice.patch_starts(clip.shape[-1], patches)
    return [clip[..., y : y + height, x : x + width] for y in tops for x in lefts]


@pytest.mark.parametrize("patches", [1, 2, 3])
@pytest.mark.parametrize("fade", [True, False])
@pytest.mark.parametrize("shape", [(2, 3, 4, 20, 26), (1, 1, 2, 17, 19)])
def test_spectra_are_those_of_the_cut_patches(shape, patches, fade):
    clip = video(*shape)
    blocks = cut(clip, patches)
    height, width = blocks[0].shape[-2:]
    limit_y, limit_x = 3, 2
    found = transforms.patch_spectra(clip, patches, (limit_y, limit_x), fade)
    assert found.shape == (shape[0], patches**2, *shape[1:3], 2 * limit_y + 1, limit_x + 1)
    rows, columns = torch.arange(-limit_y, limit_y + 1), torch.arange(limit_x + 1)
    turns = rows[:, None].double() * (height - 1) / height + columns.double() * (width - 1) / width
    phase = torch.exp(1j * math.pi * turns)
    for index, block in enumerate(blocks):
        apodised = block * lattice.apodisation(height, width, CPU, torch.float64) if fade else block
        full = torch.fft.fft2(apodised)[..., rows, :][..., columns] * phase
        torch.testing.assert_close(found[:, index], full, atol=1e-9, rtol=1e-9)


def test_fade_spectrum_is_that_of_a_patch_of_ones():
    ones = torch.ones(1, 1, 1, 14, 11, dtype=torch.float64)
    expected = transforms.patch_spectra(ones, 1, (3, 2), True)[0, 0, 0, 0]
    torch.testing.assert_close(transforms.fade_spectrum(14, 11, 3, 2, True, CPU, torch.float64), expected)


def test_half_lattice_counts_every_bin_of_the_full_one():
    clip = video(1, 1, 1, 16, 16)
    half = transforms.patch_spectra(clip, 1, (4, 4), False)[0, 0, 0, 0].abs().square()
    full = torch.fft.fft2(clip)[0, 0, 0].abs().square()
    kept = torch.tensor([k for k in range(16) if min(k, 16 - k) <= 4])
    total = (half * transforms.multiplicity(4, 4, CPU, torch.float64)).sum()
    torch.testing.assert_close(total, full[kept][:, kept].sum())


def test_window_matrix_cuts_and_removes_the_weighted_mean():
    spectra = torch.view_as_complex(video(2, 1, 3, 20, 5, 4, 2))
    windows = transforms.over_time(transforms.window_matrix((0, 4), 16, True, CPU, torch.float64), spectra).unflatten(3, (2, 16))
    means = transforms.over_time(transforms.mean_matrix((0, 4), 16, CPU, torch.float64), spectra)
    weights = lattice.hann(16, CPU, torch.float64)
    for index, start in enumerate((0, 4)):
        part = spectra[:, :, :, start : start + 16]
        mean = (part * (weights / weights.sum()).view(-1, 1, 1)).sum(dim=3)
        torch.testing.assert_close(means[:, :, :, index], mean)
        torch.testing.assert_close(windows[:, :, :, index], part - mean[:, :, :, None])


@pytest.mark.parametrize("patches", [1, 3])
@pytest.mark.parametrize("fade", [True, False])
def test_pixel_energies_are_the_direct_sums(patches, fade):
    clip = video(2, 3, 20, 18, 22)
    scale = torch.tensor([0.5, 4.0], dtype=torch.float64)
    moving, total = transforms.pixel_energies(clip, (0, 4), 16, patches, fade, scale)
    weights = lattice.hann(16, CPU, torch.float64)
    weights = (weights / weights.sum()).view(-1, 1, 1)
    for window, start in enumerate((0, 4)):
        for patch, block in enumerate(cut(clip[:, :, start : start + 16] * scale.view(-1, 1, 1, 1, 1), patches)):
            size = block.shape[-2:]
            a = lattice.apodisation(*size, CPU, torch.float64) if fade else torch.ones(size, dtype=torch.float64)
            mean = (block * weights).sum(dim=2, keepdim=True)
            expected = (((block - mean) * a).square() * weights).sum(dim=(1, 2, 3, 4))
            still = (mean - (mean * a).sum(dim=(3, 4), keepdim=True) / a.sum()) * a
            torch.testing.assert_close(moving[:, patch, window], expected)
            torch.testing.assert_close(total[:, patch, window], expected + still.square().sum(dim=(1, 2, 3, 4)))


def test_a_still_clip_has_exactly_no_moving_energy_at_any_brightness():
    picture = torch.rand(1, 3, 1, 20, 20, generator=torch.Generator().manual_seed(1))
    for clip in (picture, 1e-3 * picture + 0.7, 1e6 + 1e3 * picture):
        moving, total = transforms.pixel_energies(clip.expand(-1, -1, 16, -1, -1), (0,), 16, 3, True, torch.ones(1))
        assert float(moving.abs().max()) == 0 and float(total.min()) > 0
