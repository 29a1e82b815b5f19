"""The protocol of the gradient test, its tracking, and what must hold for the forms that train."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from benchmarks.descent import FORMS, MOTIONS, PROXIMITY, descend, deviation, forms, gradient, measure, norm, synthetic_case
from benchmarks.gradient_report import meets, write_report
from benchmarks.gradient_test import Store, paint_rows, pixel_rows
from phys_pipeline.media.corruptions import corrupt
from phys_pipeline.media.warping import similarity_warp


@pytest.mark.parametrize("motion", MOTIONS)
@pytest.mark.parametrize("seed", [0, 1])
def test_clean_clips_have_the_known_path_without_jerk_and_jitter_adds_both(motion, seed):
    case = synthetic_case(motion, seed)
    clean, shaken = (measure(video, case) for video in (case.clean, corrupt(case.clean, "jitter", seed=3)))
    assert clean.jerk < 0.2 < 2 < shaken.jerk and clean.path < shaken.path
    assert clean.distance == 0 and clean.sharpness == clean.dynamic == 1


def test_registration_finds_the_similarity_of_each_frame():
    clean = synthetic_case("rotation", 1).clean
    wanted = torch.tensor([0.02, -0.01, 0.05, 0.03]) * torch.randn(16, 4, generator=torch.Generator().manual_seed(0)).clamp(-2, 2)
    found = deviation(similarity_warp(clean[None], wanted[None])[0], clean)
    np.testing.assert_allclose(found, (wanted * torch.tensor([48, 48, 12, 12])).numpy(), atol=0.05)


def test_descent_on_the_squared_error_ends_where_the_proximity_balances_it():
    case = synthetic_case("translation", 1)
    clean = case.clean[None, :, :6]
    start = corrupt(clean, "jitter", 0.3, seed=1)
    loss = forms(clean)["squared error"]
    end = descend(loss, start, norm(start - clean), norm(gradient(loss, start)), steps=50)
    left = float(norm(end - clean) / norm(start - clean))
    assert left == pytest.approx(PROXIMITY / (1 + PROXIMITY), abs=0.03)


def test_every_form_has_a_value_and_a_gradient_per_clip():
    clean = torch.stack([synthetic_case(motion, 0).clean[:, :8] for motion in MOTIONS[:2]])
    shaken = corrupt(clean, "jitter", seed=1)
    found = forms(clean)
    assert tuple(found) == FORMS
    for name, loss in found.items():
        assert loss(shaken).shape == (2,)
        assert bool((norm(gradient(loss, shaken)) > 0).all()), name
    for name in ("excess", "anchored", "squared error"):
        assert float(found[name](clean).abs().max()) == 0.0


def test_the_anchored_form_leads_home_from_a_jittered_and_a_stuttered_clip():
    items = [(motion, motion, synthetic_case(motion, 0)) for motion in MOTIONS]
    rows = pixel_rows(items[:1], "anchored", "stutter", "synthetic") + pixel_rows(items, "anchored", "jitter", "synthetic")
    assert meets(rows) == (True, True, True)


def test_painting_is_never_downhill_with_numerator_gradients():
    items = [(motion, motion, synthetic_case(motion, seed)) for motion in MOTIONS for seed in (0,)]
    for form in ("absolute", "anchored"):
        assert all(row["slope"] > 0 for row in paint_rows(items, form)), form


def test_cases_are_kept_and_recomputed_only_for_other_code(tmp_path):
    calls = []

    def job() -> list[dict]:
        calls.append(1)
        return [{"value": 1.0}]

    for quick in (False, False, True):
        assert Store(tmp_path, quick).run({"a form, full": job}) == [{"value": 1.0}]
    assert len(calls) == 2 and (tmp_path / "a_form_full.json").is_file()


def test_report_and_figure_are_written(tmp_path):
    items = [(f"{motion} 100", motion, synthetic_case(motion, 0)) for motion in MOTIONS[:1]]
    rows = pixel_rows(items, "squared error", "jitter", "synthetic") + paint_rows(items, "squared error")
    text = write_report(rows, tmp_path, "python benchmarks/gradient_test.py", 100)
    assert "| squared error |" in text and (tmp_path / "gradient_test.md").read_text(encoding="utf-8") == text
    assert (tmp_path / "gradient_test.png").stat().st_size < 150_000
