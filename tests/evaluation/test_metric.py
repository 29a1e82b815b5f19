import math

import pytest

from phys_pipeline.evaluation.metric import MetricResult, failed, skipped


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_value_is_finite(value):
    with pytest.raises(ValueError, match="finite"):
        MetricResult(value)


@pytest.mark.parametrize(("value", "status"), [(None, "ok"), (None, "standin"), (1.0, "skipped"), (1.0, "failed")])
def test_status_and_value_agree(value, status):
    with pytest.raises(ValueError, match=f"status {status}"):
        MetricResult(value, status, "why")


def test_no_value_has_a_reason():
    with pytest.raises(ValueError, match="needs a reason"):
        MetricResult(None, "skipped")
    assert skipped("too short").reason == "too short" and failed("broken").status == "failed"
