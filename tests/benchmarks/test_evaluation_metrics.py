"""The benchmark of the evaluation's metrics: its rows are the metrics' values, plausibility is that of the metric, controls."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.discrimination import Results
from benchmarks.evaluation_measures import (
    EvaluationMeasures,
    TermMeasures,
    control_outcomes,
    directed_infos,
    measure,
    plausibility_rows,
    suite_infos,
)
from benchmarks.evaluation_metrics import OWN, goal_table, renamed, report, titled
from benchmarks.pairs import Clip, synthetic_clip
from benchmarks.peers import RememberedFlow
from benchmarks.scores import SpectralMeasures, score_clips
from phys_pipeline.evaluation import VideoSample
from phys_pipeline.evaluation.clip import DecodedClip
from phys_pipeline.evaluation.controls import CONTROLS
from phys_pipeline.evaluation.metrics.plausibility import Plausibility
from phys_pipeline.evaluation.metrics.spectral import Spectral, SpectralPaper
from phys_pipeline.spectral import SpectralConfig

CLIP = Clip("real", "a.mp4", 0, synthetic_clip(3000).pixels)


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    measures = [
        SpectralMeasures("calibrated", SpectralConfig.calibrated()), TermMeasures(), EvaluationMeasures(),
        SpectralMeasures("paper", SpectralConfig.paper(), components=False),
    ]  # fmt: skip
    store: Path = tmp_path_factory.mktemp("scores") / "scores.jsonl"
    found = renamed(score_clips([CLIP], measures, store, 0))
    return [*plausibility_rows(found), *found]


def test_rows_are_the_values_of_the_metrics(rows):
    sample = VideoSample("a", "b", frames=CLIP.pixels, fps=12.0)
    values = measure(DecodedClip(sample, sample.decode(), RememberedFlow()), (Plausibility,), (Spectral, SpectralPaper))
    values |= measure(DecodedClip(sample, sample.decode(), RememberedFlow()))
    clean = {row.measure: row.clean for row in rows}
    assert set(clean) == set(suite_infos())
    for key, info in suite_infos().items():
        expected = -values[key] if info.direction == "up" else values[key]
        assert clean[key] == pytest.approx(expected, rel=1e-4, abs=1e-6), key


def test_plausibility_sees_the_copies_and_a_page_names_every_metric(rows):
    results = Results(titled(rows), (), 0, "command", OWN)
    own = next(row for row in rows if row.measure == OWN)
    assert np.mean([score > own.clean for name, score in own.copies.items() if name.endswith(" 1")]) > 0.9
    text = report(results, [CLIP], 1)
    assert (
        all(key in text for key in suite_infos())
        and "| camera: pan_left |" in text
        and "| moves left |" in text
        and "warping_error †" in text
        and "flow_score † (*neutral*)" in text
    )
    assert "plausibility, real, full strength" in "\n".join(goal_table(results))


def test_controls_are_judged_by_every_metric_with_a_direction():
    found = control_outcomes([CLIP])
    assert set(found) == {(key, control) for key in directed_infos() for control in CONTROLS}
    assert found["spectral_loss", "frozen"] == found["temporal_flicker", "frozen"] == [True]
    assert found["plausibility", "frozen"] == found["sim2_jerk", "frozen"] == [None]
    assert found["plausibility", "shuffled"] == [False]
