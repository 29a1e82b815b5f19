"""Simulated studies have the share they are made with, and the page has a row for every condition."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.study_simulation import MIDDLE, PEOPLE, SPREADS, TRIALS, main, study, true_share


def test_the_true_share_is_what_many_votes_give():
    assert true_share((0.0, 0.0), MIDDLE) == pytest.approx(0.6)
    assert true_share((1.0, 1.0), 0.0) == pytest.approx(0.5)
    rng = np.random.default_rng(0)
    votes = [value for _ in range(60) for _, _, value in study(rng, 40, (1.0, 1.0), MIDDLE)]
    assert np.mean(votes) == pytest.approx(true_share((1.0, 1.0), MIDDLE), abs=0.03)


def test_every_participant_sees_each_prompt_at_most_once():
    votes = study(np.random.default_rng(1), 5, (0.0, 0.0), 0.0)
    assert len(votes) == 5 * TRIALS == len({(who, what) for who, what, _ in votes})


def test_page_has_a_row_for_every_condition(tmp_path):
    main(["--studies", "3", "--resamples", "50", "--report", str(tmp_path / "page.md")])
    page = (tmp_path / "page.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith(tuple(f"| {people} |" for people in PEOPLE))]
    assert len(rows) == len(PEOPLE) * len(SPREADS) and "3 simulated studies" in page
