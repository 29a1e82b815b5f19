import pytest

from phys_pipeline.evaluation.metric import MetricResult, Settings
from phys_pipeline.evaluation.metrics.aggregates import (
    ALIGNMENT_PARTS,
    TemporalConsistency,
    TextVideoAlignment,
    temporal_consistency,
    text_video_alignment,
)

EVALCRAFTER = Settings(protocol="evalcrafter")


def parts(clip_temporal=100.0, warping_error=0.0, clip_first_frame=100.0):
    values = {"clip_temporal": clip_temporal, "warping_error": warping_error, "clip_first_frame": clip_first_frame}
    return {key: MetricResult(value) for key, value in values.items()}


def test_a_frozen_clip_reaches_the_maximum():
    result = TemporalConsistency(EVALCRAFTER).combine(parts())["temporal_consistency"]
    assert result.value == pytest.approx(66.28, abs=0.005)
    assert result.details["parts"] == {"clip_temporal": 100.0, "warping_error": 0.0, "clip_first_frame": 100.0}


def test_a_ten_thousandth_of_cosine_is_a_seventh_of_a_point():
    assert temporal_consistency(1, 0.01, 0.99) - temporal_consistency(0.9999, 0.01, 0.99) == pytest.approx(0.146, abs=0.001)
    assert temporal_consistency(1, 0.0, 1) > temporal_consistency(1, 0.1, 1)


def test_missing_parts_and_stand_ins_give_no_aggregate():
    metric = TemporalConsistency(EVALCRAFTER)
    missing = metric.combine({key: part for key, part in parts().items() if key != "warping_error"})["temporal_consistency"]
    assert missing.status == "skipped" and "warping_error" in missing.reason
    standin = metric.combine(parts() | {"warping_error": MetricResult(0.01, "standin")})["temporal_consistency"]
    assert standin.status == "skipped" and "stand-in" in standin.reason
    failed = metric.combine(parts() | {"clip_temporal": MetricResult(None, "failed", "broken")})["temporal_consistency"]
    assert failed.value is None


def test_protocol_fixed_has_no_temporal_consistency():
    assert not TemporalConsistency(Settings()).available().ok
    assert TemporalConsistency(EVALCRAFTER).available().ok


def test_text_video_alignment_by_hand():
    """All shares 0 and no error at all: 100 (5 (0.00372351 + 0.22686202) - 0.30683182)."""
    assert text_video_alignment(dict.fromkeys(ALIGNMENT_PARTS, 0.0)) == pytest.approx(84.6095831)
    ones = text_video_alignment(dict.fromkeys(ALIGNMENT_PARTS, 1.0))
    assert ones == pytest.approx(
        100 * (5 * (-0.0701577 + 0.02561424 + 0.05566109 + 0.0173974 - 0.020954 + 0.03069167) - 0.30683182)
    )


def test_text_video_alignment_is_not_available_from_clips_alone():
    available = TextVideoAlignment(EVALCRAFTER).available()
    assert not available.ok and "evalcrafter_averages" in available.reason


def test_text_video_alignment_needs_all_eight_imported_values():
    rows = {f"evalcrafter_{name}": MetricResult(0.5) for name in ALIGNMENT_PARTS}
    metric = TextVideoAlignment(Settings())
    assert metric.combine(rows)["text_video_alignment"].value == pytest.approx(
        text_video_alignment(dict.fromkeys(ALIGNMENT_PARTS, 0.5))
    )
    del rows["evalcrafter_ocr_score"]
    result = metric.combine({**rows, "clip_score": MetricResult(30.0)})["text_video_alignment"]
    assert result.status == "skipped" and "evalcrafter_ocr_score" in result.reason
