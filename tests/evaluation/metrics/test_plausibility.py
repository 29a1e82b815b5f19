"""Plausibility: broken motion has less, stillness none, slowness a bound; and the parts add up."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from evaluation_clips import measure, texture

from phys_pipeline.evaluation.controls import CONTROLS
from phys_pipeline.evaluation.metrics.breaks import Breaks
from phys_pipeline.evaluation.metrics.flicker import Flicker
from phys_pipeline.evaluation.metrics.plausibility import WEIGHTS, Plausibility, badness, plausibility
from phys_pipeline.evaluation.metrics.similarity import SimilaritySuite
from phys_pipeline.evaluation.metrics.spectral import Spectral
from phys_pipeline.media import CORRUPTIONS, Video, corrupt, read_video, write_video

CLEAN = texture(frames=16, velocity=(1.5, 0.5))


def of(frames, **sample):
    return measure(frames, Plausibility, fps=12.0, **sample)["plausibility"]


@pytest.fixture(scope="module")
def clean():
    return of(CLEAN).value


@pytest.mark.parametrize("kind", CORRUPTIONS)
def test_every_corruption_costs(kind, clean):
    video = torch.from_numpy(CLEAN).permute(3, 0, 1, 2).float() / 255
    broken = (corrupt(video, kind, 1.0, seed=2).permute(1, 2, 3, 0).numpy() * 255).round().astype(np.uint8)
    assert of(broken).value < 0.8 * clean


def test_it_is_made_of_the_values_of_the_other_metrics():
    found = measure(CLEAN, Plausibility, Spectral, SimilaritySuite, Flicker, Breaks, fps=12.0)
    keys = ("spectral_loss", "spectral_dynamic_degree", "sim2_jerk", "brightness_flicker", "cuts", "active_share")
    assert found["plausibility"].value == plausibility(badness(*(found[key].value for key in keys)))
    lost = found["plausibility"].details["lost_by"]
    assert set(lost) == set(WEIGHTS) and found["plausibility"].value == pytest.approx(math.exp(-sum(lost.values())))


def test_a_frozen_clip_has_none_not_even_from_a_file(tmp_path):
    frozen = CONTROLS["frozen"](CLEAN, np.random.default_rng(0))
    assert of(frozen).reason == "nothing moves"
    write_video(tmp_path / "a.mp4", Video.from_frames(frozen, 12.0))
    assert of(read_video(tmp_path / "a.mp4").frames).reason == "nothing moves"


def test_noise_on_a_still_picture_and_motion_too_slow_to_see_lose(clean):
    noise = np.random.default_rng(0).normal(0, 2, CLEAN.shape)
    noisy = np.clip(CLEAN[:1] + noise, 0, 255).round().astype(np.uint8)
    assert (of(noisy).value or 0) < 0.7 * clean
    assert (of(texture(frames=16, velocity=(0.05, 0.0))).value or 0) < 0.7 * clean


def test_known_answers():
    parts = badness(spectral=0.5, dynamic_degree=0.3, jerk=0.5, flicker=math.e - 1, cuts=7, active_share=50)
    assert plausibility(parts) == pytest.approx(math.exp(-(0.5 + 0.1 + 0.2 + 0.6 + 0.05)))
    assert plausibility(badness(0.0, 0.3, 0.0, 0.0, 0, 100)) == 1
    assert badness(0.0, 0.0, None, 0.0, 0, 0) is None
    assert plausibility(badness(0.0, 0.02, None, 0.0, 0, 0)) == pytest.approx(math.exp(-0.3))


def test_an_unknown_rate_is_skipped():
    assert "frame rate" in measure(CLEAN, Plausibility, fps=None)["plausibility"].reason
