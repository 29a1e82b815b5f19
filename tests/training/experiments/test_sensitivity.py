"""Other units of sampling widen an interval as they must, and other prompts give their own effect."""

from __future__ import annotations

import numpy as np
import pytest

from phys_pipeline.evaluation.registry import infos
from phys_pipeline.evaluation.rows import Row
from training.experiments.effects import MUST_HOLD, columns_of, effect
from training.experiments.sensitivity import across_seeds, clustered, sensitivity
from training.experiments.world import Asked

JERK = MUST_HOLD[0]
ASKED = [Asked(f"p{n:02d}", f"a red {'square' if n % 2 else 'bar'} moves {n}", {}) for n in range(40)]


@pytest.fixture(scope="module")
def columns():
    """The base loss has 1 everywhere; ours 0.6 for bars and 1.0 for squares, 0.1 more with seed 1."""
    rows = []
    for column in ("plain", "mine"):
        for number, asked in enumerate(ASKED):
            for seed in (0, 1):
                value = 1.0 if column == "plain" else (1.0 if number % 2 else 0.6) + 0.1 * seed
                rows.append(Row(f"{column}/{asked.id}#{seed}", asked.id, column, seed, "sim2_jerk", value, "ok", backend="b"))
    found = columns_of(rows, [infos()["sim2_jerk"]])
    return found["plain"], found["mine"]


def test_drawing_whole_clusters_keeps_the_estimate_and_widens_the_interval(columns):
    base, ours = columns
    plain = effect(base, ours, JERK, None)
    subjects = {asked.id: asked.text.split()[2] for asked in ASKED}
    wide = clustered(base, ours, JERK, subjects, None)
    assert wide.value == pytest.approx(plain.value) == pytest.approx(0.85) and wide.n == plain.n == 80
    assert wide.interval == pytest.approx((0.65, 1.05)) and plain.interval[0] > 0.75
    alone = clustered(base, ours, JERK, {asked.id: asked.id for asked in ASKED}, None)
    assert alone.interval == pytest.approx(plain.interval)


def test_seeds_as_the_unit_have_students_interval(columns):
    found = across_seeds(*columns, JERK, None)
    half = 12.706 * np.std([0.8, 0.9], ddof=1) / 2**0.5
    assert found.value == pytest.approx(0.85) and found.interval == pytest.approx((0.85 - half, 0.85 + half)) and found.n == 2


def test_the_table_has_a_line_for_each_way(columns):
    lines = sensitivity(*columns, ASKED, 10, None).splitlines()
    assert [line.split("|")[1].strip()[:12] for line in lines[4:]] == [
        "prompts are ",
        "subjects are",
        "training see",
        "only the 30 ",
    ]
    assert "subjects are drawn (2)" in lines[5] and "0.850 [0.650, 1.050]" in lines[5]
    assert len(sensitivity(*columns, ASKED, 0, None).splitlines()) == len(lines) - 1
