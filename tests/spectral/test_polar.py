"""The dense polar maps equal resampling on the full lattice followed by DFTs."""

import itertools

import pytest
import torch

from phys_pipeline.spectral import SpectralConfig, lattice, polar

CPU = torch.device("cpu")
GEOMETRY = polar.PolarGeometry(30, 44, 4, 6)


def spectrum() -> torch.Tensor:
    """Full signed lattice of a real picture: (2, Ky, Kx)."""
    picture = torch.randn(2, 1, 1, 30, 44, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return lattice.spatial_spectrum(picture, tuple(range(-4, 5)), tuple(range(-6, 7)))[:, 0, 0]


def resampled(values: torch.Tensor, radii: tuple[float, ...], config: SpectralConfig) -> torch.Tensor:
    table = lattice.polar_table(*GEOMETRY, radii, polar.angle_grid(config), CPU, torch.float64)
    return lattice.resample_polar(values, table) * torch.tensor(radii, dtype=torch.float64)[:, None] ** config.whiten


def test_magnitude_harmonics_equal_resampling_and_dfts():
    config = SpectralConfig.calibrated()
    half = spectrum()[..., 6:].abs().flatten(-2)
    turn, growth = polar.split_harmonics(polar.magnitude_harmonics(half, GEOMETRY, config), GEOMETRY, config)
    rings = resampled(spectrum().abs(), polar.ring_radii(GEOMETRY, config), config)  # (2, R, A)
    angles = rings.shape[-1]
    transform = lattice.dft_matrix(angles, tuple(m // 2 for m in polar.harmonic_orders(config)), False, CPU, torch.float64)
    torch.testing.assert_close(turn, rings.to(transform.dtype) @ transform.T / angles)
    rows = resampled(spectrum().abs(), polar.log_radii(GEOMETRY, config)[0], config)  # (2, radii, A)
    weighted = rows * lattice.hann(config.radii, CPU, torch.float64)[:, None]
    steps = lattice.dft_matrix(config.radii, tuple(range(1, config.scaling_harmonics + 1)), False, CPU, torch.float64)
    torch.testing.assert_close(growth, (steps @ weighted.to(steps.dtype)).transpose(-2, -1))


@pytest.mark.parametrize("limit", [1, 2])
def test_on_a_small_lattice_fewer_rings_and_angles_have_the_same_energy(limit):
    config, side = SpectralConfig.calibrated(), 2 * limit + 1
    geometry = polar.PolarGeometry(8 * limit, 8 * limit, limit, limit)
    half = torch.rand(3, side, limit + 1, dtype=torch.float64, generator=torch.Generator().manual_seed(limit))
    full = torch.cat([half[..., 1:].flip(-2, -1), half], dim=-1)
    found = polar.split_harmonics(polar.magnitude_harmonics(half.flatten(1), geometry, config), geometry, config)
    steps = tuple(range(1, config.scaling_harmonics + 1))
    window = lattice.hann(config.radii, CPU, torch.float64)
    for part, radii, count, bins in (
        (found[0], polar.ring_radii(geometry, config), config.angles // 2, tuple(m // 2 for m in polar.harmonic_orders(config))),
        (found[1], polar.log_radii(geometry, config)[0], config.radii, steps),
    ):
        table = lattice.polar_table(*geometry, radii, polar.angle_grid(config), CPU, torch.float64)
        sampled = lattice.resample_polar(full, table) * torch.tensor(radii, dtype=torch.float64)[:, None] ** config.whiten
        transform = lattice.dft_matrix(count, bins, False, CPU, torch.float64)
        if part is found[0]:
            expected = sampled.to(transform.dtype) @ transform.T / count  # (3, R, m)
        else:
            expected = ((transform * window) @ sampled.to(transform.dtype)).transpose(1, 2)  # (3, A, nu)
        assert part.shape[1] < expected.shape[1]
        torch.testing.assert_close(part.abs().square().sum(dim=1), expected.abs().square().sum(dim=1))


def test_complex_harmonics_equal_resampling_and_a_dft_over_the_full_turn():
    config = SpectralConfig.paper()
    half = spectrum()[..., 6:].flatten(-2)
    rings = resampled(spectrum(), polar.ring_radii(GEOMETRY, config), config)
    transform = lattice.dft_matrix(config.angles, polar.harmonic_orders(config), False, CPU, torch.float64)
    expected = (rings @ transform.T / config.angles).flatten(-2)
    torch.testing.assert_close(polar.complex_harmonics(half, GEOMETRY, config), expected)


def test_ring_energy_of_the_half_lattice_is_that_of_the_full_one():
    config = SpectralConfig.calibrated()
    power = spectrum().abs().square()
    half = polar.ring_energy(power[..., 6:].flatten(-2), GEOMETRY, config)
    mirrored = polar.ring_energy(power.flip(-1)[..., 6:].flatten(-2), GEOMETRY, config)  # the other half
    torch.testing.assert_close(half, mirrored)
    inside = power.sum(dim=(-2, -1))
    assert (half.sum(dim=-1) < 1.02 * inside).all() and (half.sum(dim=-1) > 0.4 * inside).all()


def test_orders_and_radii():
    assert polar.harmonic_orders(SpectralConfig.calibrated()) == (2, 4, 6, 8, 10, 12)
    printed = polar.harmonic_orders(SpectralConfig.paper())
    assert printed[0] == -12 and printed[-1] == 11 and 0 not in printed
    radii = polar.ring_radii(GEOMETRY, SpectralConfig.paper())
    assert len(radii) == 20 and abs(radii[0] * 20 - radii[-1]) < 1e-12 and radii[-1] == GEOMETRY.largest_radius
    spaced, period = polar.log_radii(GEOMETRY, SpectralConfig.calibrated())
    ratios = [later / earlier for earlier, later in itertools.pairwise(spaced)]
    assert max(ratios) - min(ratios) < 1e-12 and period > 0
