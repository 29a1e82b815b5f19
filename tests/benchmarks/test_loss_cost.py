"""Every method that the table names runs forward and backward; the page says whether the targets are met."""

import pytest

from benchmarks.loss_cost import METHODS, TARGET, Cost, make_clip, make_method, profile, report


@pytest.mark.parametrize("name", METHODS)
def test_methods_run_on_pictures_and_on_latents(name):
    for channels in (3, 16):
        method = make_method(name, make_clip((channels, 4, 32, 40)))
        assert (method is None) == (name == "warping" and channels == 16)
        if method is not None:
            method()


def test_clip_moves_and_stays_in_range():
    clip = make_clip((3, 6, 32, 40))
    assert clip.shape == (1, 3, 6, 32, 40) and 0 <= float(clip.min()) < float(clip.max()) <= 1
    assert float(clip.diff(dim=2).abs().mean()) > 1e-3


def page(ours: float, memory: float) -> str:
    costs = {name: Cost([1.0], 100.0) for name in METHODS} | {"literal": Cost([8.0], 200.0), "ours": Cost([ours], memory)}
    return report({TARGET: costs}, 1)


def test_page_compares_with_the_targets():
    assert "measured 0.50, 0.06, 0.25. Met." in page(0.5, 50.0)
    assert "Not met." in page(1.5, 50.0) and "Not met." in page(0.5, 100.0)
    assert "| (a) ours, calibrated | 500.0 [500.0, 500.0] | 0.50 | 0.06 | 50 | 0.25 |" in page(0.5, 50.0)


def test_profile_names_the_largest_operations():
    page = profile("16x64x64", repeats=1)
    shares = [float(line.split("|")[2]) for line in page.splitlines()[3:]]
    assert len(shares) == 12 and shares == sorted(shares, reverse=True) and 0 < sum(shares) <= 100
