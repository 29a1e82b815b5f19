import itertools
import math

import pytest
import torch

from phys_pipeline.spectral import lattice

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("frames", "expected"), [(1, [0]), (15, [0]), (16, [0]), (17, [0, 1]), (24, [0, 8]), (30, [0, 8, 14]), (32, [0, 8, 16])]
)
def test_windows_cover_every_frame_and_end_at_the_last(frames, expected):
    starts = lattice.window_starts(frames, 16, 8)
    assert starts == expected
    covered = {frame for start in starts for frame in range(start, min(start + 16, frames))}
    assert covered == set(range(frames))


@pytest.mark.parametrize("length", range(16, 41))
@pytest.mark.parametrize("patches", [1, 2, 3, 4])
def test_patches_cover_the_frame_symmetrically(length, patches):
    side, starts = lattice.patch_starts(length, patches)
    assert len(starts) == patches and starts[0] == 0 and starts[-1] + side == length
    assert [length - side - start for start in reversed(starts)] == starts
    assert all(later - earlier <= side for earlier, later in itertools.pairwise(starts))


def test_cut_places_every_block():
    video = torch.arange(2 * 1 * 20 * 16 * 18, dtype=torch.float64).reshape(2, 1, 20, 16, 18)
    blocks, starts = lattice.cut(video, 16, 8, 2)
    height, tops = lattice.patch_starts(16, 2)
    width, lefts = lattice.patch_starts(18, 2)
    assert blocks.shape == (2, 2, 4, 1, 16, height, width) and starts == [0, 4]
    assert torch.equal(blocks[1, 1, 2], video[1, :, 4:20, tops[1] : tops[1] + height, lefts[0] : lefts[0] + width])


def test_kept_bins_follow_the_written_rule():
    assert lattice.kept_bins(64, 0.3) == list(range(-9, 10))
    assert lattice.kept_bins(4, 0.3) == [-1, 0, 1]
    assert lattice.kept_bins(64, 0.3, one_sided=True) == list(range(0, 19))
    assert lattice.kept_bins(16, 1.0, exclude_nyquist=True) == list(range(-7, 8))
    assert lattice.kept_bins(1, 0.3) == [0]


@pytest.mark.parametrize("shape", [(8, 8), (7, 10), (9, 5)])
def test_pruned_dft_equals_the_fft_up_to_its_phase_origin(shape):
    height, width = shape
    blocks = torch.randn(2, 3, 4, height, width, dtype=torch.float64)
    rows, columns = (tuple(lattice.kept_bins(side, 1.0)) for side in shape)
    ours = lattice.spatial_spectrum(blocks, rows, columns)
    full = torch.fft.fft2(blocks)[..., list(rows), :][..., list(columns)]
    phase_y, phase_x = (
        torch.exp(1j * math.pi * torch.tensor(bins, dtype=torch.float64) * (side - 1) / side)
        for bins, side in ((rows, height), (columns, width))
    )
    torch.testing.assert_close(ours, full * phase_y[:, None] * phase_x, atol=1e-10, rtol=1e-10)


def test_time_spectrum_is_the_windowed_dft_along_any_axis():
    signal = torch.randn(3, 8, 5, dtype=torch.complex128)
    ours = lattice.time_spectrum(signal, (-1, 0, 2), dim=1)
    window = torch.sin(math.pi * (torch.arange(8, dtype=torch.float64) + 0.5) / 8) ** 2
    full = torch.fft.fft(signal * window[None, :, None], dim=1)
    torch.testing.assert_close(ours, full[:, [-1, 0, 2]], atol=1e-12, rtol=1e-12)


def test_polar_look_up_reproduces_a_linear_field_exactly():
    limit_y, limit_x = 5, 7
    y = torch.arange(-limit_y, limit_y + 1, dtype=torch.float64)[:, None]
    x = torch.arange(-limit_x, limit_x + 1, dtype=torch.float64)[None, :]
    radii, angles = (1.0, 2.5, 5.0), tuple(2 * math.pi * index / 16 for index in range(16))
    table = lattice.polar_table(32, 32, limit_y, limit_x, radii, angles, CPU, torch.float64)
    sampled = lattice.resample_polar(3 * x - 2 * y + 1, table)
    radius, angle = torch.tensor(radii, dtype=torch.float64)[:, None], torch.tensor(angles, dtype=torch.float64)
    torch.testing.assert_close(sampled, 3 * radius * torch.cos(angle) - 2 * radius * torch.sin(angle) + 1)


def test_constants_are_cached():
    first = lattice.hann(16, CPU, torch.float32)
    assert lattice.hann(16, CPU, torch.float32) is first and lattice.hann(16, CPU, torch.float64) is not first
    assert float(first.min()) > 0
    torch.testing.assert_close(first, first.flip(0))
