"""The turning clips of the rotation benchmark turn as labelled, about the angle that their variant fixes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from benchmarks.rotation import VARIANTS, rows, subjects, turning_clip
from training.tiny_tracker import track


@pytest.mark.parametrize("name", list(VARIANTS))
@pytest.mark.parametrize("sense", [1, -1])
def test_clips_turn_in_the_sense_asked_for(name: str, sense: int):
    for seed in range(3):
        seen = track(turning_clip(VARIANTS[name], "bar", "yellow", sense, np.random.default_rng(seed)), "bar")
        assert seen is not None and sense * seen.turn > 0.35


def test_only_with_the_middle_fixed_do_both_senses_have_means_of_their_own():
    def means(name: str, sense: int) -> torch.Tensor:
        rng = np.random.default_rng(3)
        return torch.stack([turning_clip(VARIANTS[name], "bar", "yellow", sense, rng) for _ in range(24)]).mean(0)

    apart = {name: float((means(name, 1) - means(name, -1)).square().sum()) for name in ("first-frame", "middle")}
    assert apart["middle"] > 3 * apart["first-frame"]


def test_every_batch_holds_every_shape_in_both_senses():
    assert {(shape, sense) for _, shape, sense in subjects(8, np.random.default_rng(0))} == {
        (shape, sense) for shape in ("square", "bar", "triangle", "star") for sense in (1, -1)
    }


def test_rows_add_the_seeds_up():
    record = {"variant": "large", "steps": 5, "prompts": 10, "right": 6, "wrong": 1, "gap": 1.1}
    assert rows([record, record])[-1] == "| large | 5 | 2 | 12 / 20 | 39-78 % | 2 | 1.100 |"
