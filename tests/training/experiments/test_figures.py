"""The figure: a picture with a line for each arm, whatever is missing or far off."""

from __future__ import annotations

import numpy as np
from PIL import Image

from training.experiments.effects import MUST_HOLD, Effect
from training.experiments.figures import _range, draw_effects

JERK, DIRECTION = MUST_HOLD[0], MUST_HOLD[3]


def test_the_picture_grows_with_the_arms_and_missing_effects_leave_a_gap(tmp_path):
    one = {"sim2_jerk": Effect(0.7, (0.6, 0.75), 10), "direction_accuracy": Effect(2.0, None, 10)}
    few = draw_effects(tmp_path / "few.png", {"mine": one}, [JERK, DIRECTION], "mine")
    many = draw_effects(tmp_path / "many.png", {"mine": one, **{f"arm{n}": {} for n in range(9)}}, [JERK, DIRECTION], "mine")
    small, large = Image.open(few), Image.open(many)
    assert large.size[0] == small.size[0] and large.size[1] > small.size[1]
    pixels = np.asarray(small.convert("RGB")).astype(int)
    assert ((pixels[..., 1] - pixels[..., 0]) > 60).any(), "what is met is green"
    grey = draw_effects(tmp_path / "grey.png", {"mine": {"sim2_jerk": Effect(0.9, (0.8, 1.1), 10)}}, [JERK], "mine")
    pixels = np.asarray(Image.open(grey).convert("RGB")).astype(int)
    assert not ((pixels[..., 1] - pixels[..., 0]) > 60).any()


def test_a_panel_shows_every_estimate_and_cuts_endless_intervals():
    low, high = _range([Effect(0.9, (0.1, 4.0), 5), Effect(1.8, (1.7, 1.9), 5), None], JERK)
    assert 0.4 < low < 0.5 and 1.8 < high < 2.0
    low, high = _range([], DIRECTION)
    assert low < 0.0 and high > 5.0
