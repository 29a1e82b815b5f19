import pytest
import torch

from phys_pipeline.spectral import SpectralConfig, band

ORDERS = tuple(range(2, 13, 2))
BINS, HARMONICS = torch.arange(-8, 8, dtype=torch.float64), torch.tensor(ORDERS, dtype=torch.float64)


def line(slope: float) -> torch.Tensor:
    """Energy of a Hann-windowed tone of each harmonic, wrapped at the temporal period: (1, T, K)."""
    time = torch.arange(16, dtype=torch.float64)
    window = torch.sin(torch.pi * (time + 0.5) / 16) ** 2
    tones = torch.exp(-2j * torch.pi * time[:, None] * HARMONICS * slope / 16) * window[:, None]
    return torch.fft.fftshift(torch.fft.fft(tones, dim=0), dim=0).abs().square()[None]


@pytest.mark.parametrize("slope", [-1.7, -0.6, -0.05, 0.0, 0.31, 1.0, 1.9])
def test_slope_is_found_even_where_the_line_wraps(slope):
    missed, found = band.band_capture(line(slope), ORDERS, torch.zeros(1, dtype=torch.float64), SpectralConfig())
    assert float(found) == pytest.approx(slope, abs=0.02)
    random = torch.rand(1, 16, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert float(missed) < 0.4 < float(band.band_capture(random, ORDERS, torch.zeros(1), SpectralConfig())[0])


def test_closed_form_is_exact_for_slow_and_biased_for_wrapping_lines():
    assert float(band.closed_form_slope(line(0.3), BINS, HARMONICS)) == pytest.approx(0.3, abs=0.02)
    assert abs(float(band.closed_form_slope(line(1.7), BINS, HARMONICS))) < 0.5 * 1.7


def test_mirrored_energy_gives_the_mirrored_slope():
    energy = line(0.8)
    mirrored = energy[:, torch.tensor([0, *range(15, 0, -1)])]
    missed, slope = band.band_capture(energy, ORDERS, torch.zeros(1), SpectralConfig())
    other_missed, other_slope = band.band_capture(mirrored, ORDERS, torch.zeros(1), SpectralConfig())
    assert float(other_slope) == pytest.approx(-float(slope), abs=1e-6)
    assert float(other_missed) == pytest.approx(float(missed), abs=1e-9)


def test_no_energy_is_no_loss_and_no_motion():
    missed, slope = band.band_capture(torch.zeros(2, 16, 6), ORDERS, torch.zeros(2), SpectralConfig())
    assert missed.tolist() == [0, 0] and slope.tolist() == [0, 0]


@pytest.mark.parametrize(("gradient", "pays"), [("numerator", False), ("full", True)])
def test_adding_energy_pays_only_with_gradients_through_the_normaliser(gradient, pays):
    energy = torch.rand(1, 16, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_(True)
    config = SpectralConfig.calibrated(gradient=gradient)
    missed, _ = band.band_capture(energy, ORDERS, torch.zeros(1, dtype=torch.float64), config)
    (slope,) = torch.autograd.grad(missed.sum(), energy)
    assert (float(slope.min()) < 0) == pays
