import dataclasses

import pytest

from phys_pipeline.spectral import SpectralConfig


def test_calibrated_is_the_default():
    assert SpectralConfig.calibrated() == SpectralConfig()
    assert SpectralConfig().weighting == "softmin" and SpectralConfig().gradient == "numerator"


def test_paper_preset_has_the_fixed_values_of_the_paper():
    paper = SpectralConfig.paper()
    assert (paper.keep, paper.gate_threshold, paper.gate_sharpness) == (0.3, 0.1, 10.0)
    assert (paper.rings, paper.angles, paper.radii, paper.ring_sharpness) == (20, 24, 24, 20.0)
    assert (paper.ridge, paper.temperature, paper.ring_weight, paper.band_half_width) == (1e-3, 0.1, 0.5, 1.0)
    assert paper.truncation == "one_sided" and paper.weighting == "coupled" and not paper.energy_weighting
    assert not paper.remove_mean and not paper.apodise and not paper.normalise and paper.polar == "complex"


def test_config_is_frozen_and_hashable():
    with pytest.raises(dataclasses.FrozenInstanceError):
        SpectralConfig().keep = 0.5  # type: ignore[misc]
    assert hash(SpectralConfig.paper()) != hash(SpectralConfig())


def test_unknown_field_names_the_nearest():
    with pytest.raises(ValueError, match="did you mean 'temperature'"):
        SpectralConfig.calibrated(temprature=0.2)


@pytest.mark.parametrize(
    "override",
    [
        {"keep": 0.0},
        {"keep": 1.5},
        {"window": 0},
        {"temperature": 0.0},
        {"weighting": "hard"},
        {"patches": 0},
        {"whiten": -1.0},
        {"polar": "none"},
        {"patches": 2.5},
        {"rings": True},
        {"wrap": "no"},
        {"gate_sharpness": "abc"},
        {"ridge": float("nan")},
        {"inner_radius": 0.0},
        {"scaling_harmonics": 0},
    ],
)
def test_out_of_range_values_are_refused(override):
    name = next(iter(override))
    with pytest.raises(ValueError, match=name):
        SpectralConfig.calibrated(**override)


def test_slices_are_some_of_three_in_their_order():
    assert SpectralConfig(slices=["scaling", "translation"]).slices == ("translation", "scaling")
    assert SpectralConfig(slices=()).slices == () and SpectralConfig().slices == ("translation", "rotation", "scaling")
    for wrong in (("pace",), "translation", 3):
        with pytest.raises(ValueError, match="slices must be some of translation, rotation, scaling"):
            SpectralConfig(slices=wrong)
